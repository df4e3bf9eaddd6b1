"""The journal of what the agent has done to files, with what stood there before. Knows the sandbox and nothing above it."""
