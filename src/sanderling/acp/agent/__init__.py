"""
`sanderling acp`: the agent for any editor that speaks the Agent Client Protocol.

Like Neovim, it is a frontend: it opens conversations, sends them actions and forwards their events. Standard output carries protocol
messages only.
"""
