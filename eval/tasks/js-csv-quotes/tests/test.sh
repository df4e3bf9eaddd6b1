#!/bin/sh
cd "${APP:-/app}" || exit
node "${0%/*}/check.js" | tail -n 1 | grep -qx passed && reward=1
echo "${reward:-0}" > "${LOGS:-/logs}/verifier/reward.txt"
