"""Permissions: allow or deny a tool use, or leave it to the user. Judges the effects that tools declare; runs nothing."""
