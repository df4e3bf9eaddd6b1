"""Inline edits: the model rewrites some lines, outside all conversations."""
