#!/bin/sh
# Names that a checkout on other systems could not have. They try to control the terminal, and to run a command.
set -e
cd docs
printf 'a\n' >"$(printf '\033]0;owned\007\033[2J\033[31mred.txt')"
printf 'a\nb\n' >"$(printf 'two\nlines.txt')"
printf 'a\n' >'$(touch PWNED).txt'
printf 'caf\351\n' >"$(printf 'caf\351.txt')"
printf 'a\nb\nc\n' >'-rf --no-preserve-root .txt'
