"""Programs of the tools that run inside the sandbox, each in its own process."""
