"""
Serves clients of the Agent Client Protocol: `sanderling acp` one on standard streams, `sanderling serve` any number over WebSocket.

Both use the method handlers of `acp/agent`. With `sanderling serve`, sessions belong to the server: they continue without a client, several clients can watch one,
and each client gets every update exactly once.
"""
