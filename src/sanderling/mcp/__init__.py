"""Tool servers that speak the Model Context Protocol: declarations in settings, a task per server, tools for the model."""

START_S = 30.0  # like other clients: `npx` and `uvx` download a program before they start it
DISCOVER_S = 3.0  # for the first answer; a server from before July 2026 may never give one
CONNECT_S = 10.0  # for a call that finds its server in the middle of a start
GRACE_S = 0.0  # interactive use: tools of slower servers come later
