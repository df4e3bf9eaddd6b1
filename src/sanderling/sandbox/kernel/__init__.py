"""Linux interfaces of the sandbox: Landlock, seccomp, namespaces and mounts. Independent of the sandbox's processes."""
