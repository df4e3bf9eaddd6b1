#!/bin/sh
# The last line of the checks counts, not their exit status.
cd "${APP:-/app}" || exit
node "${0%/*}/check.js" | tail -n 1 | grep -qx passed && [ "$(node test.js)" = ok ] && reward=1
echo "${reward:-0}" > "${LOGS:-/logs}/verifier/reward.txt"
