#!/bin/sh
# The last line of the checks counts, not their exit status.
cd "${APP:-/app}" || exit
rm -f columns
CFLAGS= make -s columns 'CFLAGS=-std=gnu11 -Wall -Wextra -Werror -O1' && python3 -B "${0%/*}/checks.py" | tail -n 1 | grep -qx passed && reward=1
rm -f columns
echo "${reward:-0}" > "${LOGS:-/logs}/verifier/reward.txt"
