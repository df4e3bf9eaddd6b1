"""The Agent Client Protocol's wire: its messages, a connection that carries them both ways, and a log of what was sent."""
