"""Local models, through Ollama's own API: https://docs.ollama.com/api."""
