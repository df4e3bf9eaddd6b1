#!/bin/sh
# Count the users of each country.
tail -n +2 "$1" | cut -d, -f3 | sort | uniq -c | sort -rn | awk '{print $2, $1}'
