"""
Batch runs: tasks in; patches, rewards and results out.

```
tasks.py, harbor/     tasks as data: a file of JSON lines, `--each`, or directories in Harbor's format
run.py                the run: the jobs that are left, their limits, one line of `results.jsonl` for each
engine.py, ray/       an engine turns a job into a result; the local one starts a process for each, the other one uses a cluster
worker.py             that process: set up, agent, patch, check
jobs.py               the messages between an engine and a worker
copies.py, patches.py a fresh copy of the project, and its changes, both made with git (git.py)
agent.py, checks.py   the two processes that a worker starts: `sanderling -p`, and a command in the sandbox
results.py, trial.py  the files of a run: `results.jsonl`, and a directory for each trial (`job_result.py`: their sum)
report.py, plots.py, applying.py, statistics.py
                      the use of results: reports, comparisons, patches
```

**One process for each task.** A worker has its own copy, state directory (so its own rules, trust, sessions, sandbox, HOME and /tmp) and
cache directory, all in one *work directory* that is removed afterwards. So no task can affect the next, and a crash is the
result of one task. A worker reads its job from standard input and answers on standard output, so an engine only needs to start it: here, or on
another machine.

**Nothing stays behind.** The kernel ends a worker when its engine ends, however that ended, and the agent when its worker ends
(`parent.py`); sandboxes end with their agent. Work directories of a killed run are removed by the next one with the same results.

**A result counts when its line is complete.** It is one write at the end of the file, under the file's lock, and the trial directory is
complete before. So `--resume` needs only to read the lines: a job is done if a line has its task's id, its hash and its number.

**Git reads no configuration that the agent wrote.** The patch is made with a second git directory that no command of the task can reach, because
`git` in a directory with a hostile `.git` runs the programs named there.

**Harbor's absolute paths** (/app, /logs, /tests) are mounts in a namespace around the whole worker (`root.py`), and the session's sandbox
nests in it. We compared this with mounts in the sandbox's policy. Those would have to be known to everything that names files outside the
sandbox: the guard, the journal, the project's root. The namespace around the process takes 60 lines and 2 ms, and the agent needs not know of
it. It confines nothing, so nothing depends on it for safety.
"""
