"""OpenAI's Responses API, and the servers that speak it: the bytes of requests, the meaning of events."""
