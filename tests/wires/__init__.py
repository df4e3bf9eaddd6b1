"""Answers of the APIs as they leave them, byte by byte: a module for each format but Anthropic's, which stands in `loopback.py`."""
