"""
Tasks in Harbor's format (task.toml 1.4), on this machine instead of in a container.

An image is not built. A Dockerfile that only starts from a plain system or language, copies files and sets variables and directories is
followed (`dockerfile.py`), with the programs of this machine; so is the installation of system packages whose programs are here. A task
that needs more is `unsupported`, with the reason, because its failure would say nothing about the agent.
"""
