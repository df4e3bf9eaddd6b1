"""The Agent Client Protocol: its messages, Sanderling as an agent, Sanderling as a client, and ways to other machines."""
