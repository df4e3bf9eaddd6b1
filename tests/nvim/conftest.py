"""Two kinds of Neovim with a chat: `Screen`, whose host is the test, and `Agent`, in which all is real but for the model."""

import json
import os
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.conftest import ChildNvim, wait_until

from sanderling.session.codec import Codec
from sanderling.session.records import LoggedMessage

FACTS = ("[Where this session is:", "[Now:")  # how the notes about the surroundings begin

CATCH_ACTIONS = """
  local host = require('sanderling.host')
  _G.actions = {}
  host.open = function() end
  host.act = function(_, action) table.insert(_G.actions, action) end
  _G.answers = {}
  local request = host.request
  host.request = function(asked, on_answer)
    if not vim.list_contains({ 'list_models', 'list_roles', 'test_provider', 'show_usage', 'show_settings', 'show_trust', 'inspect_tool_use', 'list_tool_servers', 'show_tool_server', 'list_rules' }, asked.type) then
      return request(asked, on_answer)
    end
    _G.answers[asked.type] = on_answer
    asked.session_id = nil
    table.insert(_G.actions, asked)
  end
"""


def count_keys_after(child, seconds):
    """What is typed earlier, after a question has come or a page, is not meant for it."""
    child.lua("require('sanderling.ui.attention').GRACE_NS = ...", int(seconds * 1e9))


def contents(*directories: Path) -> dict[Path, bytes]:
    """Return what the files below `directories` contain. The temporary ones of a killed host may go meanwhile."""
    paths = (
        Path(folder, name)
        for directory in directories
        for folder, _, names in os.walk(directory)
        for name in names
    )
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.read_bytes()
    return found


def texts_told(message):
    """The texts of a message to or from the model, but for our notes about the surroundings."""
    texts = [block["text"] for block in message["content"] if block["type"] == "text"]
    return [text for text in texts if not text.startswith(FACTS)]


class Screen(ChildNvim):
    def send(self, *events):
        self.lua(
            """
            local id = vim.b[require('sanderling').transcript().buf].sanderling_session
            require('sanderling.host').receive({ session_id = id, seq = 1, events = ... })
            """,
            list(events),
        )

    def begin_to_send(self, session_id, *events):
        """Send events to a Neovim that cannot take them now; gives the request, for `rpc.answer`."""
        return self.rpc.send(
            "nvim_exec_lua",
            "local id, events = ... "
            "require('sanderling.host').receive({ session_id = id, seq = 1, events = events })",
            [session_id, list(events)],
        )

    def lose_host(self):
        """The host of the session that is shown ends."""
        self.lua(
            "require('sanderling.host.bus').publish(..., { { type = 'local_failed', message = 'It is gone.' } })",
            self.session_id(),
        )

    def answer(self, type_, **answer):
        self.lua("local type, answer = ... _G.answers[type](answer)", type_, answer)

    def actions(self, type_=None):
        actions = self.lua("return _G.actions") or []
        return [action for action in actions if type_ in (None, action["type"])]

    def highlight(self, text):
        """The groups that begin on the first transcript line that equals `text`, or lie over it."""
        return self.lua(
            """
            local wanted = ...
            local buf = require('sanderling').transcript().buf
            for row, line in ipairs(vim.api.nvim_buf_get_lines(buf, 0, -1, true)) do
              if line == wanted then
                local marks = vim.api.nvim_buf_get_extmarks(
                  buf, -1, { row - 1, 0 }, { row - 1, -1 }, { details = true, overlap = true })
                return vim.tbl_map(function(mark)
                  local ends_here = mark[4].end_row == row - 1 and mark[4].end_col == 0
                  return not ends_here and mark[4].hl_group or ''
                end, marks)
              end
            end
            """,
            text,
        )

    def in_a_turn(self, text="Thinking about it. "):
        self.send(
            {"type": "turn_started", "prompt": {"id": "1", "text": "go"}},
            {"type": "text_delta", "block_id": 1, "text": text},
        )

    def winbar(self):
        """The transcript's winbar as drawn, and the highlight groups of its words."""
        return self.lua("""
          local win = require('sanderling').transcript().win
          local bar = vim.api.nvim_win_call(win, function()
            return vim.api.nvim_eval_statusline(vim.wo[win].winbar, {
              winid = win, use_winbar = true, highlights = true, maxwidth = vim.api.nvim_win_get_width(win) })
          end)
          local words = {}
          for i, highlight in ipairs(bar.highlights) do
            local next_start = bar.highlights[i + 1] and bar.highlights[i + 1].start or #bar.str
            words[vim.trim(bar.str:sub(highlight.start + 1, next_start))] = highlight.groups and
              highlight.groups[#highlight.groups] or highlight.group
          end
          return { bar.str, words }
        """)


@pytest.fixture
def start_screen(tmp_path, project):
    children = []

    def start(**options):
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        child = Screen(home, project, {}, **options)
        children.append(child)
        child.record_events()
        child.lua(CATCH_ACTIONS)
        return child

    yield start
    for child in children:
        child.close()


@pytest.fixture
def start_chat(start_screen):
    def start(**options):
        child = start_screen(**options)
        child.command("AgentChat")
        return child

    return start


@pytest.fixture
def screen(start_chat):
    return start_chat()


@pytest.fixture
def start_claude(start_nvim, server):
    """Start a Neovim with a key, whose API is the loopback server."""
    environment = {"ANTHROPIC_API_KEY": "sk-secret", "ANTHROPIC_BASE_URL": server.url}
    return lambda **screen: start_nvim(environment, **screen)


def filetypes(child: ChildNvim) -> list[str]:
    """Of the windows of this tab page, top left first."""
    return child.lua("""
      return vim.tbl_map(function(win)
        return vim.bo[vim.api.nvim_win_get_buf(win)].filetype
      end, vim.api.nvim_tabpage_list_wins(0))
    """)


class Agent(ChildNvim):
    """A person's Neovim whose model replays a script: everything between the two is the real thing."""

    def ask(self, prompt="go"):
        """Ask from a file, as a person would, and stay there."""
        self.lua("require('sanderling').ask(...)", prompt)

    def ask_and_wait(self, prompt="go"):
        """Ask from a file, and wait until that is answered."""
        with self._one_more_turn():
            self.ask(prompt)

    def wait_for_question(self, count=1):
        """Until `count` questions were asked in all, and make keys count from here on; returns what is on the screen."""
        wait_until(
            lambda: len(self.events("AgentApprovalRequested")) >= count, f"{count} questions"
        )
        wait_until(self.float, "the question is on the screen")
        count_keys_after(self, 0)
        return self.screen_text()

    def enter_question(self):
        """Go into the float, whose keys answer, as soon as it is there."""
        self.wait_for_question()
        self.command("Agent question")
        assert self.float() == self.lua("return vim.api.nvim_get_current_win()")

    def answer_question(self, keys):
        """Go into the float, type `keys`, and wait for the turn's end."""
        self.enter_question()
        self.feed(keys)
        self.wait_for_turns()

    def float(self):
        """The question's window in this tab page."""
        return self.lua(
            """
            for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
              local config = vim.api.nvim_win_get_config(win)
              if config.relative ~= '' and config.zindex == 60 then
                return win
              end
            end
            """
        )

    def question_text(self):
        """What is in the question's float, as it is before its lines are wrapped."""
        return self.lua(
            """
            local buf = vim.api.nvim_win_get_buf(...)
            return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, true), '\\n')
            """,
            self.float(),
        )

    def records(self, type_):
        """What the newest session's log holds of this type so far."""
        lines = self.session_files()[-1].read_text().splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return [record for record in records if record["type"] == type_]

    def logged_messages(self):
        """The messages of the newest session's log so far."""
        read = map(Codec().decoded, self.session_files()[-1].read_bytes().splitlines())
        return [msgspec.to_builtins(r.message) for r in read if isinstance(r, LoggedMessage)]

    def results(self):
        """What the model was told about its tool uses, in order."""
        return [
            block["content"]
            for message in self.logged_messages()
            for block in message["content"]
            if block["type"] == "tool_result"
        ]


@pytest.fixture
def start_agent(tmp_path, project):
    """Start a Neovim whose model gives `replies` in order; options of the screen by name, of the plugin in `setup`."""
    children = []

    def start(*replies, setup=None, **screen):
        script = tmp_path / f"script{len(children)}.json"
        script.write_text(json.dumps({"version": 1, "reply": replies}))
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        child = Agent(home, project, {}, **screen)
        children.append(child)
        child.record_events()
        child.setup(**{"provider": "scripted", "script": str(script)} | (setup or {}))
        return child

    yield start
    for child in children:
        child.close()


@pytest.fixture
def run_agent(start_agent):
    """Start such a Neovim in mode auto, and have it run one turn."""

    def run(*replies, **options):
        agent = start_agent(*replies, **options)
        agent.command("AgentMode auto")
        agent.ask_and_wait()
        return agent

    return run


@pytest.fixture
def asking_agent(start_agent):
    """Start such a Neovim, and have the model ask a question."""

    def run(*replies, **options):
        agent = start_agent(*replies, **options)
        agent.ask()
        agent.wait_for_question()
        return agent

    return run
