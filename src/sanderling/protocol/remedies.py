"""
Remedies: what the user can do about an error, in the words of the frontend: a command in Neovim is a flag in a shell.

Code that writes an error message takes its remedy from here. A frontend chooses once, for all that runs in its context.
"""

from contextvars import ContextVar

import msgspec


class Remedies(msgspec.Struct, frozen=True):
    model: str
    """How to choose another model."""
    use_model: str
    """Sentence: how to use the model `{name}`."""
    shorten: str
    """Sentence: how to shorten a conversation that is too long."""
    begin_anew: str
    """Part of a sentence: how to start another conversation."""
    go_on: str
    """Sentence: how to continue after an answer was cut off."""
    restart: str
    """Part of a sentence: how a change of the environment takes effect."""
    environment: str
    """Where to set an environment variable."""
    install: str
    """How to build the Python environment."""
    login: str
    """How to store an API key; followed by the provider's name if that is not Claude."""
    network: str
    """How to open the network; followed by "on" or "proxy"."""
    server_login: str
    """How to log in to the tool server `{name}`."""
    key: str
    """Sentences: how to replace the demo model by a real one."""
    keyless: str
    """How to do without an API key."""


NEOVIM = Remedies(
    model="/model",
    use_model="Type /model {name}.",
    shorten="/compact shortens it, /clear starts a new one.",
    begin_anew="/clear starts a new conversation",
    go_on="Send a new prompt to continue.",
    restart="restart Neovim",
    environment="the environment that starts Neovim",
    install=":AgentInstall, or make install",
    login=":Agent login",
    network=":AgentNet",
    server_login="`L` in :Agent mcp opens its page",
    key="Type /login, or set ANTHROPIC_API_KEY in the environment that starts Neovim, to talk to Claude.\n"
    "With a subscription: :AgentChat claude. Other models: :help sanderling-models.",
    keyless=":AgentChat claude, codex or gemini uses a subscription instead",
)
SHELL = Remedies(
    model="--model NAME",
    use_model="Add --model {name}.",
    shorten="Leave out --continue and --resume to start a new one.",
    begin_anew="leave out --continue and --resume to start a new conversation",
    go_on="Send another prompt with --continue to continue.",
    restart="run it again",
    environment="the environment",
    install="make install, or :AgentInstall in Neovim",
    login="sanderling login",
    network="--net",
    server_login="`sanderling mcp login {name}`",
    key="Run `sanderling login` in a terminal, or set ANTHROPIC_API_KEY in the environment, to talk to Claude.",
    keyless="`sanderling -p` needs a key, or a model on this machine: --model ollama:NAME",
)
CLIENT = msgspec.structs.replace(
    SHELL,
    model="the model in the editor's menu",
    use_model="Choose {name} in the editor's menu.",
    shorten="/compact shortens it; a new session starts empty.",
    begin_anew="a new session starts a new conversation",
    go_on="Send another prompt to continue.",
    restart="start the agent again",
    environment="the environment of the agent, in the editor's settings",
    network="the network in the editor's menu, set to",
)
"""For editors that speak the Agent Client Protocol."""
UNKEPT = msgspec.structs.replace(SHELL, go_on="Run it again.")
"""For a session without a log, in a shell."""

_chosen: ContextVar[Remedies] = ContextVar("remedies", default=NEOVIM)


def use(remedies: Remedies) -> None:
    _chosen.set(remedies)


def remedies() -> Remedies:
    return _chosen.get()
