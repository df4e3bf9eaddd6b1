"""Hooks: commands of the user, or of a trusted project, that run when something happens in a session, in the format of Claude Code."""
