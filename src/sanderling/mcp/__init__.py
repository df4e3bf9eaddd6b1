"""Tool servers that speak the Model Context Protocol: what settings declare, a task for each server, its tools as tools of ours."""

START_S = 30.0  # as other clients have it: `npx` and `uvx` download a program before they start it
DISCOVER_S = 3.0  # for the first answer; a server of before July 2026 may never give one
CONNECT_S = 10.0  # for a call that finds its server in the middle of a start
GRACE_S = 0.0  # where a person looks on: what comes later is told later
