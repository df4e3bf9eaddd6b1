#!/bin/sh
# Builds a hidden test with the library, outside of the project, and runs it.
reward=0
made=$(mktemp -d)
cd "${APP:-/app}" &&
    grep -q 'size_t ring_read(struct ring \*ring, unsigned char \*to, size_t count);' ring.h &&
    cc -std=c11 -Wall -Wextra -Werror -I. -o "$made/check" "${0%/*}/check.c" ring.c &&
    "$made/check" | tail -n 1 | grep -qx passed &&
    make -s test && reward=1
rm -r "$made"
echo "$reward" > "${LOGS:-/logs}/verifier/reward.txt"
