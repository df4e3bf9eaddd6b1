"""Models on one's own machine, through Ollama's own API: https://docs.ollama.com/api."""
