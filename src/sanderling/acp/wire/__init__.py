"""The wire of the Agent Client Protocol: its messages, a connection for both directions, and a log of it."""
