"""The client of the Agent Client Protocol: another agent, a guest, answers in a session, and what it says and does is shown and kept as ours."""
