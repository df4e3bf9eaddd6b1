"""The kernel as the sandbox asks it: Landlock, seccomp, namespaces, and what is mounted where. Knows no process of ours."""
