"""Text editing: bytes in, bytes out. No files, editors or event loops."""
