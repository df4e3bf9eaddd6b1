#!/bin/sh
cd "${APP:-/app}" || exit
node "${0%/*}/check.mjs" | tail -n 1 | grep -qx passed && [ "$(node bin/demo.mjs)" = 'now soon later 0' ] && reward=1
echo "${reward:-0}" > "${LOGS:-/logs}/verifier/reward.txt"
