"""Claude: requests, responses and errors. The only package that knows Anthropic's SDK."""
