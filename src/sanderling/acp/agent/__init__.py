"""
Sanderling as the agent of an editor that speaks the Agent Client Protocol.

Like Neovim's part, it is a frontend: it opens conversations, sends them actions and forwards their events. `serve` passes in what opens a
conversation, so that this package does not import it.
"""
