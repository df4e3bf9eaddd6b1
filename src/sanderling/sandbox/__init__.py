"""
The sandbox: the kernel, not our code, decides what a command of the model can reach.

The folders show in which process code runs: `inside/` beyond the host, `guard/` in the supervisor, `network/` in the host; `kernel/`
is what all of them ask of Linux.

Two processes stand between the host and a command. The **supervisor** (`inside/supervisor.py`) is a small Python process outside
every namespace: it guards the names that no mount can protect, and forks the zygotes. A **zygote** (`inside/zygote.py`) lives inside:
its root holds what the policy allows and nothing else, and each command is one fork of it, confined, then one `posix_spawn`.
`sandbox.py` is the host's side of both, and `keeper.py` opens it for a session. Who runs commands stands on a `Ground`
(`ground.py`): the confined one, the unconfined one, or what else can start a command and change a file. What the kernel can do, `inside/probe.py` has found out
before, in a process for that moment.

What the supervisor and the zygotes import is part of what a person waits for: the standard library and `landlock`, nothing
else. What a level does not enforce stands in `gaps.py`, for the screen, the tests and the documentation alike.
"""
