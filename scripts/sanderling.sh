#!/bin/sh
# Start Sanderling so that neither PYTHONPATH nor the current directory decides what Python loads.
#
# A Python script cannot do that: before its first line, Python has run the sitecustomize.py of every directory in PYTHONPATH, `.` or
# an empty entry included, and a `re.py` of the project then replaces Python's. The line `#!python -I` would help, but pip drops the
# options of the interpreter when it installs a script. So a shell finds the Python of the environment that contains this file, and
# starts it in isolation.
here=$0
while [ -L "$here" ]; do # ~/.local/bin/sanderling
  target=$(readlink "$here") || break
  case $target in
  /*) here=$target ;;
  *) here=${here%/*}/$target ;;
  esac
done
case $here in
*/*) bin=${here%/*} ;;
*) bin=. ;;
esac
if [ -x "$bin/python3" ]; then
  exec "$bin/python3" -I -m sanderling "$@"
fi
# `pip install --user` puts this file where there is no Python. -I would exclude the user's own packages as well.
exec python3 -E -P -m sanderling "$@"
