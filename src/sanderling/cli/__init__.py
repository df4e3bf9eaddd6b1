"""The commands of `sanderling`, in addition to `-p`."""

COMMANDS = {
    "acp": ("", "serve an editor over the Agent Client Protocol"),
    "acp-log": ("acp_log", "show the log of `sanderling acp --log-dir`"),
    "batch": ("batch", "run many tasks, each in a fresh copy of its project"),
    "blame": ("blame", "show which prompt, model and session wrote the lines of a file"),
    "changes": ("undo", "list the agent's changes to files, turn by turn"),
    "check": ("check", "check the installation and the settings here, or test a provider"),
    "client": ("client", "talk to another agent over the Agent Client Protocol"),
    "config": ("config", "show and check the settings"),
    "credentials": ("credentials", "add, list and test secrets that commands can use but not read"),
    "login": ("keys", "store an API key in the system's keychain"),
    "logout": ("keys", "remove an API key from the system's keychain"),
    "mcp": ("mcp", "add, list, check and remove tool servers, or log in to one"),
    "plugin": ("plugin", "add, list, check and remove plugins with skills and tool servers"),
    "redo": ("undo", "redo the last undo"),
    "remote": ("client", "talk to Sanderling on another machine, or in a container"),
    "rules": ("rules", "list what is allowed and denied here, or remove a rule"),
    "sandbox": ("sandbox", "show what the sandbox enforces here, or run a command in it"),
    "serve": ("", "serve sessions over WebSocket"),
    "sessions": ("sessions", "list the sessions of this project, newest first, or export one"),
    "skills": ("skills", "list the skills of this project and your own, or check them"),
    "trace": ("trace", "print which lines of a commit the agent wrote, or keep it as a git note"),
    "trust": ("trust", "show a project's instructions and settings, and trust them"),
    "undo": ("undo", "undo the changes of the agent's last turn"),
    "worktrees": ("worktrees", "list, show, apply and remove the worktrees of sessions"),
}
"""By name: the module here whose `add` creates the parser, and a summary. `acp` and `serve` have their own parsers."""
