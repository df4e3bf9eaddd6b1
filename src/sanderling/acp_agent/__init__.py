"""
`sanderling acp`: the agent in any editor that speaks the Agent Client Protocol.

A face as Neovim's is one: it opens conversations, gives them actions and tells their events. Standard output has messages of the
protocol and nothing else.
"""
