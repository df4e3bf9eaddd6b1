"""Who wrote a line: the agent's hunk, with its prompt, model and cost, from the journals and logs of all sessions."""
