"""The journal of the agent's file changes, with former contents. Depends on the sandbox, not on higher packages."""
