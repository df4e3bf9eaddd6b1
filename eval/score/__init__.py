"""The score: tasks with hidden checks, played by scripted models, for Sanderling and for other agents. See `doc/score.md`."""
