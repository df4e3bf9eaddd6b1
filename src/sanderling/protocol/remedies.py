"""
Remedies: what a person can do, in the words of the face that tells it; what is a command in Neovim is a flag in a shell.

Whoever words a message takes them from here; a face chooses once, for all that runs in its context.
"""

from contextvars import ContextVar

import msgspec


class Remedies(msgspec.Struct, frozen=True):
    model: str
    """The way to choose another model."""
    shorten: str
    """Sentence, of a conversation that is too long."""
    begin_anew: str
    """Part of a sentence: what begins another conversation."""
    go_on: str
    """Sentence, of an answer that was cut off."""
    restart: str
    """Part of a sentence: how a change of the environment takes effect."""
    environment: str
    """The place where a variable is set."""
    install: str
    """The way to build the environment of Python."""
    login: str
    """The way to store an API key, with a provider's name behind it if it is not Claude's."""
    network: str
    """The way to open the network, with "on" or "proxy" behind it."""
    server_login: str
    """The way to log in at the tool server `{name}`."""
    key: str
    """Sentences, of a model that stands in for one with a key."""


NEOVIM = Remedies(
    model="/model",
    shorten="/compact makes it shorter, /clear starts a new one.",
    begin_anew="/clear starts a new conversation",
    go_on="A new prompt goes on from there.",
    restart="restart Neovim",
    environment="the environment that starts Neovim",
    install=":AgentInstall, or make install",
    login=":AgentLogin",
    network=":AgentNet",
    server_login="`L` in :AgentMcp opens its page",
    key="Type /login, or set ANTHROPIC_API_KEY in the environment that starts Neovim, to talk to Claude.\n"
    ":help sanderling-models tells how to talk to others.",
)
SHELL = Remedies(
    model="--model NAME",
    shorten="Without --continue and --resume a new one begins.",
    begin_anew="without --continue and --resume a new conversation begins",
    go_on="With --continue another prompt goes on from there.",
    restart="run it again",
    environment="the environment",
    install="make install, or :AgentInstall in Neovim",
    login="sanderling login",
    network="--net",
    server_login="`sanderling mcp login {name}`",
    key="Run `sanderling login` in a terminal, or set ANTHROPIC_API_KEY in the environment, to talk to Claude.",
)
CLIENT = msgspec.structs.replace(
    SHELL,
    model="the model in the editor's menu",
    shorten="/compact makes it shorter; a new session begins with none of it.",
    begin_anew="in a new session a new conversation begins",
    go_on="Another prompt goes on from there.",
    restart="start the agent again",
    environment="the environment of the agent, in the editor's settings",
    network="the network in the editor's menu, set to",
)
"""In an editor that speaks the Agent Client Protocol."""
UNKEPT = msgspec.structs.replace(SHELL, go_on="Run it again.")
"""In a shell, of a session without a log."""

_chosen: ContextVar[Remedies] = ContextVar("remedies", default=NEOVIM)


def use(remedies: Remedies) -> None:
    _chosen.set(remedies)


def remedies() -> Remedies:
    return _chosen.get()
