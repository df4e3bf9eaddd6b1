"""OpenAI's Responses API, and the servers that speak it: a request's bytes, the meaning of an answer's events."""
