"""Code that runs outside the host process: the supervisor, the zygotes, and the file workers, which see what a command sees."""
