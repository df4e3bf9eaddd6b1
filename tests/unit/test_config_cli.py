"""`sanderling config`: what is in force and from where, what is wrong in which line, and the schema that editors read."""

import argparse
import io
import json
import re
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.conftest import ROOT

from sanderling.cli import config
from sanderling.config import FIELDS, key_of
from sanderling.config.file import parse, sound
from sanderling.config.layers import Layers
from sanderling.config.project import KINDS as PROJECT_KINDS
from sanderling.config.project import PROJECT_FILE, read_project_file
from sanderling.conversation.checks.configuration import KINDS, mistakes_in
from sanderling.project.trust.trust import Trust
from sanderling.providers.choice import choose
from sanderling.providers.endpoint import load_endpoint, presets

GOLDEN = ROOT / "tests" / "golden"
TEMPLATES = ROOT / "src" / "sanderling" / "config"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "NVIM_APPNAME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".config" / "sanderling").mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


@pytest.fixture
def user(home):
    return (home / ".config" / "sanderling" / "config.toml").write_text


@pytest.fixture
def project(home):
    def write(text: str, *, is_trusted: bool = True) -> None:
        (home / "project" / PROJECT_FILE).write_text(text)
        if is_trusted:
            trust = Trust(str(home / ".local/state/nvim/sanderling"), str(home / "project"))
            trust.trust({PROJECT_FILE: sha256(text.encode()).hexdigest()})

    return write


@pytest.fixture
def run(home, capsys):
    assert Path.cwd() == home / "project"

    def run(*argv: str) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        config.add(parser.add_subparsers())
        arguments = parser.parse_args(["config", *argv])
        status = arguments.run(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_without_files_the_defaults_are_shown(run):
    status, out, err = run("show")
    assert (status, err) == (0, "")
    assert sound(*parse("x", out)).options["model"] == "claude-sonnet-5-5"


def test_each_value_is_shown_with_its_file_and_line(run, user, project):
    user("model = 'a'\nmax_calls = 9\n[[permissions]]\naction = 'ask'\n")
    project("\nmax_calls = 5\n")
    _, out, _ = run("show", "--origin")
    lines = out.splitlines()
    assert 'model = "a"  # ~/.config/sanderling/config.toml:1' in lines
    assert "max_calls = 5  # .sanderling.toml:2" in lines
    assert "thinking = true  # default" in lines
    shown = json.loads(run("show", "--origin", "--json")[1])
    assert shown["settings"]["max_calls"] == 5
    assert shown["origins"]["max_calls"] == ".sanderling.toml:2"
    assert shown["origins"]["permissions[1]"] == "~/.config/sanderling/config.toml:3"
    assert "origins" not in json.loads(run("show", "--json")[1])


def test_a_projects_file_counts_only_when_it_is_trusted(run, project):
    project("model = 'b'", is_trusted=False)
    assert 'model = "b"' not in run("show")[1]
    project("model = 'b'")
    assert 'model = "b"' in run("show")[1]


def test_no_secret_is_shown(run, user, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "from-the-environment-1")
    user(
        """
        base_url = "http://me:hunter22hunter@x/$MY_TOKEN"
        [providers.a]
        preset = "openai"
        api_key = "$MY_TOKEN"
        headers = { X = "Bearer abcdefgh12345678" }
        [mcp.servers.s]
        command = ["s", "--token", "sk-proj-abcdefghijklmnopqrstuvwx", "ghp_abcdefghijklmnopqrstuvwxyz012345"]
        env = { T = "literal-secret", U = "$MY_TOKEN" }
        [agents.mine]
        command = ["agent", "--api-key", "ghp_abcdefghijklmnopqrstuvwxyz012345"]
        env = { T = "literal-secret", U = "$MY_TOKEN" }
        """
    )
    for argv in (["show"], ["show", "--origin"], ["show", "--json"], ["check", "--json"]):
        _, out, err = run(*argv)
        for secret in ("hunter22", "from-the-env", "abcdefgh1234", "sk-proj", "ghp_", "literal-s"):
            assert secret not in out + err
        assert ("$MY_TOKEN" in out) is ("show" in argv)


def test_show_says_what_is_wrong_instead(run, user):
    user("modle = 1\nmax_calls = 'x'\n")
    status, out, err = run("show")
    assert (status, out) == (2, "")
    assert err == (
        "sanderling: ~/.config/sanderling/config.toml:1: unknown key 'modle'; did you mean 'model'?\n"
        "~/.config/sanderling/config.toml:2: 'max_calls': must be a whole number, not a string\n"
    )


def test_files_without_mistakes_are_named(run, user, project):
    user("model = 'x'")
    project("model = 'y'", is_trusted=False)
    status, out, _ = run("check")
    assert status == 0
    assert out.splitlines() == [
        "~/.config/sanderling/config.toml: read",
        ".sanderling.toml: not trusted, so ignored: run `sanderling trust`, or :Agent trust in Neovim",
    ]


WRONG_IN_PARTS = {
    "[providers.local]\nwire = 'chat'\nbse_url = 'x'": (3, "did you mean 'providers.local.base_url'?"),
    "[providers.local]\nwire = 'chta'\nbase_url = 'x'": (2, "one of anthropic, chat, responses, ollama"),
    "\n[providers.local]\nwire = 'chat'": (2, "needs base_url"),
    "[providers.local]\npreset = 'opnai'": (2, "names an unknown preset 'opnai'; did you mean 'openai'?"),
    "[providers.local]\npreset = 'openai'\napi_key = 'sk-x'": (3, "api_key must name a variable"),
    "[providers.openai]\nmodel = 'x'\n[providers.openai.quirks]\nimges = 'user'": (
        4,
        "did you mean 'providers.openai.quirks.images'?",
    ),
    "[mcp.servers.git]\ncommand = ['x']\nhots = []": (3, "did you mean 'mcp.servers.git.hosts'?"),
    "\n[mcp.servers.git]\nhosts = []": (2, "it needs either a command or a url"),
    "[mcp.servers.git]\ncommand = 5": (2, "must be a list, not a whole number"),
    "[hooks.Stop]\ncommand = 'x'": (1, "must be a list, not a table: write [[hooks.Stop]]"),
    "[[permissions]]\naction = 'deny'\n[[permissions]]\naction = 'alow'": (4, "one of allow, ask, deny"),
    "[[permissions]]\naction = 'deny'\n[[permissions]]\ntool = 'bash'": (3, "permission rule 2 is wrong"),
    "[[permissions]]\naction = 'allow'\ntool = 'bsh'": (1, "no tool 'bsh'"),
    "[[permissions]]\naction = 'deny'\npath = 'a'\nhost = 'b'": (1, "not path and host"),
    "[prices.m]\ninput = 'x'": (2, "must be a number"),
    "[prices.m]\nchache_read = 1": (2, "did you mean 'prices.m.cache_read'?"),
    "\n[prices.m]\ninput = 1": (2, "missing required field `output`"),
    "[tools]\ndisabled = [\n'bsh']": (2, "there is no tool 'bsh'"),
    "model = 'none:x'": (1, "there is no provider 'none'"),
    "\nmodel = 'opnai:x'": (2, "did you mean 'openai'?"),
    "model = 'x'\nprovider = 'opnai'": (2, "did you mean 'openai'?"),
    "provider = 'scripted'": (1, "needs 'script'"),
    "[providers.local]\nwire = 'chatt'\nbase_url = 'x'": (2, "did you mean 'chat'?"),
    "[providers.local]\nwire = 'chat'\nbase_url = 'x'": (3, "must begin with http"),
    "[providers.openai.headers]\nX-A = 'a'\nAuthorization = 'Bearer hunter22hunter22'": (
        3,
        'write secrets as variables: Authorization = "$NAME"',
    ),
    "[mcp.servers.git]\ncommand = ['x']\nenv = { A = '1', TOKEN = 'hunter22' }": (3, "env.TOKEN"),
    "[mcp.servers.git]\nurl = 'https://x'\nheaders = { X-Y = 'sk-proj-abcdefghijklmnopqrst' }": (
        3,
        "headers.X-Y",
    ),
    "[agents.claude]\nhsots = []": (2, "did you mean 'agents.claude.hosts'?"),
    "\n[agents.mine]\nargs = ['--acp']": (2, "needs a command, or preset = one of: claude, codex"),
    "[agents.mine]\ncommand = 'agent'": (2, "must be a list, not a string"),
    "[agents.mine]\npreset = 'cluade'": (2, "names an unknown preset 'cluade'; did you mean 'claude'?"),
    "[agents.'a b']\ncommand = ['x']": (1, "is not a valid agent name"),
    "[agents.claude]\nhosts = ['a b']": (2, "a host, like"),
    "[agents.claude]\nhome = [\n'~/.claude/.credentials.json',\n'~/.bashrc']": (2, "~/.bashrc can run programs"),
    "[agents.claude]\npaths = ['~']": (2, "~ holds more than a command may touch"),
    "[agents.claude]\nenv = { ANTHROPIC_API_KEY = 'hunter22' }": (2, "env.ANTHROPIC_API_KEY"),
    "[sandbox]\nread = ['/usr/share/dict']\nwrite = ['/']": (3, "/ holds more than a command may touch"),
    "[sandbox]\nread = ['~']": (2, "~ holds more than a command may touch"),
    "[mcp.servers.git]\ncommand = ['x']\npaths = ['~/x', '~/']": (3, "mcp.servers.git.paths"),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG_IN_PARTS)
def test_what_only_a_part_knows_to_be_wrong_has_its_line_too(run, user, text):
    line, words = WRONG_IN_PARTS[text]
    user(text)
    status, out, _ = run("check", "--json")
    assert status == 2
    [mistake] = json.loads(out)["mistakes"]
    assert mistake["file"] == "~/.config/sanderling/config.toml"
    assert (mistake["line"], words in mistake["message"]) == (line, True), mistake
    assert mistake["text"] == f"{mistake['file']}:{line}: {mistake['message']}"


def test_all_that_is_wrong_in_both_files_is_told_at_once(run, user, project):
    user("modle = 1\n[providers.a]\nwre = 'chat'\n[[permissions]]\naction = 1")
    project("base_url = 'x'\nmax_calls = 'x'", is_trusted=False)
    lines = run("check")[1].splitlines()
    places = [line.split(": ")[0].rpartition("/")[2] for line in lines]
    assert places == [
        *("config.toml", PROJECT_FILE),
        *(f"{PROJECT_FILE}:1", f"{PROJECT_FILE}:2"),
        *("config.toml:1", "config.toml:3", "config.toml:5"),
    ]


ALL_WRONG = """
modle = 1
max_calls = "x"
model = "opnai:x"
base_url = "$NOT_SET"
[providers.local]
wire = "chatt"
base_url = "x"
api_key = "hunter22"
headers = { Authorization = "hunter22" }
[providers.other]
preset = "opnai"
[prices.m]
input = "x"
[prices.n]
input = 1
[mcp.servers.git]
command = 5
env = { TOKEN = "hunter22" }
[mcp.servers.web]
hosts = []
[sandbox]
env = 3
write = ["/"]
[tools]
disabled = ["bsh"]
[[permissions]]
actoin = "deny"
[[permissions]]
action = "deny"
path = "a"
host = "b"
"""


def test_no_mistake_of_one_kind_hides_those_of_another(run, user, home, project):
    user(ALL_WRONG)
    (home / ".config/sanderling/models.toml").write_text(
        '[openai."gpt-x"]\nwindow = 1\n[openai."gpt-y".price]\ninput = 1\n'
    )
    project("model = [\n", is_trusted=False)
    out = run("check")[1]
    assert "hunter22" not in out
    places = [line.split(": ")[0].rpartition("/")[2] for line in out.splitlines()[3:]]
    lines = [2, 3, 4, 5, 7, 9, 10, 12, 14, 15, 18, 19, 20, 23, 24, 26, 28, 29]
    assert places == [
        f"{PROJECT_FILE}:2",
        *(f"config.toml:{line}" for line in lines),
        "models.toml:2",
        "models.toml:3",
    ]


def test_a_projects_file_that_can_never_be_trusted_says_why(run, home):
    (home / "project" / PROJECT_FILE).symlink_to("/etc/passwd")
    status, out, _ = run("check")
    assert status == 0
    assert "is a link that leads out of the project: it cannot be trusted" in out


def given(home: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
    """Put on standard input what Neovim gives."""
    told = {"state_dir": str(home / "state"), "log_file": "", "options": options}
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BytesIO(msgspec.msgpack.encode(told)))
    )


def test_the_options_of_neovim_are_checked_with_the_files(run, user, home, monkeypatch):
    user("model = 'a'\nmax_calls = 3\n")
    given(home, monkeypatch, model="b", providers={"x": {"wire": "chat", "base_ur": "y"}})
    _, out, _ = run("check", "--json", "--setup")
    [mistake] = json.loads(out)["mistakes"]
    assert mistake["text"].startswith("setup(): unknown key 'providers.x.base_ur'")
    given(home, monkeypatch, model="b")
    settings = json.loads(run("check", "--json", "--setup")[1])["settings"]
    assert (settings["model"], settings["max_calls"]) == ("b", 3)


@pytest.mark.parametrize("name, argv", [("user", []), ("project", ["--project"])])
def test_the_schema_is_as_it_was(run, name, argv):
    """A change of what a file may hold shows here; `sanderling config schema [--project]` writes these files."""
    status, out, _ = run("schema", *argv)
    assert status == 0
    assert json.loads(out) == json.loads((GOLDEN / f"config_schema_{name}.json").read_text())


def test_each_key_of_the_schema_is_described(run):
    schema = json.loads(run("schema")[1])["$defs"]
    for name in ("File", "Sandbox", "Tools", "Mcp"):
        for key, told in schema[name]["properties"].items():
            assert "$ref" in told or told["description"], key


def uncommented(name: str) -> str:
    text = (TEMPLATES / name).read_text()
    return re.sub(r"^# (?=[a-z_]+ = |\[)", "", text, flags=re.MULTILINE)


def test_a_template_is_all_comments_until_it_is_changed():
    for name in ("user.toml", "project.toml"):
        assert tomllib.loads((TEMPLATES / name).read_text()) == {}


def test_the_persons_template_has_each_key_and_is_right_without_its_comment_signs():
    environment = {"LOCAL_KEY": "x", "GIT_TOKEN": "x", "SEARCH_TOKEN": "x"}
    made = sound(*parse("user.toml", uncommented("user.toml"), environment))
    settings = Layers(state_dir="/s", file=made).settings()
    assert mistakes_in(settings, "/p") == []
    for field in FIELDS:
        table = made.options
        for key in key_of(field):
            table = table[key]


def test_the_provider_of_the_template_answers_new_sessions(monkeypatch):
    for preset in presets():
        for name in load_endpoint(preset, {}).account.variables:
            monkeypatch.delenv(name, raising=False)
    (table,) = re.findall(
        r"^\[providers\.local\]\n(?:.+\n)+", uncommented("user.toml"), re.MULTILINE
    )
    made = sound(*parse("user.toml", table, {}))
    assert choose(Layers(state_dir="/s", file=made).settings()) == "local"


def test_the_projects_template_has_each_key_and_is_right_without_its_comment_signs():
    made = read_project_file(uncommented("project.toml"))
    for field in PROJECT_KINDS:
        table = made.options
        for key in key_of(field):
            table = table[key]
    assert KINDS.keys() >= {"permissions", "providers"}


def test_what_a_variable_holds_is_never_shown_wherever_it_was_put(run, user, monkeypatch):
    monkeypatch.setenv("PLAIN_NAME", "correct horse")
    user(
        'base_url = "https://h/$PLAIN_NAME/v1"\n'
        "[providers.x]\n"
        'wire = "chat"\n'
        'base_url = "https://${PLAIN_NAME}@h/v1"\n'
        'quirks = { body = { auth = "$PLAIN_NAME" } }\n'
        "[mcp.servers.a]\n"
        'command = ["srv", "--password=$PLAIN_NAME", "-p", "$PLAIN_NAME", "--key", "$PLAIN_NAME"]\n'
        "[mcp.servers.b]\n"
        'url = "https://h/mcp/$PLAIN_NAME"\n'
    )
    status, out, err = run("show", "--origin")
    assert (status, err) == (0, "")
    assert "horse" not in out
    assert '"--password=$PLAIN_NAME", "-p", "$PLAIN_NAME", "--key", "$PLAIN_NAME"' in out
    for report in ("show", "check"):
        assert "horse" not in run(report, "--json")[1]


def test_secret_that_an_option_is_given_is_not_shown(run, user):
    user('[mcp.servers.a]\ncommand = ["srv", "--password=horse", "--api-key", "horse"]\n')
    _, out, _ = run("show")
    assert '"--password=(hidden)", "--api-key", "(hidden)"' in out


def test_no_file_tells_the_terminal_what_to_do(run, user, project):
    project('"\\u009b2J\\u202e" = 1\n', is_trusted=False)
    _, out, _ = run("check")
    assert "<U+009B>2J<U+202E>" in out
    user('"\\u009b2J" = 1\n')
    _, _, err = run("show")
    assert "<U+009B>2J" in err
    assert "\x9b" not in out + err
