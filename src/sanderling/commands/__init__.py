"""Commands that run: the person's and the model's, their output and the shell between them. Knows the sandbox that runs them."""
