"""
The self-test: whether the sandbox of this machine really confines, and whether programs still work in it.

`scene.py` plants secrets, a repository, servers and a process. `trials.py` runs in a process of its own for each attempt: once without the
sandbox, where every escape must succeed, and once in it, where none may. An escape that fails in both proves nothing, so it counts as a
failure of the test. `running.py` compares both, and `seatbelt.py` keeps the result for the level `seatbelt`, which counts only after it.
"""
