"""A session: what was said, its log on disk, what it cost. Knows the messages that travel, and no provider, tool or face."""
