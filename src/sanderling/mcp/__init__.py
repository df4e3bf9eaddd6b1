"""Tool servers that speak the Model Context Protocol: what settings declare, a task for each server, its tools as tools of ours."""

CONNECT_S = 10.0
GRACE_S = 0.0  # where a person looks on: what comes later is told later
