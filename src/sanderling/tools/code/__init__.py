"""Code intelligence: tools that ask the language servers which the person runs in their editor, and what they answer in words."""
