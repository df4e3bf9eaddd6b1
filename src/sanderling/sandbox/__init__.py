"""
The sandbox: the kernel, not Sanderling's code, decides what a command of the model can reach.

The subpackages show where code runs: `inside/` in the sandbox's own processes, `guard/` in the supervisor, `network/` in the host.
`kernel/` wraps the Linux interfaces that they use.

Two processes are between the host and a command. The **supervisor** (`inside/supervisor.py`) is a small Python process outside all
namespaces. It guards names that no mount can protect, and forks the zygotes. A **zygote** (`inside/zygote.py`) lives inside: its root
contains what the policy allows and nothing else. Each command is one fork of it, which confines itself and calls `posix_spawn`.
`sandbox.py` is the host's side of both, and `manager.py` opens a sandbox for a session. `environment.py` defines the common interface of
the confined and the unconfined way to run commands and change files. `inside/probe.py` finds out what the kernel supports, in a
short-lived process.

`seatbelt/` compiles a policy for macOS, and `selftest/` finds out by attempts whether a sandbox confines.

The user waits for the imports of supervisor and zygotes, so they import only the standard library and `landlock`. `gaps.py` lists what
each level does not enforce, for the screen, the tests and the documentation.
"""
