"""The states of the screen that are pictured: each says what the model answers, how large the screen is, and what a person does."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acp_client.conftest import AGENT
from tests.batch.batches import git
from tests.conftest import wait_until
from tests.nvim.conftest import Agent
from tests.screens.grid import Grid
from tests.secret_server import make_certificate, secret_server

CODE = '''"""A calculator."""


def add(a: float, b: float) -> float:
    return a + b


def divide(a: float, b: float) -> float:
    return a / b


def mean(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total = add(total, value)
    return divide(total, len(values))
'''
THOUGHT = (
    "The file is short.\n`divide` does not look at its divisor,\nso `mean([])` fails in there."
)
ANSWER = """`mean` of an **empty list** divides by zero. There are *two* ways out:

| way | caller sees | lines |
| :-- | --- | --: |
| `ValueError` | the mistake | 2 |
| return `0.0` | nothing | 1 |

## A proposal

```python
def mean(values: list[float]) -> float:
    if not values:
        raise ValueError("mean of nothing")
    return sum(values) / len(values)
```

- [x] `calc.py:14` is the only caller of `divide`
- the [documentation](https://docs.python.org) says the same
"""
RICH = (
    """# 一つの見出し with a long heading that does not fit into one row of a narrow window

1. Read `src/sanderling/providers/anthropic/provider.py:1024`, where the request is made and its headers are set.
2. 日本語の文字は二つのセルを使います。だから幅を数えるのは簡単ではありません。
   - nested, with an emoji 🚀 and e\u0301 of two code points
     - and deeper, so that the text has to be wrapped below its own first word

> A quote of somebody who says more than fits into one row, and who goes on for a while.

| 名前 | description | cost |
| --- | --- | --: |
| 単語 | a cell that has more text than fits into a column of a narrow window | $0.01 |
| `x` | short | $12.50 |

```sh
find . -name '*.py' -not -path './.venv/*' -print0 | xargs -0 grep -n 'def mean' | sort -u | head -n 20
```
"""
    "\n" + "".join(f"{n}. {word}\n" for n, word in enumerate(("one", "two", "three"), 1))
)
FIX = [
    {"old": "    total = 0.0\n", "new": "    if not values:\n        raise ValueError\n"},
    {
        "old": "    for value in values:\n        total = add(total, value)\n",
        "new": "    total = sum(values)\n",
    },
]
CHOICE = [
    {
        "question": "What should mean([]) do?",
        "choices": [
            {"label": "Raise ValueError", "description": "the caller sees the mistake"},
            {"label": "Return 0.0", "description": "callers need no change"},
        ],
    }
]
TODO = [
    {"content": "read calc.py", "status": "completed"},
    {"content": "refuse an empty list", "status": "in_progress"},
    {"content": "run the tests", "status": "pending"},
]
LATER = {"delay_ms": 60000}
DEBUGGER = """
local dap, python = require('dap'), ...
dap.adapters.python = { type = 'executable', command = python, args = { '-m', 'debugpy.adapter' } }
require('dap.breakpoints').set({}, vim.fn.bufnr('calc.py'), 16)
dap.run({
  type = 'python', request = 'launch', name = 'main', program = vim.fn.getcwd() .. '/main.py',
  python = python, console = 'internalConsole',
})
"""


def use(name: str, use_id: str = "t1", **input_: Any) -> dict[str, Any]:
    return {"tool_use": {"id": use_id, "name": name, "input": input_}}


class Pictured(Agent):
    """A Neovim of which each cell is known, also while it answers no questions about itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.grid = Grid()
        super().__init__(*args, on_notification=self.grid.on_notification, **options)

    def wait_for_drawn(self, text: str) -> None:
        def is_drawn() -> bool:
            self.rpc.pump(0.05)
            return text in self.grid.text()

        wait_until(is_drawn, text)


@dataclass(frozen=True)
class State:
    """One picture; `act` leaves the screen as it is to be seen."""

    name: str
    title: str
    act: Callable[[Pictured], object]
    replies: list[dict[str, Any]] = field(default_factory=list)
    columns: int = 110
    lines: int = 34
    setup: dict[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)  # of the project, in addition to calc.py
    plugin: str = ""  # a directory in $PLUGINS: scripts/fetch_plugins.sh

    @property
    def plugin_path(self) -> Path | None:
        """Where the plugin is, if the state needs one."""
        return Path(os.environ.get("PLUGINS", ""), self.plugin).absolute() if self.plugin else None

    @property
    def is_possible(self) -> bool:
        return self.plugin_path is None or self.plugin_path.is_dir()


def says(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": list(steps)}]


def ask(child: Pictured, text: str, *wanted: str) -> None:
    """Type a prompt into the chat and send it; wait until `wanted` is on the screen."""
    child.command("AgentChat")
    child.feed(f"i{text}<C-s><Esc>")
    child.wait_for_screen(*wanted)


def idle(child: Pictured) -> None:
    child.wait_for_turns()


def answered(child: Pictured) -> None:
    ask(child, "Why does mean([]) fail?")
    idle(child)


def tools(child: Pictured) -> None:
    ask(child, "Read it, then count its lines.", "twice")
    idle(child)
    child.feed("<C-w>k[t[tzojjj")


def question(child: Pictured) -> None:
    ask(child, "Run the tests.")
    child.wait_for_question()


def question_entered(child: Pictured) -> None:
    ask(child, "Run the tests.")
    child.enter_question()


def question_of_model(child: Pictured) -> None:
    ask(child, "Handle an empty list.")
    child.wait_for_question()
    child.feed("<Esc>")
    child.command("Agent question")


def reviewed(child: Pictured) -> None:
    child.command("AgentChat")
    child.feed("iRefuse an empty list.<C-s><Esc>")
    child.wait_for_question()
    child.feed("<C-w>h")
    child.feed("]h")


def asked(child: Pictured) -> None:
    child.feed(":8,9AgentAsk what if b is 0?<CR>")
    child.wait_for_screen("ZeroDivisionError", "closes")


def edited(child: Pictured) -> None:
    child.feed(":12,16AgentEdit use sum()<CR>")
    wait_until(lambda: child.events("AgentEditReady"))


def questions(child: Pictured) -> None:
    ask(child, "Clean up and test.")
    child.wait_for_question(2)


def plan(child: Pictured) -> None:
    child.command("AgentMode plan")
    ask(child, "Plan it.")
    child.wait_for_question()


def in_auto_mode(child: Pictured, text: str) -> None:
    child.command("AgentMode auto")
    ask(child, text)


def children(child: Pictured) -> None:
    ask(child, "Refuse empty lists, with a test.", "Child session")


def network(child: Pictured) -> None:
    in_auto_mode(child, "Look it up.")
    child.wait_for_question()


def mentions(child: Pictured) -> None:
    child.command("AgentChat")
    child.feed("iCompare @calc.py:4-9 with @nothing.py, please")
    child.wait_for_drawn("✗")


def slash_menu(child: Pictured) -> None:
    child.command("AgentChat")
    child.feed("i/")
    wait_until(lambda: child.lua("return vim.fn.pumvisible()") == 1, "the menu")


def queued(child: Pictured) -> None:
    ask(child, "Why does mean([]) fail?", "divides")
    child.feed("iAnd divide?<C-s>Then write a test for both of them.<C-s><Esc>")
    child.wait_for_screen("And divide?", "Then write")


def retrying(child: Pictured) -> None:
    ask(child, "Why does mean([]) fail?", "divides")
    child.lua(
        "require('sanderling.host').receive({ session_id = ..., seq = 1, events = { select(2, ...) } })",
        child.session_id(),
        OVERLOADED,
    )
    child.wait_for_screen("Retry 3/10")


def failed(child: Pictured) -> None:
    ask(child, "Why does mean([]) fail?", "x-api-key")
    idle(child)


def page(command: str, *wanted: str) -> Callable[[Pictured], None]:
    """Return what opens a page after an answer."""

    def act(child: Pictured) -> None:
        answered(child)
        child.command(command)
        child.wait_for_screen(*wanted)

    return act


def rewind(child: Pictured) -> None:
    in_auto_mode(child, "Refuse an empty list.")
    idle(child)
    child.command("Agent rewind 1")
    child.wait_for_screen("Conversation:")


def undone(child: Pictured) -> None:
    in_auto_mode(child, "Refuse an empty list.")
    idle(child)
    child.command("AgentUndo")
    child.wait_for_screen("Reverted")


def keys_page(child: Pictured) -> None:
    child.command("AgentChat")
    child.feed("<C-w>k<Esc>g?")
    child.wait_for_screen("the fenced block")


def trust(child: Pictured) -> None:
    child.command("AgentChat")
    child.command("Agent trust")
    child.wait_for_screen("trust all")


def servers(child: Pictured) -> None:
    child.command("AgentChat")
    child.command("Agent mcp")
    child.wait_for_screen("Tool servers", "failed")


def sessions(child: Pictured) -> None:
    for count, text in enumerate(("Why does mean([]) fail?", "Write a test for divide"), 1):
        child.command("AgentNew" if count > 1 else "AgentChat")
        child.submit(text)
        child.wait_for_turns(count)
    child.command("AgentNew")
    child.feed(":AgentSessions<CR>")
    child.wait_for_drawn("Write a test for divide · ")


def rules(child: Pictured) -> None:
    question(child)
    child.enter_question()
    child.feed("s")
    child.wait_for_turns()
    child.command("AgentRules")
    child.wait_for_screen("setup()", "session")


def places(child: Pictured) -> None:
    answered(child)
    child.feed("<Esc><C-w>k\\\\l")
    child.wait_for_screen("calc.py|13")


def each_place(child: Pictured) -> None:
    child.command("edit calc.py")
    child.feed(
        ":call setqflist([{'bufnr': bufnr(), 'lnum': 4}, {'bufnr': bufnr(), 'lnum': 8}])<CR>"
    )
    child.feed(":AgentEach take decimals<CR>")
    child.wait_for_screen("2 rewrites in 1 file")
    child.feed("1<CR>")
    child.wait_for_screen("2 rewrites to review")
    child.feed(":copen<CR>")
    child.wait_for_screen("take decimals")


def commented(child: Pictured) -> None:
    child.command("edit calc.py")
    child.command(
        "8,9AgentComment 割る数が 0 のとき: should the caller of divide() see an error, or infinity?"
    )
    child.command("13AgentComment Why not sum()?")
    child.wait_for_screen("Why not sum()?")


def walked(child: Pictured) -> None:
    in_auto_mode(child, "Refuse an empty list.")
    idle(child)
    child.command("AgentDiff walk")
    child.wait_for_screen("1/2")


def blamed(child: Pictured) -> None:
    in_auto_mode(child, "Refuse an empty list.")
    idle(child)
    child.feed("<C-w>h")
    child.command("edit calc.py")
    child.command("AgentBlame")
    labels = "return vim.api.nvim_get_namespaces().sanderling_blame"
    wait_until(
        lambda: child.lua(
            f"return #vim.api.nvim_buf_get_extmarks(0, {child.lua(labels) or 0}, 0, -1, {{}})"
        )
    )


def blamed_line(child: Pictured) -> None:
    blamed(child)
    child.feed("13G")
    child.command("AgentBlame!")
    child.wait_for_screen("opens the session")


def pushed(child: Pictured) -> None:
    """A real push to a server here, which BASH_ENV lets the command reach by the proxy."""
    git(child.home, "init", "-q", "--bare", "me/calc.git")
    git(child.project, "init", "-q", "-b", "main")
    git(child.project, "add", ".")
    git(child.project, "commit", "-q", "-m", "A calculator")
    (child.project / ".git" / "env").write_text("export no_proxy=\n")
    key, certificate = make_certificate(child.home)
    variables = {
        "TOKEN_OF_MINE": "ghp_0123456789abcdef",
        "SSL_CERT_FILE": str(certificate),
        "BASH_ENV": str(child.project / ".git" / "env"),
    }
    child.lua("for name, value in pairs(...) do vim.env[name] = value end", variables)
    with secret_server(child.home, variables["TOKEN_OF_MINE"], key, certificate) as server:
        git(child.project, "remote", "add", "origin", f"https://{server.host}/me/calc.git")
        mine = {"hosts": [server.host], "source": "env", "variable": "TOKEN_OF_MINE"}
        sandbox = {
            "hosts": [server.host, f"127.0.0.1:{server.server_port}"],
            "env": ["BASH_ENV"],
            "credentials": {"mine": mine},
        }
        script = {"provider": "scripted", "script": str(child.home / "script.json")}
        child.setup(**script, network="proxy", sandbox=sandbox)
        in_auto_mode(child, "Push it.")
        idle(child)


def terminal(child: Pictured) -> None:
    in_auto_mode(child, "Log in.")
    idle(child)
    child.command("Agent terminal")
    child.wait_for_screen("Password:", "has the terminal")


def repeated(child: Pictured) -> None:
    in_auto_mode(child, "Refuse an empty list.")
    idle(child)
    child.command("AgentAgain")
    child.wait_for_screen("compares both")
    child.command("AgentAgain!")
    child.wait_for_screen("calc.py")


def remembered(child: Pictured) -> None:
    child.command("edit AGENTS.md")
    ask(child, "Run the tests.")
    child.wait_for_question()
    child.command("AgentDeny use pytest, never unittest")
    idle(child)
    child.command("AgentRemember")
    child.wait_for_question(2)
    child.feed("<C-w>h]h")


def debugged(child: Pictured) -> None:
    child.lua(DEBUGGER, sys.executable)
    stopped = "return (require('dap').session() or {}).current_frame ~= nil"
    wait_until(lambda: not child.is_blocked() and child.lua(stopped), "the program has stopped")
    ask(child, "Why does it fail here?")
    idle(child)
    child.feed("<C-w>k[tzo[tzo")


def todo(child: Pictured) -> None:
    child.feed("9GA  # raise ValueError if b is 0 AI!<Esc>:write<CR>")
    child.command("AgentTodo!")
    child.wait_for_question()
    child.feed("]h")


def guest(child: Pictured) -> None:
    child.command("AgentChat mine")
    child.wait_for_screen("Ask ")
    child.feed("iRefuse an empty list.<C-s><Esc>")
    child.wait_for_screen("Done.")


def guest_agent(child: Pictured) -> None:
    diff = {"type": "diff", "path": "$CWD/calc.py", "oldText": "a / b\n", "newText": "a // b\n"}
    steps = [
        {"think": "What is asked?"},
        {"say": "I change `divide`.\n"},
        {
            "update": {
                "sessionUpdate": "tool_call",
                "toolCallId": "1",
                "title": "Edit calc.py",
                "kind": "edit",
                "status": "completed",
                "content": [diff],
            }
        },
        {"say": "Done."},
    ]
    script = child.home / "guest.json"
    script.write_text(json.dumps({"prompts": {"Refuse an empty list.": steps}}))
    table = {
        "command": [sys.executable, str(AGENT), str(script)],
        "sandbox": False,
        "title": "Mine",
    }
    child.setup(agents={"mine": table})
    guest(child)


ANSWERED = says({"thinking": THOUGHT}, {"text": ANSWER})
EDIT = says(use("edit", path="calc.py", edits=FIX)) + says({"text": "An empty list is refused."})
TOOLS = says(
    {"text": "I read it first."},
    use("read", path="calc.py"),
    use("todo", "t2", items=TODO),
    use("bash", "t3", command="wc -l calc.py; grep -n def calc.py"),
) + says({"text": "It has 16 lines. `divide` is used once, `add` twice, if one counts twice."})
QUESTIONS = says(
    use("bash", command="rm -r build"),
    use("bash", "t2", command="pytest -q --maxfail=1 tests/test_calc.py tests/test_format.py"),
)
CHILDREN = [
    *says(
        {"text": "I have both done at the same time."},
        use("delegate", role="explore", task="Find each use of mean"),
        use("delegate", "t2", role="edit", task="Write a test for mean"),
    ),
    {
        "when": "Find each use of mean",
        "step": [use("grep", "t3", pattern="mean", path=".")],
    },
    {"after": "t3", "step": [LATER, {"text": "Done."}]},
    {
        "when": "Write a test for mean",
        "step": [use("write", "t4", path="test_mean.py", content="def test_mean(): ...\n")],
    },
]
MAY_DELEGATE = {"permissions": [{"action": "allow", "tool": "delegate"}]}
NETWORK = says(use("web_fetch", url="https://docs.python.org/3/library/statistics.html"))
PLAN = says({"text": ANSWER}, use("ask_user", plan="Refuse empty lists in mean"))
REWRITTEN = says(
    {
        "text": "def mean(values: list[float]) -> float:\n    return divide(sum(values), len(values))\n"
    }
)
PLACES = says(
    {
        "text": "It fails in two places:\n\n- `calc.py:6` divides\n- `calc.py:13-16` passes a length of 0\n"
    }
)
EACH = [
    *says({"text": "def add(a: Decimal, b: Decimal) -> Decimal:\n"}),
    *says({"text": "def divide(a: Decimal, b: Decimal) -> Decimal:\n"}),
]
WALK = says(
    {"text": "The caller has to see both mistakes, so neither is hidden by a number."},
    use(
        "edit",
        path="calc.py",
        edits=[FIX[0], {"old": "    return a / b\n", "new": "    return float(a) / b\n"}],
    ),
) + says({"text": "Both are errors now."})
REPEATED = says(use("edit", "t2", path="calc.py", edits=FIX[1:])) + says({"text": "Shorter."})
PUSH = says(use("bash", command="git push -q origin main")) + says({"text": "It is pushed."})
PASSWORD = says(
    use("bash", command='printf "Password: "; read -rs word', pty=True),
    {"text": "It asks for your password."},
) + says({"text": "Take the terminal, please."})
REMEMBERED = (
    says(use("bash", command="python -m unittest"))
    + says({"text": "With pytest, then."})
    + says({"text": "project: Run the tests with pytest, never with unittest."})
)
DEBUGGED = says(
    {"text": "I look at the values."},
    use("debug", op="stack"),
    use("debug", "t2", op="evaluate", expression="values, len(values)"),
) + says({"text": "`values` is empty, so `divide` gets 0 as `b`."})
TODO_DONE = says(
    use(
        "edit",
        path="calc.py",
        edits=[
            {
                "old": "    return a / b  # raise ValueError if b is 0 AI!\n",
                "new": '    if b == 0:\n        raise ValueError("b is 0")\n    return a / b\n',
            }
        ],
    )
)
OVERLOADED = {
    "type": "retry_scheduled",
    "attempt": 3,
    "attempts": 10,
    "delay_s": 7.0,
    "reason": "The API is overloaded (529).",
}
REFUSED = {
    "error": {
        "kind": "auth",
        "message": "The API rejects the key: invalid x-api-key",
        "remedy": "Check $ANTHROPIC_API_KEY, or store another key with :Agent login.",
    }
}
RULES = {"AGENTS.md": "# Rules\n\nRun `pytest -q` after each change.\nKeep functions short.\n"}
SERVERS = {"mcp": {"servers": {"notes": {"command": ["no-such-server", "--stdio"]}}}}
SMALL = {"columns": 80, "lines": 24}
TINY = {"columns": 60, "lines": 20}
LIGHT = ("set background=light",)
ASCII = {"icons": "ascii"}

STATES = [
    State("empty", "A chat that has just been opened", lambda child: child.command("AgentChat")),
    State(
        "streaming",
        "An answer that streams, with what the model thought",
        lambda child: ask(child, "Why does mean([]) fail?", " 2 s"),
        says({"thinking": THOUGHT}, {"text": ANSWER[:70]}, LATER),
    ),
    State("answer", "An answer with a table and code", answered, ANSWERED),
    State("answer-light", "The same on light ground", answered, ANSWERED, commands=LIGHT),
    State("answer-ascii", "The same with signs in ASCII", answered, ANSWERED, setup=ASCII),
    State("answer-80x24", "The same in 80 by 24", answered, ANSWERED, **SMALL),
    State("answer-60x20", "The same in 60 by 20", answered, ANSWERED, **TINY),
    State("tools", "Tool calls, one of them open, and a todo list", tools, TOOLS),
    State(
        "question",
        "A question about a command",
        question,
        says(use("bash", command="rm -r build && pytest -q")),
    ),
    State(
        "question-80x24",
        "The same in 80 by 24",
        question,
        says(use("bash", command="rm -r build && pytest -q")),
        **SMALL,
    ),
    State(
        "question-keys",
        "The same question, entered, with its keys",
        question_entered,
        says(use("bash", command="rm -r build && pytest -q")),
        **SMALL,
    ),
    State("question-60x20", "A change in question in 60 by 20", question, EDIT, **TINY),
    State(
        "question-model",
        "A question that the model asks",
        question_of_model,
        says(use("ask_user", questions=CHOICE)),
        **SMALL,
    ),
    State(
        "question-edit",
        "A change that is asked about in a float",
        question,
        EDIT,
        setup={"review": "float"},
    ),
    State("review", "A change that is reviewed in its file before it is made", reviewed, EDIT),
    State("review-light", "The same on light ground", reviewed, EDIT, commands=LIGHT),
    State(
        "ask-float",
        "An answer in a float beside the code",
        asked,
        says({"text": "Python raises `ZeroDivisionError`, and **no** caller catches it."}),
        setup={"answer": "float"},
    ),
    State(
        "ask-lines",
        "An answer in lines below the code",
        asked,
        says({"text": "Python raises `ZeroDivisionError`, and **no** caller catches it."}),
        setup={"answer": "lines"},
    ),
    State(
        "edit",
        "Lines that are rewritten, shown before anything is changed",
        edited,
        REWRITTEN,
    ),
    State("edit-light", "The same on light ground", edited, REWRITTEN, commands=LIGHT),
    State("places", "The places that an answer names, in the quickfix list", places, PLACES),
    State("each", "Each place of the quickfix list is rewritten", each_place, EACH),
    State("comments", "Comments on lines, for the next review round", commented),
    State("walk", "The first step of a walk through the changes", walked, WALK),
    State("blame", "Which turn wrote the lines", blamed, EDIT),
    State("blame-line", "The turn that wrote a line", blamed_line, EDIT),
    State("credential", "Each use of a credential", pushed, PUSH),
    State("terminal", "A terminal that the model and the user share", terminal, PASSWORD),
    State("again", "The results of two models", repeated, EDIT + REPEATED),
    State("memory", "A line that is to be remembered", remembered, REMEMBERED, files=RULES),
    State("todo", "A comment for the model, and the change that replaces it", todo, TODO_DONE),
    State(
        "debug",
        "The model looks at a program that the user debugs",
        debugged,
        DEBUGGED,
        setup={"permissions": [{"action": "allow", "tool": "debug"}]},
        files={"main.py": "from calc import mean\n\nprint(mean([]))\n"},
        plugin="nvim-dap",
    ),
    State("mentions", "A prompt with mentions", mentions),
    State("slash", "The menu of slash commands", slash_menu),
    State(
        "rich", "Headings, lists, quotes and symbols of two cells", answered, says({"text": RICH})
    ),
    State("queue", "Prompts that wait", queued, says({"text": ANSWER[:70]}, LATER)),
    State("questions", "Two questions at once", questions, QUESTIONS),
    State("children", "Child sessions, one of which asks", children, CHILDREN, setup=MAY_DELEGATE),
    State("network", "A question about the network", network, NETWORK),
    State("plan", "A plan that is asked about", plan, PLAN),
    State("retry", "A request that is made again", retrying, says({"text": ANSWER[:70]}, LATER)),
    State("error", "A turn that failed", failed, says(REFUSED)),
    State("undo", "What was taken back", undone, EDIT),
    State("rewind", "The page before a rewind", rewind, EDIT),
    State("usage", "What a session uses and costs", page("Agent usage", "Usage"), ANSWERED),
    State("settings", "The settings in effect", page("Agent settings", "Settings"), ANSWERED),
    State("keys", "The page of keys", keys_page),
    State("trust", "The page of what a project would like to tell the model", trust, files=RULES),
    State("mcp", "The tool servers", servers, setup=SERVERS),
    State("sessions", "The sessions of the project", sessions, ANSWERED + ANSWERED),
    State(
        "rules",
        "What is allowed and denied, and by what",
        rules,
        says(use("bash", command="pytest -q")) + says({"text": "They pass."}),
        **SMALL,
        setup={
            "permissions": [
                {"action": "deny", "tool": "*", "path": "*.pem"},
                {"action": "ask", "tool": "bash", "command": "git push"},
                {"action": "allow", "tool": "edit", "path": "tests/**"},
            ]
        },
    ),
    State("agent", "Another agent in the chat", guest_agent),
]
