#!/bin/sh
# Start the server so that it survives this shell.
setsid nohup python3 server.py >port 2>/dev/null </dev/null &
sleep 1
cat port
