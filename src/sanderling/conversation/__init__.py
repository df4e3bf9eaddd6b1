"""The conversation: turns between a model, its tools and the user. It knows no frontend."""
