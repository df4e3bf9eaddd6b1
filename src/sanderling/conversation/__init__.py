"""The conversation: one turn after the other, between a model, its tools and whoever watches. Knows all but the faces."""
