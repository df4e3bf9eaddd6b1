"""The commands of `sanderling` besides `-p`."""

COMMANDS = {
    "acp": ("", "serve an editor that speaks the Agent Client Protocol"),
    "acp-log": ("acp_log", "show the log of `sanderling acp --log-dir`"),
    "changes": ("undo", "list what the agent has changed in files, turn by turn"),
    "check": ("check", "print what a bug report needs, or try a provider"),
    "client": ("client", "talk with another agent that speaks the Agent Client Protocol"),
    "config": ("config", "show and check the settings"),
    "login": ("keys", "keep an API key in the system's keychain"),
    "logout": ("keys", "remove an API key from the system's keychain"),
    "mcp": ("mcp", "list, check and log in at tool servers"),
    "redo": ("undo", "do again what was undone last"),
    "remote": ("remote", "talk with Sanderling on another machine, or in a container"),
    "sandbox": ("sandbox", "show what the sandbox can do here, or run a command in it"),
    "serve": ("", "serve clients that come and go, over WebSocket"),
    "sessions": ("sessions", "list the sessions of this project, newest first"),
    "undo": ("undo", "take back what the agent has changed in its last turn"),
}
"""Each by its name: the module here whose `add` makes its parser, and what it does. `acp` and `serve` have parsers of their own."""
