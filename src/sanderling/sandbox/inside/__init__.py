"""Code that runs beyond the host: the supervisor outside of every namespace, the zygotes, and the workers that see what a command sees."""
