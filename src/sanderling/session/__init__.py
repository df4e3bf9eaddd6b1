"""A session: its messages, its log on disk, and its cost. Imports the protocol's messages, but no provider, tool or frontend."""
