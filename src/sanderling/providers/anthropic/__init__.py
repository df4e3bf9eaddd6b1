"""Claude: bytes out, events in, errors in words; the one room that knows Anthropic's SDK."""
