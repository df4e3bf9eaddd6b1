"""`sanderling plugin`: what is copied, what is shown of it, and what is refused."""

import errno
import json
import os
import re
import subprocess
import threading
import tomllib
from contextvars import copy_context
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.unit.test_plugins import MANIFEST, OWN, SHARED, http, make, servers, stdio
from tests.unit.test_trust import write

from sanderling.__main__ import run_command
from sanderling.errors import ConfigError
from sanderling.project.plugins import changing, data_directory, disabling
from sanderling.project.plugins.changing import add_plugin, remove_plugin


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_environment) -> Path:  # noqa: ARG001
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return home


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = make(
        tmp_path / "source",
        MANIFEST | {"version": "1.2"},
        servers(db=stdio("./bin/db", args=["a b"]), web=http()),
        ("release",),
    )
    write(root, "bin/db", "#!/bin/sh\n")
    (root / "bin/db").chmod(0o4755)
    return root


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = copy_context().run(run_command, ["plugin", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--project", "/x", "add", "/x"], ["--json", "remove", "x"]),
        *(["--project", "/x", "disable", "x"], ["--json", "enable", "x"]),
    ],
)
@pytest.mark.usefixtures("home")
def test_an_option_that_an_action_does_not_take_is_refused(capsys, arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err == f"sanderling: {arguments[0]} has no effect here: leave it out\n"


def files_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_an_added_plugin_is_a_copy_and_the_user_sees_what_is_in_it(home, source, capsys):
    write(source, ".git/config", "[remote]\n")
    status, out, err = run(capsys, "add", str(source))
    assert (status, err) == (0, "")
    root = home / OWN / "tools"
    assert out.splitlines() == [
        "Added tools 1.2 in ~/.config/sanderling/plugins/tools.",
        "  skill   release: Does it.",
        f"  server  tools.db: {root}/bin/db 'a b'",
        "  server  tools.web: https://tools.example/mcp",
    ]
    wanted = ["bin", "bin/db", "mcp.json", "plugin.json", "skills", "skills/release"]
    assert files_in(root) == [*wanted, "skills/release/SKILL.md"]
    assert (root / "bin/db").stat().st_mode & 0o7777 == 0o755
    write(source, "skills/release/SKILL.md", "changed")
    assert (root / "skills/release/SKILL.md").read_text() != "changed"
    assert (
        run(capsys, "list")[1].splitlines()[0] == "tools 1.2 in ~/.config/sanderling/plugins/tools"
    )


def test_a_plugin_that_is_added_again_replaces_the_earlier_one_as_a_whole(home, source, capsys):
    run(capsys, "add", str(source))
    (source / "skills/release/SKILL.md").unlink()
    make(source, MANIFEST | {"version": "2"})
    assert run(capsys, "add", str(source))[0] == 0
    assert not (home / OWN / "tools/skills/release/SKILL.md").exists()
    assert json.loads((home / OWN / "tools/plugin.json").read_text())["version"] == "2"
    assert [path.name for path in (home / OWN).iterdir()] == ["tools"]


def test_there_is_no_moment_without_a_plugin_that_is_replaced(home, source):
    add_plugin(str(source), "/nowhere")
    manifest, is_over, missed = home / OWN / "tools/plugin.json", threading.Event(), []

    def look() -> None:
        while not is_over.is_set():
            if not manifest.exists():
                missed.append(1)

    looker = threading.Thread(target=look)
    looker.start()
    for _ in range(20):
        add_plugin(str(source), "/nowhere")
    is_over.set()
    looker.join()
    assert missed == []


@pytest.mark.usefixtures("home")
def test_what_is_wrong_is_shown_when_it_is_added(source, capsys):
    make(source, MANIFEST | {"x": 1}, servers(db=stdio("/bin/sh"), web=http()))
    write(source, "skills/bad/SKILL.md", "no header")
    status, out, err = run(capsys, "add", str(source))
    assert status == 0
    assert "tools.db" not in out
    assert "tools.web" in out
    assert "unknown field `x`" in err
    assert "server 'db' is not used" in err
    assert "skills/bad/SKILL.md: " in err


@pytest.mark.parametrize("manifest", [None, {}, "[]", MANIFEST | {"name": "../../escape"}])
def test_what_is_no_plugin_is_refused_and_nothing_changes(home, tmp_path, capsys, manifest):
    make(tmp_path / "source", manifest)
    status, out, err = run(capsys, "add", str(tmp_path / "source"))
    assert (status, out) == (2, "")
    assert "plugin.json" in err
    assert not (home / OWN).exists()


@pytest.mark.parametrize("address", ["https://example.com/a/b", "git@example.com:a/b.git"])
def test_an_address_is_not_downloaded(capsys, address):
    status, _, err = run(capsys, "add", address)
    assert status == 2
    assert f"{address} is not a directory here: download it first" in err


def test_links_stay_inside_and_what_leads_out_is_left_out(home, source, tmp_path, capsys):
    write(tmp_path, "secret", "secret")
    (source / "inside").symlink_to(source / "bin/db")
    (source / "skills/again").symlink_to("release")
    (source / "out").symlink_to(tmp_path / "secret")
    (source / "up").symlink_to("..")
    (source / "chain").symlink_to("out")
    (source / "gone").symlink_to("nowhere")
    (source / "loop").symlink_to("loop")
    os.mkfifo(source / "pipe")
    status, _, err = run(capsys, "add", str(source))
    assert status == 0
    root = home / OWN / "tools"
    assert (root / "inside").resolve() == root / "bin/db"
    assert (root / "skills/again").resolve() == root / "skills/release"
    for name in ("out", "up", "chain", "gone", "loop", "pipe"):
        assert f"{name} was left out" in err
        assert not os.path.lexists(root / name)


@pytest.mark.usefixtures("home")
def test_the_plugin_of_the_help_is_valid(tmp_path, capsys):
    words = (ROOT / "doc/sanderling-extending.txt").read_text()
    shown = words[words.index("*sanderling-agent-plugins*\n") :].split("\n<")[0]
    for name in ("plugin.json", "mcp.json"):
        text = re.search(rf"^    {name}\n((?:      .*\n?)+)", shown, re.MULTILINE)
        assert text
        write(tmp_path / "mine", name, text[1])
    write(tmp_path / "mine", "bin/db", "#!/bin/sh\n")
    (tmp_path / "mine/bin/db").chmod(0o755)
    assert run(capsys, "check", str(tmp_path / "mine")) == (0, "tools: ok\n", "")


@pytest.mark.usefixtures("home")
def test_a_mistyped_name_and_a_directory_that_is_no_plugin_are_explained(source, tmp_path, capsys):
    run(capsys, "add", str(source))
    assert "did you mean 'tools'?" in run(capsys, "disable", "tols")[2]
    assert "did you mean 'tools'?" in run(capsys, "remove", "tols")[2]
    assert f"there is no plugin.json in {tmp_path}" in run(capsys, "check", str(tmp_path))[2]


@pytest.mark.usefixtures("home")
def test_names_are_shown_without_control_characters(source, capsys):
    (source / "\x1b[2J").symlink_to("/etc/passwd")
    make(source, MANIFEST | {"version": "1\x1b]0;x\x07\u202e", "\x1b[1m": 1})
    _, out, err = run(capsys, "add", str(source))
    assert "<U+001B>]0;x<U+0007><U+202E>" in out
    assert "<U+001B>[2J was left out" in err
    for text in (out, err, run(capsys, "list")[1], run(capsys, "list", "--json")[1]):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_plugin_that_is_too_large_is_refused_and_the_earlier_one_stays(
    home, source, capsys, monkeypatch
):
    run(capsys, "add", str(source))
    with (source / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    status, _, err = run(capsys, "add", str(source))
    assert status == 2
    assert "it has more than" in err
    (source / "sparse").unlink()
    monkeypatch.setattr(changing, "MAX_ENTRIES", 3)
    assert run(capsys, "add", str(source))[0] == 2
    assert [path.name for path in (home / OWN).iterdir()] == ["tools"]


def test_deep_directories_are_refused_and_later_plugins_are_added(
    home, source, tmp_path, capsys, monkeypatch
):
    bad = make(tmp_path / "bad", {**MANIFEST, "name": "bad"})
    monkeypatch.chdir(bad)
    for _ in range(1200):  # deeper than Python's stack, which removing a tree needs
        os.mkdir("a")  # noqa: PTH102
        os.chdir("a")
    monkeypatch.chdir(tmp_path)
    try:
        status, _, err = run(capsys, "add", str(bad))
    finally:
        subprocess.run(["rm", "-rf", str(bad)], check=True)  # pytest cannot remove it
    assert (status, "nested" in err) == (2, True)
    assert run(capsys, "add", str(source))[0] == 0
    assert os.listdir(home / OWN) == ["tools"]  # noqa: PTH208


def test_a_directory_that_becomes_a_link_while_it_is_copied_leads_nowhere(
    home, source, tmp_path, monkeypatch
):
    """A command that runs in the plugin's directory could put a link to the user's keys there."""
    write(tmp_path / "keys", "id", "secret")
    write(source, "assets/a", "")
    mkdir = Path.mkdir

    def exchange(path: Path, *args: object, **options: object) -> None:
        mkdir(path, *args, **options)  # pyright: ignore[reportArgumentType]
        if path.name == "assets":
            (source / "assets").rename(tmp_path / "aside")
            (source / "assets").symlink_to(tmp_path / "keys")

    monkeypatch.setattr(Path, "mkdir", exchange)
    with pytest.raises(ConfigError):
        add_plugin(str(source), str(home))
    assert os.listdir(home / OWN) == []  # noqa: PTH208


def test_an_error_while_copying_leaves_the_earlier_plugin(home, source, monkeypatch):
    add_plugin(str(source), "/nowhere")

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(changing, "_copy_file", fail)
    with pytest.raises(ConfigError, match="No space left"):
        add_plugin(str(source), "/nowhere")
    assert [path.name for path in (home / OWN).iterdir()] == ["tools"]
    assert (home / OWN / "tools/bin/db").exists()


def test_what_a_killed_process_left_is_removed(home, source):
    write(home / OWN, f".tools.{'0' * 16}/plugin.json", "")
    write(home / OWN, ".kept/file", "")
    add_plugin(str(source), "/nowhere")
    assert sorted(path.name for path in (home / OWN).iterdir()) == [".kept", "tools"]


def test_the_directory_of_plugins_is_not_copied_into_itself(home, source, capsys):
    run(capsys, "add", str(source))
    for directory in (home / OWN / "tools", make(home / ".config", MANIFEST | {"name": "all"})):
        status, _, err = run(capsys, "add", str(directory))
        assert status == 2
        assert "name another directory" in err


def test_a_plugin_is_removed_and_its_data_only_if_wanted(home, source, capsys):
    state = str(home / "state")
    data = Path(data_directory(state, "tools"))
    data.mkdir(parents=True)
    add_plugin(str(source), state)
    assert remove_plugin("tools", state) == (home / OWN / "tools").resolve()
    assert files_in(home / OWN) == []
    assert data.exists()
    add_plugin(str(source), state)
    remove_plugin("tools", state, with_data=True)
    assert not data.exists()
    assert run(capsys, "remove", "tools")[0] == 2


@pytest.mark.parametrize("name", ["", ".", "..", "../plugins", "/", "none", ".hidden"])
def test_only_a_plugin_can_be_removed(home, source, capsys, name):
    run(capsys, "add", str(source))
    write(home / OWN, ".hidden/file", "")
    before = files_in(home)
    status, _, err = run(capsys, "remove", name)
    assert status == 2
    assert f"there is no plugin '{name}'" in err
    assert files_in(home) == before


def test_a_link_to_a_plugin_is_removed_and_not_what_it_leads_to(home, source, capsys):
    (home / OWN).mkdir(parents=True)
    (home / OWN / "mine").symlink_to(source)
    assert run(capsys, "remove", "tools")[0] == 0
    assert not os.path.lexists(home / OWN / "mine")
    assert (source / "plugin.json").exists()


def test_check_explains_a_directory_or_all_that_is_installed(home, source, capsys):
    assert run(capsys, "check", str(source)) == (0, "tools: ok\n", "")
    assert not (home / OWN).exists()
    assert run(capsys, "check")[0] == 0
    make(home / SHARED / "broken", {})
    make(home / SHARED / "half", MANIFEST | {"name": "half", "x": 1})
    status, out, _ = run(capsys, "check")
    assert status == 1
    assert out.splitlines()[0].startswith("~/.agents/plugins/broken: plugin.json: it must have")
    assert (
        out.splitlines()[1] == "half: plugin.json: it has the unknown field `x`, which is ignored"
    )
    assert run(capsys, "check", str(home))[0] == 2


def test_the_list_says_which_plugins_are_disabled(home, source, capsys):
    write(home, ".config/sanderling/config.toml", '[plugins]\ndisabled = ["tools"]\n')
    run(capsys, "add", str(source))
    assert run(capsys, "list")[1].splitlines()[0].endswith(" (disabled)")
    (row,) = map(json.loads, run(capsys, "list", "--json")[1].splitlines())
    assert (row["name"], row["is_disabled"], row["is_ours"]) == ("tools", True, True)


@pytest.mark.usefixtures("home")
def test_without_plugins_the_list_says_how_to_add_one(capsys):
    assert "sanderling-agent-plugins" in run(capsys, "list")[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        'model = "m"',
        '# mine\nmodel = "m"\n',
        "[plugins]",
        '[plugins] # mine\ndisabled = []\n[skills]\ndisabled = ["x"]\n',
        '[skills]\ndisabled = ["x"]\n\n[ plugins ]\n# which\ndisabled = [\n  "a", # old\n  "b",\n]\n\n[mcp]\n',
        '[plugins]\n[mcp.servers."a"]\ncommand = ["x"]\n',
    ],
)
def test_disabling_and_enabling_keep_the_rest_of_the_settings(text):
    before = tomllib.loads(text)
    disabled = disabling.with_plugin(text, "tools", is_disabled=True)
    assert disabled is not None
    expected = [*before.get("plugins", {}).get("disabled", ()), "tools"]
    found = tomllib.loads(disabled)
    assert found.pop("plugins") == {"disabled": expected}
    before.pop("plugins", None)
    assert found == before
    assert all(line in disabled for line in text.splitlines() if "mine" in line or "which" in line)
    assert disabling.with_plugin(disabled, "tools", is_disabled=True) == disabled
    enabled = disabling.with_plugin(disabled, "tools", is_disabled=False)
    assert enabled is not None
    assert tomllib.loads(enabled)["plugins"] == {"disabled": expected[:-1]}


@pytest.mark.parametrize(
    "text",
    [
        "plugins.disabled = []",
        "plugins = { disabled = [] }",
        "plugins = 3",
        "[plugins",
        "a = 1\n[[plugins]]\n",
    ],
)
def test_settings_that_are_written_in_another_way_stay_as_they_are(home, source, capsys, text):
    run(capsys, "add", str(source))
    write(home, ".config/sanderling/config.toml", text)
    assert disabling.with_plugin(text, "tools", is_disabled=True) is None
    with pytest.raises(ConfigError):
        disabling.disable_plugin("tools", is_disabled=True)
    assert (home / ".config/sanderling/config.toml").read_text() == text


def test_a_plugin_is_disabled_and_enabled(home, source, capsys):
    run(capsys, "add", str(source))
    config = home / ".config/sanderling/config.toml"
    real = home / "dotfiles.toml"
    real.write_text("thinking = false\n")
    real.chmod(0o640)
    config.symlink_to(real)
    assert run(capsys, "disable", "tools") == (0, "", "")
    assert run(capsys, "list")[1].splitlines()[0].endswith(" (disabled)")
    assert (config.is_symlink(), real.stat().st_mode & 0o777) == (True, 0o640)
    assert run(capsys, "enable", "tools") == (0, "", "")
    assert not run(capsys, "list")[1].splitlines()[0].endswith(" (disabled)")
    assert run(capsys, "disable", "none")[0] == 2
