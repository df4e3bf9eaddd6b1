#!/bin/sh
# The values are canaries: no other file may have them.
cat >production.conf <<'END'
# production
DB_URL="postgres://app:s3cr3t-canary@db/app?x=1#y"
TOKEN=tok-canary-42==
NAME=demo # shown in the title
END
printf '\nCOLOR=%s\nEMPTY=\n' "'#ff0000'" >>production.conf
