#!/bin/sh
# The last line of the checks counts, not their exit status: the code under test could end the process early.
cd "${APP:-/app}" || exit
PYTHONPATH=. python3 -B "${0%/*}/check.py" | tail -n 1 | grep -qx passed && reward=1
echo "${reward:-0}" > "${LOGS:-/logs}/verifier/reward.txt"
