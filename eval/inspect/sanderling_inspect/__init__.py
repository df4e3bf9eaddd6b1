"""
Sanderling in Inspect: the sandbox `sanderling`, which the kernel enforces without Docker, and the agent `sanderling`.

Sanderling itself is a program next to this package: it can be installed in another environment, with another Python.
"""
