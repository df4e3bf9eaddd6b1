#!/bin/sh
# Start Sanderling where neither PYTHONPATH nor the current directory says what Python loads.
#
# A script of Python's own cannot do that: before its first line Python has run the sitecustomize.py of whatever PYTHONPATH names,
# `.` or an empty entry included, and then a `re.py` of the project stands in the place of Python's. The line `#!python -I` would
# do, but pip drops what stands behind the interpreter when it installs a script. So a shell finds the Python of the environment in
# which this file lies, and starts it in isolation.
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
# `pip install --user` puts it where no Python lies. -I would leave out the directory of the user's own packages as well.
exec python3 -E -P -m sanderling "$@"
