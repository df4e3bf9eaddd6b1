"""Client side of the Agent Client Protocol: runs an external agent in a session, and shows and logs what it does."""
