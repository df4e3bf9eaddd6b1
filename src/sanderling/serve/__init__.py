"""
`sanderling serve`: the agent as a WebSocket server for clients that connect and disconnect.

It uses the method handlers of `acp_agent`. Sessions belong to the server: they continue without a client, several clients can watch one,
and each client gets every update exactly once.
"""
