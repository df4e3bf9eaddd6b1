"""Code intelligence: tools that query the language servers of the user's editor."""
