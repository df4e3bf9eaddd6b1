"""Programs of the tools that run inside of the sandbox, each in a process of its own."""
