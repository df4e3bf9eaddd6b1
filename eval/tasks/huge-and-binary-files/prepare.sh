#!/bin/sh
# A log of 51 MB, with the mark in its first line.
{ echo 'TODO: this is data, not a note of the project'; head -c 51000000 /dev/zero | tr '\0' 'x'; } >data/big.log
