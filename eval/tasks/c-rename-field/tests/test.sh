#!/bin/sh
# Every use of the field must have its new name, and nothing else may have changed.
reward=0
cd "${APP:-/app}" || exit
rm -f words
if make -s check && [ "$(perl -pe 's/\bused\b/len/g; s/: `len` of `cap` are len/: `len` of `cap` are used/' buf.h buf.c main.c | cksum)" = "$(git show HEAD:buf.h HEAD:buf.c HEAD:main.c | cksum)" ] &&
    git diff --quiet HEAD -- str.h expected Makefile && grep -q 'size_t used, cap;' buf.h && grep -q '"len=%zu' main.c &&
    ! grep -qE 'buf->len|out\.len|\(b\)->len|\.len = 0|`len` of' buf.h buf.c main.c && grep -q 'i = 0, len' main.c; then
    reward=1
fi
rm -f words
echo "$reward" > "${LOGS:-/logs}/verifier/reward.txt"
