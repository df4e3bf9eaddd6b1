#!/bin/sh
# Pack a directory into backups/ of the current directory.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: backup.sh DIRECTORY" >&2
    exit 2
fi
directory=${1%/}
if [ ! -d "$directory" ]; then
    echo "backup.sh: $directory is not a directory" >&2
    exit 1
fi
name=$(basename "$directory")
stamp=$(date -u +%Y%m%d-%H%M%S)
mkdir -p backups
tar czf "backups/$name-$stamp.tar.gz" -C "$(dirname "$directory")" "$name"
