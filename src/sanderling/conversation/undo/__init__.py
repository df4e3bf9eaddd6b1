"""Undo, redo, rewind and the review of changes."""
