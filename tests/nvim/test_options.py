"""Options are refused by name; the public API and the health report say what is."""

import json
import re
import sys

import pytest
from tests.conftest import ROOT, prove, prove_rest, wait_until
from tests.loopback import LoopbackServer

from sanderling.config.file import setup_layer
from sanderling.config.layers import Layers

WRONG_RULES = [
    (
        {"action": "alow"},
        "option 'permissions[1].action' must be one of 'allow', 'ask', 'deny'",
    ),
    ({"tool": "bash"}, "option 'permissions[1].action' must be one of 'allow', 'ask', 'deny'"),
    ({"action": "ask", "tool": "bsh"}, "option 'permissions[1].tool' must be one of 'bash', "),
    (
        {"action": "ask", "command": ["ls"]},
        "option 'permissions[1].command' must be a string, not",
    ),
    ("allow", "option 'permissions' must be a list of rules, like { action = 'allow', "),
]
MEANT = [
    ({"chat": {"pos": "left"}}, "chat.position"),
    ({"chat": {"width": 80}}, "chat.size"),
    ({"chat": {"promptHeight": 5}}, "chat.prompt_height"),
    ({"keys": {"send": "<CR>"}}, "keys.send_normal"),
    ({"keys": {"insert": "<CR>"}}, "keys.send_insert"),
    ({"position": "left"}, "chat.position"),
    ({"sandbox_hosts": []}, "sandbox.hosts"),
    ({"sandbox": {"permissions": []}}, "permissions"),
    ({"permisions": []}, "permissions"),
    ({"permissions": [{"action": "deny", "cmd": "ls"}]}, "permissions[1].command"),
    (
        {"permissions": [{"action": "deny"}, {"action": "ask", "tools": "*"}]},
        "permissions[2].tool",
    ),
    (
        {"permissions": [{"action": "ask", "examples": {"match": []}}]},
        "permissions[1].examples.matches",
    ),
]


@pytest.mark.parametrize(
    "options, message",
    prove_rest(
        [
            ({"modle": "x"}, "unknown option 'modle'; did you mean 'model'?"),
            (
                {"chat": {"posiiton": "left"}},
                "unknown option 'chat.posiiton'; did you mean 'chat.position'?",
            ),
            (
                {"keys": {"send_nromal": "<CR>"}},
                "unknown option 'keys.send_nromal'; did you mean 'keys.send_normal'?",
            ),
            ({"model": 5}, "option 'model' must be a string, not 5"),
            ({"thinking": "yes"}, "option 'thinking' must be a boolean, not \"yes\""),
            ({"chat": "left"}, "option 'chat' must be a table, not \"left\""),
            (
                {"chat": {"position": "middle"}},
                "option 'chat.position' must be one of 'right', 'left'",
            ),
            ({"chat": {"size": 0}}, "option 'chat.size' must be a number from 0.05 on, not 0"),
            ({"max_tokens": 1.5}, "option 'max_tokens' must be a whole number from 0 on, not 1.5"),
            (
                {"keys": {"stop": 5}},
                "option 'keys.stop' must be a key, a list of keys, or false, not 5",
            ),
            ({"max_calls": -1}, "option 'max_calls' must be a whole number from 0 on, not -1"),
            ({"budget_usd": "5"}, "option 'budget_usd' must be a number from 0 on, not \"5\""),
            ({"auto_compact": 1}, "option 'auto_compact' must be a boolean, not 1"),
            ({"prices": 3}, "option 'prices' must be dollars per million tokens by model, like {"),
            ({"prices": {"m": 3}}, "option 'prices' must be dollars per million tokens by model"),
            (
                {"prices": {"m": {"chache_read": 0}}},
                "unknown option 'prices['m'].chache_read'; did you mean 'prices['m'].cache_read'?",
            ),
            (
                {"prices": {"m": {"input": "1"}}},
                "option 'prices['m'].input' must be a number, not \"1\"",
            ),
            (
                {"keys": {"next_sesion": "gs"}},
                "unknown option 'keys.next_sesion'; did you mean 'keys.next_session'?",
            ),
            ({"provider": ""}, "option 'provider' must be 'auto' or the name of a provider"),
            ({"provider": "scripted"}, "provider 'scripted' needs the option 'script'"),
            *(({"permissions": [rule]}, message) for rule, message in WRONG_RULES),
            *((options, f"did you mean '{meant}'") for options, meant in MEANT),
        ]
    ),
)
def test_a_wrong_option_is_named(start_nvim, options, message):
    child = start_nvim(columns=200)
    child.setup(**options)
    assert message in child.messages()
    assert not child.is_blocked()
    assert child.lua("return require('sanderling.config').options.model") == "claude-sonnet-5-5"


def test_a_rule_may_name_a_tool_from_outside(start_nvim):
    child = start_nvim(columns=200)
    child.setup(permissions=[{"action": "allow", "tool": "mcp__server__*"}])
    assert "permissions" not in child.messages()


def test_an_option_that_nothing_is_like_is_not_guessed_at(child):
    child.setup(qqqqqqqq=1)
    assert "unknown option 'qqqqqqqq'; see :help sanderling-options" in child.messages()


@prove
def test_all_mistakes_are_told_at_once_in_one_line_and_the_rest_of_the_configuration_runs(
    start_nvim, tmp_path
):
    init = tmp_path / "my init.lua"
    init.write_text("""
      require('sanderling').setup({
        'stray', chat = { pos = 'left', size = 0.3 }, keys = { send = '<CR>', stop = 5 },
      })
      vim.g.rest_ran = 1
    """)
    child = start_nvim(commands=[f"luafile {str(init).replace(' ', chr(92) + ' ')}"])
    wait_until(lambda: child.lua("return vim.g.rest_ran"))
    told = "4 invalid options, see :Agent health: 1, chat.pos (chat.position?), keys.send"
    wait_until(lambda: not child.is_blocked() and told in child.screen_text())
    messages = child.messages()
    assert "traceback" not in messages
    assert "my init.lua" not in messages
    report = health(child)
    for sentence in (
        "unknown option '1'",
        "unknown option 'chat.pos'; did you mean 'chat.position'?",
        "unknown option 'keys.send'; did you mean 'keys.send_normal' or 'keys.send_insert'?",
        "option 'keys.stop' must be a key, a list of keys, or false, not 5",
    ):
        assert sentence in report
    assert child.lua("return require('sanderling.config').options.chat.size") == 0.3


@prove
def test_a_wrong_option_of_the_screen_is_left_out_and_the_chat_works(child):
    child.setup(keys={"send": "<CR>", "send_insert": "<C-d>"}, chat={"pos": "left"})
    child.command("AgentChat")
    child.feed("iping<C-d>")
    child.wait_for_turns()
    assert child.transcript()[-1] == "pong"


@prove
@pytest.mark.parametrize(
    "options, message",
    [
        ({"sandbox": {"min_levl": "full"}}, "'sandbox.min_levl'; did you mean 'sandbox.min_level'"),
        ({"permissions": [{"action": "dney"}]}, "'permissions[1].action' must be one of"),
        ({"base_ulr": "https://example.org"}, "did you mean 'base_url'?"),
    ],
)
def test_with_an_option_that_is_wrong_otherwise_nothing_is_sent_until_it_is_corrected(
    child, options, message
):
    child.setup(**options)
    child.command("AgentChat")
    child.feed("iping<C-s>")
    child.wait_for_transcript(message)
    assert "nothing was sent" in child.screen_text()
    assert "call setup() again, then resend" in child.transcript_text()
    assert child.events("AgentTurnStarted") == []
    assert message in health(child)
    child.command("quit")
    child.setup()
    child.submit("ping")
    wait_until(lambda: child.transcript()[-1] == "pong", child.transcript_text())


@prove
@pytest.mark.parametrize("options", [{"provider": ""}, {"chat": {"pos": "left"}}])
def test_an_environment_that_is_built_is_not_offered_because_an_option_is_wrong(child, options):
    child.lua("""
      _G.offers = 0
      vim.ui.select = function() _G.offers = _G.offers + 1 end
    """)
    child.setup(**options)
    child.command("AgentChat")
    child.submit("ping")
    wait_until(
        lambda: "nothing was sent" in child.transcript_text() or child.transcript()[-1] == "pong"
    )
    assert child.lua("return _G.offers") == 0


@prove
def test_options_that_are_wrong_now_leave_the_session_that_is_open_alone(child):
    child.chat("ping")
    child.setup(sandbox={"level": "full"})
    child.submit_and_wait("ping")
    child.command("AgentNew")
    child.wait_for_transcript("Invalid options")


@prove
def test_a_session_that_a_rule_kept_from_beginning_begins_when_setup_has_mended_it(child):
    wrong = {"action": "allow", "tool": "read", "command": "ls"}
    child.setup(permissions=[wrong])
    child.command("AgentChat")
    child.wait_for_transcript("a rule for 'read' has no command")
    child.feed("iping<C-s>")
    wait_until(lambda: child.transcript_text().count("has no command") == 2)
    wait_until(lambda: child.prompt_lines() == ["ping"])
    child.feed("<C-s>")
    wait_until(lambda: child.transcript_text().count("has no command") == 3)
    wait_until(lambda: child.prompt_lines() == ["ping"])
    child.setup()
    child.feed("<C-s>")
    wait_until(lambda: child.transcript()[-1] == "pong")
    assert child.transcript_text().count("has no command") == 3


@prove
@pytest.mark.parametrize("is_shown", [False, True])
def test_a_wrong_position_on_the_command_line_is_refused(start_nvim, is_shown):
    child = start_nvim(columns=240)
    if is_shown:
        child.command("AgentChat")
    child.feed(":AgentChat middle<CR>")
    message = wait_until(lambda: child.messages().strip())
    assert (" ask " in child.screen_text()) == is_shown
    assert message.startswith("AgentChat: right, left,")
    assert "claude, codex, gemini, opencode, vibe, goose, kimi, " in message
    assert message.endswith(
        "ssh://HOST/PATH, via://COMMAND/PATH, ws://HOST:PORT or unix:/PATH, not 'middle'."
    )
    assert "\n" not in message


@pytest.mark.parametrize(
    "command, told",
    prove_rest(
        [
            ("Agent sandbox bogus", "Agent sandbox: status, off or on, not 'bogus'."),
            ("AgentAllow bogus", "AgentAllow: once, session or always, not 'bogus'."),
            ("AgentNet bogus", "AgentNet: off, proxy or on, not 'bogus'."),
        ]
    ),
)
def test_a_word_that_a_command_does_not_take_is_told_with_those_that_it_does(child, command, told):
    child.feed(f":{command}<CR>")
    assert wait_until(lambda: child.messages().strip()) == told


def host_settings(child):
    """The settings that the host makes of what it is given, when no file says anything."""
    given = child.lua("return require('sanderling.config').host_settings()")
    return Layers(state_dir=given["state_dir"], setup=setup_layer(given["options"])).settings()


def test_the_host_is_given_limits_and_prices_as_it_takes_them(child):
    assert host_settings(child).prices == {}
    prices = {"claude-x": {"input": 1, "output": 5.5, "cache_write": 1.25, "cache_read": 0.1}}
    child.setup(max_calls=0, budget_usd=2.5, prices=prices, auto_compact=False)
    settings = host_settings(child)
    assert (settings.max_calls, settings.budget_usd, settings.auto_compact) == (0, 2.5, False)
    assert settings.prices == prices


def test_a_script_that_is_none_is_named_in_the_chat_until_it_is_right(child, tmp_path):
    script = tmp_path / "script.toml"
    script.write_text("version = 1\n[[reply]]\n[[reply.step]]\ntxt = 'x'\n")
    child.setup(provider="scripted", script=str(script))
    child.open_chat()
    child.wait_for_transcript("is not a script: Object contains unknown field `txt`")
    child.feed("ianyone there?<C-s>")
    wait_until(lambda: child.transcript_text().count("is not a script") == 2)
    wait_until(lambda: child.prompt_lines() == ["anyone there?"])
    assert "ask failed" in child.screen_text()
    script.write_text("version = 1\n[[reply]]\n[[reply.step]]\ntext = 'now it is'\n")
    child.feed("<C-s>")
    wait_until(lambda: child.transcript()[-1] == "now it is")


def test_the_public_api(child):
    assert child.statusline() == ""
    assert child.lua("return require('sanderling').transcript() == nil")
    child.lua("require('sanderling').stop()")
    child.lua("require('sanderling').chat({ position = 'left', focus = false })")
    assert child.lua("return vim.bo.filetype") == ""
    child.lua("require('sanderling').submit('ping')")
    child.wait_for_turns()
    (started,) = child.events("AgentTurnStarted")
    assert started["prompt"] == "ping"
    (ended,) = child.events("AgentTurnEnded")
    assert ended["stop_reason"] == "end_turn"
    assert started["session_id"] == ended["session_id"]
    shown = child.lua("return require('sanderling').transcript()")
    assert child.lua("return vim.api.nvim_win_get_buf(...)", shown["win"]) == shown["buf"]
    assert child.statusline().startswith("Sanderling: idle · ")
    child.lua("require('sanderling').hide()")
    assert child.lua("return require('sanderling').transcript().win == nil")


@prove
def test_an_error_in_a_users_autocommand_does_not_stop_the_stream(child):
    child.lua(
        "vim.api.nvim_create_autocmd('User', { pattern = 'AgentTurnStarted', callback = function() error('mine') end })"
    )
    child.chat("ping")
    assert child.transcript()[-1] == "pong"
    assert not child.is_blocked()


@prove
def test_options_set_while_the_host_runs_take_effect_with_the_next_session(child, tmp_path):
    child.chat("ping")
    script = tmp_path / "script.json"
    script.write_text(
        '{"version": 1, "reply": [{"repeat": true, "step": [{"text": "scripted now"}]}]}'
    )
    child.setup(provider="scripted", script=str(script))
    child.feed(":clear<CR>")
    wait_until(lambda: child.transcript() == [""])
    child.submit_and_wait("anything")
    assert child.transcript()[-1] == "scripted now"


@prove
def test_the_demo_notice_is_about_a_missing_key_only(start_nvim):
    child = start_nvim({"ANTHROPIC_API_KEY": "key"})
    child.setup(provider="demo")
    child.chat("ping")
    assert "No API key" not in child.transcript_text()


def health(child, command="checkhealth sanderling"):
    child.command(command)
    return child.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\\n')")


def test_checkhealth_tells_versions_key_host_and_files(child):
    child.open_chat()
    child.host_pid()
    report = health(child)
    assert "ERROR" not in report
    for fact in (
        *("pynvim 0.", "anthropic 2.", "there is no API key", "answers in", "sanderling.log"),
        *("the API and the keychain were not checked", "sanderling/sessions", "sanderling/rules"),
    ):
        assert fact in report, fact


@prove
def test_checkhealth_never_shows_the_key(start_nvim):
    child = start_nvim({"ANTHROPIC_API_KEY": "sk-secret"})
    report = health(child)
    assert "an API key is in the environment" in report
    assert "sk-secret" not in report
    assert "not running; the first use starts it" in report


@pytest.mark.parametrize(
    "provider, told, is_well",
    prove_rest(
        [
            ({"wire": "ollama", "base_url": "http://127.0.0.1:1"}, "needs no API key", True),
            (
                {"wire": "chat", "base_url": "http://127.0.0.1:1/v1", "api_key": "$MINE"},
                "needs no API key",
                True,
            ),
            ({"wire": "chat", "base_url": "https://far.example/v1"}, "needs no API key", True),
            (
                {"wire": "chat", "base_url": "https://far.example/v1", "api_key": "$MINE"},
                "Store one with :Agent login local, or set MINE in the environment",
                False,
            ),
        ]
    ),
)
def test_checkhealth_knows_whether_the_chosen_provider_needs_a_key(child, provider, told, is_well):
    child.setup(model="local:qwen3-coder", providers={"local": provider})
    for command in ("checkhealth sanderling", "Agent health!"):
        report = health(child, command)
        model = report.partition("\nModel")[2].partition("\nSandbox")[0]
        assert "provider local, model qwen3-coder" in model
        assert told in " ".join(model.split())
        assert ("ERROR" not in model) is is_well
        assert "demo" not in model
        assert "Agent provider_test local" in model


@prove
def test_checkhealth_tells_what_is_kept_and_what_cannot_be_written(child):
    state_dir = child.home / "state" / "nvim" / "sanderling"
    (state_dir / "sessions").mkdir(parents=True)
    (state_dir / "sessions" / "a.jsonl").write_bytes(b"x" * 300_000)
    (state_dir / "keychain").touch()
    report = health(child)
    assert f"sessions: {state_dir}/sessions (1 file, 0.3 MB)" in report
    assert f"trusted files: {state_dir}/trust (0 projects, 0.0 MB)" in report
    assert "an API key is in the keychain" in report
    assert "cannot be written" not in report
    (
        state_dir / "rules"
    ).touch()  # a directory without permissions can be written if the test is root's
    assert f"{state_dir}/rules cannot be written" in health(child)


@prove
def test_agenthealth_with_a_bang_asks_the_api(start_nvim):
    with LoopbackServer() as server:
        child = start_nvim({"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": server.url})
        assert "the API and the keychain were not checked" in health(child, "Agent health")
        assert server.requests == []
        assert "the API answers and knows claude-sonnet-5-5" in health(child, "Agent health!")
        assert [request.path for request in server.requests] == ["/v1/models/claude-sonnet-5-5"]
    assert "Cannot reach 127.0.0.1" in health(child, "Agent health!")


def test_checkhealth_without_an_environment_says_what_to_do(child):
    child.setup(python="/no/such/python")
    report = health(child)
    assert "which cannot be run" in report
    assert ":AgentInstall" in report


def test_checkhealth_has_the_lines_that_sanderling_check_prints(child):
    argv = [sys.executable, "-m", "sanderling", "check", "--json"]
    printed = child.lua("return vim.system(...):wait().stdout", argv)
    shown = " ".join(health(child).split())
    for section in json.loads(printed)["sections"]:
        assert section["title"] in shown
        for line in section["lines"]:
            if section["title"] in ("Python packages", "Programs", "Project", "Files"):
                assert " ".join(line["text"].split()) in shown


@pytest.mark.parametrize(
    "program, told",
    [
        ("#!/bin/sh\necho 'libpython3.so: not found' >&2\nexit 127\n", "libpython3.so: not found"),
        ("#!/bin/sh\nexit 3\n", "exit status 3"),
        ("#!/bin/sh\necho '{}'\n", "exit status 0"),
        ("not a program\n", "Sanderling does not run there: "),
    ],
)
def test_checkhealth_says_what_it_can_if_python_does_not_run(child, tmp_path, program, told):
    python = tmp_path / "python"
    python.write_text(program)
    python.chmod(0o755)
    child.setup(python=str(python), modle="x")
    report = health(child)
    assert "Sanderling does not run there: " in report
    assert told in report
    assert "Run :AgentInstall" in report
    assert "unknown option 'modle'; did you mean 'model'?" in report
    assert "ANTHROPIC_API_KEY is not set" in report
    assert "not running; the first use starts it" in report


def test_checkhealth_names_keys_that_the_users_maps_hide(child):
    assert "is mapped" not in health(child)
    child.command("nnoremap ]h :next<CR>")
    child.command("nnoremap <LocalLeader>h :help<CR>")
    report = " ".join(health(child).split())
    assert "]h is mapped, so it does not do this: to the next change." in report
    assert "Map <Plug>(AgentKey-next_hunk) instead, or set the option keys.next_hunk" in report
    assert "<LocalLeader>ha is mapped" in report
    assert "[h is mapped" not in report
    child.setup(keys={"next_hunk": False, "accept_hunk": "ga"})
    report = " ".join(health(child).split())
    assert "]h is mapped" not in report
    assert "<LocalLeader>ha is mapped" not in report


def test_every_public_function_is_in_the_help(child):
    names = ("sanderling.txt", "sanderling-extending.txt")
    text = "".join((ROOT / "doc" / name).read_text() for name in names)
    functions = child.lua("""
      return vim.iter(require('sanderling')):filter(function(_, value)
        return type(value) == 'function'
      end):map(function(name) return name end):totable()
    """)
    assert sorted(functions) == sorted(re.findall(r"\*sanderling\.(\w+)\(\)\*", text))


def test_the_help_and_the_offer_name_the_same_size_of_the_environment():
    sizes = [
        re.findall(r"about (\d+ MB)", " ".join((ROOT / path).read_text().split()))
        for path in ("doc/sanderling.txt", "lua/sanderling/host/install.lua")
    ]
    assert sizes[0][:1] == sizes[1]


def test_the_help_is_no_wider_than_78_columns():
    lines = (ROOT / "doc" / "sanderling.txt").read_text().splitlines()
    assert [line for line in lines if len(line.expandtabs(8)) > 78] == []


def test_the_help_has_no_double_or_dangling_tags(child):
    child.command(f"helptags {ROOT / 'doc'}")
    tags = {line.split("\t")[0] for line in (ROOT / "doc" / "tags").read_text().splitlines()}
    texts = [path.read_text() for path in (ROOT / "doc").glob("*.txt")]
    links = {link for text in texts for link in re.findall(r"(?<!\w)\|([^|\s]+)\|(?!\w)", text)}
    dangling = [
        link
        for link in links
        if link not in tags and not child.lua("return #vim.fn.getcompletion(..., 'help') > 0", link)
    ]
    assert links
    assert dangling == []


HARMLESS = [
    {"follow": "maybe"},
    {"answer": "lnes"},
    {"review": 5},
    {"diagnostics": "all"},
    {"icons": "emoji"},
    {"anser": "float"},
    {"folow": "show"},
    {"chat": {"pos": "left"}},
    {"approval": {"bel": True}},
    {"theme": "dark"},
    {"qqqqqqqq": 1},
]
WEAKENING = [
    {"permisions": [{"action": "deny", "tool": "bash"}]},
    {"permissions": [{"action": "dney", "tool": "bash"}]},
    {"rules": [{"action": "deny"}]},
    {"deny": ["bash"]},
    {"sandbox": {"min_levl": "full"}},
    {"sandbox": {"min_level": "fulll"}},
    {"sandbx": {"min_level": "full"}},
    {"tools": {"disable": ["bash"]}},
    {"disabled_tools": ["bash"]},
    {"sandbox_level": "full"},
    {"chat_permissions": [{"action": "deny"}]},
    {"budget": 5},
    {"max_cals": 3},
    {"model": ""},
    {"network": "off"},
    {"mode": "plan"},
    {"python": 3},
    {"prices": {"m": {"inputt": 1}}},
]


@pytest.mark.parametrize("options", prove_rest(HARMLESS, (0, -1), is_one=True))
def test_a_mistake_that_is_about_the_screen_stops_no_session(child, options):
    child.setup(**options)
    assert child.lua("return #require('sanderling.config').mistakes") == 1
    assert child.lua("return require('sanderling.config').problem") is None


@pytest.mark.parametrize("options", prove_rest(WEAKENING, (0, -1), is_one=True))
def test_a_mistake_that_could_have_forbidden_something_stops_sessions(child, options):
    child.setup(**options)
    mistake = child.lua("return require('sanderling.config').mistakes[1].text")
    assert mistake in child.lua("return require('sanderling.config').problem")
