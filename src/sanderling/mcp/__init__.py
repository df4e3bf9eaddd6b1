"""Tool servers that speak the Model Context Protocol: what settings declare, a task for each server, its tools as tools of ours."""
