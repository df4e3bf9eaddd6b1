"""
`sanderling serve`: the agent for clients that come and go, over WebSocket.

A face beside `acp_agent`, whose methods it answers with. Sessions belong to the server: one goes on while nobody is attached, several
clients may watch it, and each is told exactly once what it has missed.
"""
