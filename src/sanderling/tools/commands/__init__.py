"""Commands of the user and the model, their output, and the shell's state between them. Depends on the sandbox."""
