"""Editing: bytes in, bytes out. Pure: no file, no editor, no event loop is known here."""
