"""Trust: which of a project's files may steer the agent, and that they are exactly what the person has seen."""

import json
import os
import socket
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import prove

from sanderling.errors import ConfigError
from sanderling.project.trust.reading import (
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_FILE_BYTES,
    TrustReader,
    as_text,
    find_files,
)
from sanderling.project.trust.trust import (
    Import,
    OwnFiles,
    Trust,
    imported_path,
    lines_with_imports,
)


def write(project: Path, name: str, text: str | bytes = "Be kind.\n") -> Path:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def trust_all(trust: Trust) -> None:
    """What a person does who trusts all that is shown."""
    trust.trust({file.path: file.sha256 for file in trust.shown().files})


def states(trust: Trust) -> dict[str, str]:
    return {file.path: file.state for file in trust.shown().files}


def test_file_is_read_only_after_it_was_shown_and_trusted(trust, project):
    write(project, "AGENTS.md", "Be kind.\n")
    assert trust.read("AGENTS.md") is None
    assert trust.untrusted(["AGENTS.md", "CLAUDE.md"]) == ("AGENTS.md",)
    trust_all(trust)
    assert trust.read("AGENTS.md") == "Be kind.\n"
    assert trust.untrusted(["AGENTS.md"]) == ()


def test_shown_file_has_its_text_and_the_hash_of_its_bytes(trust, project):
    data = b"Be \xff kind.\r\n"
    write(project, "AGENTS.md", data)
    (file,) = trust.shown().files
    assert (file.text, file.state) == ("Be \ufffd kind.\n", "new")
    assert file.sha256 == sha256(data).hexdigest()


def test_changed_file_is_not_read_until_it_is_trusted_again(trust, project):
    write(project, "AGENTS.md", "Be kind.\n")
    trust_all(trust)
    write(project, "AGENTS.md", "Be rude.\n")
    assert trust.read("AGENTS.md") is None
    assert states(trust) == {"AGENTS.md": "changed"}
    trust_all(trust)
    assert trust.read("AGENTS.md") == "Be rude.\n"


def test_file_that_changes_between_showing_and_trusting_is_not_trusted(trust, project):
    write(project, "AGENTS.md", "Be kind.\n")
    shown = trust.shown().files
    write(project, "AGENTS.md", "Be rude.\n")
    trust.trust({file.path: file.sha256 for file in shown})
    assert trust.read("AGENTS.md") is None
    write(project, "AGENTS.md", "Be kind.\n")
    assert trust.read("AGENTS.md") == "Be kind.\n"


def test_trusting_some_files_ends_the_trust_in_the_others(trust, project):
    for name in ("AGENTS.md", ".mcp.json"):
        write(project, name)
    trust_all(trust)
    trust.trust({"AGENTS.md": sha256(b"Be kind.\n").hexdigest()})
    assert states(trust) == {"AGENTS.md": "trusted", ".mcp.json": "new"}


def test_trust_is_seen_by_another_process_at_once_and_by_a_later_one(trust, state, project):
    write(project, "AGENTS.md")
    other = Trust(str(state), str(project))
    assert other.read("AGENTS.md") is None
    trust_all(trust)
    assert other.read("AGENTS.md")
    assert Trust(str(state), str(project)).read("AGENTS.md")
    trust.trust({})
    assert other.read("AGENTS.md") is None


def test_projects_do_not_share_trust(state, tmp_path):
    for name in ("a/app", "b/app"):
        write(tmp_path / name, "AGENTS.md")
    first, second = (Trust(str(state), str(tmp_path / name)) for name in ("a/app", "b/app"))
    trust_all(first)
    assert first.read("AGENTS.md")
    assert second.read("AGENTS.md") is None


def test_one_project_under_two_names_is_one(state, project, tmp_path):
    write(project, "AGENTS.md")
    (tmp_path / "link").symlink_to(project)
    trust_all(Trust(str(state), str(tmp_path / "link")))
    assert Trust(str(state), str(project)).read("AGENTS.md")


def test_link_out_of_the_project_is_never_trusted(trust, project, tmp_path):
    secret = write(tmp_path, "secret", "top secret")
    (project / "AGENTS.md").symlink_to(secret)
    (file,) = trust.shown().files
    assert (file.sha256, "top secret" in file.text) == ("", False)
    assert "is a link that leads out of the project" in file.text
    trust.trust({"AGENTS.md": sha256(b"top secret").hexdigest()})
    assert trust.read("AGENTS.md") is None


def test_directory_that_is_a_link_out_of_the_project_is_no_way_out(trust, project, tmp_path):
    write(tmp_path, "elsewhere/commands/fix.md", "Fix it.")
    (project / ".sanderling").symlink_to(tmp_path / "elsewhere")
    assert trust.look(".sanderling/commands/fix.md").sha256 == ""
    assert trust.look("../elsewhere/commands/fix.md").sha256 == ""


def test_link_inside_of_the_project_is_what_it_leads_to(trust, project):
    write(project, "AGENTS.md")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    trust_all(trust)
    assert trust.read("CLAUDE.md") == "Be kind.\n"


def test_link_that_is_swapped_after_it_was_trusted_is_noticed(trust, project, tmp_path):
    write(project, "a.md")
    (project / "AGENTS.md").symlink_to("a.md")
    trust_all(trust)
    (project / "AGENTS.md").unlink()
    (project / "AGENTS.md").symlink_to(write(tmp_path, "b.md", "Be kind.\n"))
    assert trust.read("AGENTS.md") is None


def make_socket(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.close()


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    "make, why",
    [
        (os.mkfifo, "is not a regular file"),
        (make_socket, "is not a regular file"),
        (make_loop, "cannot be read"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (lambda path: path.write_bytes(b"x" * 10_000_000), "has more than 262,144 bytes"),
    ],
)
def test_what_cannot_be_shown_whole_says_why_and_is_never_trusted(trust, project, make, why):
    make(project / "AGENTS.md")
    (file,) = trust.shown().files
    assert (file.sha256, file.state) == ("", "new")
    assert why in file.text
    trust_all(trust)
    assert trust.read("AGENTS.md") is None
    assert trust.untrusted(["AGENTS.md"]) == ("AGENTS.md",)


def test_a_file_of_the_largest_size_is_shown_whole(trust, project):
    write(project, "AGENTS.md", "x" * MAX_FILE_BYTES)
    trust_all(trust)
    assert len(trust.read("AGENTS.md")) == MAX_FILE_BYTES


def test_directory_and_impossible_names_are_no_files(trust, project):
    (project / "AGENTS.md").mkdir()
    names = ("AGENTS.md", "a\0b", "AGENTS.md/x", "a/" * 3000 + "AGENTS.md", "a" * 300)
    assert [trust.look(path) for path in names] == [None] * 5


@pytest.mark.parametrize(
    "data, text",
    [
        (b"a\x00b\x1b[2Jc", "a<U+0000>b<U+001B>[2Jc"),
        ("a\u202eb\u2066".encode(), "a<U+202E>b<U+2066>"),
        ("a\u200bb\u200b\u200c\u200d".encode(), "a<U+200B>b<U+200B><U+200C><U+200D>"),
        ("hi\U000e0068\U000e0069".encode(), "hi<U+E0068><U+E0069>"),
        (
            "\u2764\ufe0f\u200d\U0001f525 \u0646\u0645\u06cc\u200c\u062f".encode(),
            "\u2764\ufe0f\u200d\U0001f525 \u0646\u0645\u06cc\u200c\u062f",
        ),
        (b"\xef\xbb\xbfa\tb\r\nc\rd\n", "a\tb\nc<U+000D>d\n"),
        ("a\u2028b\u0085".encode(), "a<U+2028>b<U+0085>"),
    ],
)
def test_what_would_not_be_seen_is_shown_as_its_number(data, text):
    assert as_text(data) == text


def test_names_that_cannot_be_seen_are_no_names_of_files(trust, project):
    names = (
        ".sanderling/commands/x\udcff.md",
        ".sanderling/commands/y\nz.md",
        "src\x1b[2J/AGENTS.md",
    )
    for name in (*names, "src\u202e/AGENTS.md", "d\udcff/AGENTS.md", "Grüße/AGENTS.md"):
        write(project, name)
    assert [trust.look(name) for name in (*names, "d\udcff/AGENTS.md")] == [None] * 4
    assert list(states(trust)) == ["Grüße/AGENTS.md"]
    trust_all(trust)
    assert trust.read("Grüße/AGENTS.md")


def test_model_is_told_what_the_person_was_shown(trust, project):
    write(project, "AGENTS.md", "Be kind.\U000e0042\u202e\n")
    (file,) = trust.shown().files
    trust_all(trust)
    assert trust.read("AGENTS.md") == file.text == "Be kind.<U+E0042><U+202E>\n"


def test_changes_within_a_moment_and_of_the_same_size_are_seen(project):
    reader = TrustReader(str(project))
    path = write(project, "AGENTS.md", "0")
    for number in range(200):
        path.write_text(str(number % 10))
        assert reader.read(str(path)).text == str(number % 10)


def test_all_kinds_of_files_are_shown_and_no_others(trust, project):
    expected = [
        *("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", ".sanderling.toml", ".mcp.json"),
        *(".sanderling/commands/fix.md", ".sanderling/commands/git/pr.md", "src/api/AGENTS.md"),
    ]
    for name in expected:
        write(project, name)
    for name in ("README.md", "src/agents.md", ".sanderling/notes.md", "node_modules/x/AGENTS.md"):
        write(project, name)
    for name in (".git/AGENTS.md", ".venv/CLAUDE.md", "target/AGENTS.md"):
        write(project, name)
    assert sorted(states(trust)) == sorted(expected)


def test_imports_are_shown_after_the_file_that_imports_them(trust, project):
    write(project, "AGENTS.md", "@docs/style.md\n@docs/none.md\n@../out.md\n")
    write(project, "docs/style.md", "@deep.md and @style.md\n")
    write(project, "docs/deep.md", "@../AGENTS.md\n")
    write(project.parent, "out.md")
    assert list(states(trust)) == ["AGENTS.md", "docs/style.md", "docs/deep.md"]


@pytest.mark.parametrize("directory", ["src", "vendor"])
def test_imports_of_a_file_that_was_asked_for_by_itself_are_shown(trust, project, directory):
    write(project, f"{directory}/AGENTS.md", "@../b.md")
    write(project, "b.md", "@c.md")
    write(project, "c.md")
    trust.untrusted([f"{directory}/AGENTS.md", "b.md"])
    assert list(states(trust)) == [f"{directory}/AGENTS.md", "b.md", "c.md"]


def test_imports_deeper_than_five_are_not_shown(trust, project):
    write(project, "AGENTS.md", "@1.md")
    for depth in range(1, 8):
        write(project, f"{depth}.md", f"@{depth + 1}.md")
    assert list(states(trust)) == ["AGENTS.md", *(f"{depth}.md" for depth in range(1, 6))]


def test_instructions_that_are_not_found_are_shown_once_they_were_asked_for(trust, project):
    hidden = "node_modules/x/AGENTS.md"
    write(project, hidden)
    assert states(trust) == {}
    assert trust.read(hidden) is None
    assert states(trust) == {hidden: "new"}
    trust_all(trust)
    assert trust.read(hidden)


def test_what_is_trusted_stays_among_the_shown(state, project):
    write(project, "vendor/x/AGENTS.md")
    first = Trust(str(state), str(project))
    first.look("vendor/x/AGENTS.md")
    trust_all(first)
    assert states(Trust(str(state), str(project))) == {"vendor/x/AGENTS.md": "trusted"}


@prove
def test_search_is_bounded(tmp_path):
    deep = "/".join("d" for _ in range(MAX_DEPTH + 1))
    write(tmp_path / "deep", f"{deep}/AGENTS.md")
    write(tmp_path / "deep", f"{deep[2:]}/AGENTS.md")
    assert find_files(str(tmp_path / "deep"), {"AGENTS.md"}.__contains__) == [
        f"{deep[2:]}/AGENTS.md"
    ]
    (tmp_path / "wide").mkdir()
    for number in range(MAX_ENTRIES + 10):
        (tmp_path / "wide" / str(number)).touch()
    assert len(find_files(str(tmp_path / "wide"), lambda _: True)) == MAX_ENTRIES


def test_search_does_not_follow_links_to_directories(tmp_path):
    write(tmp_path, "a/AGENTS.md")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    assert find_files(str(tmp_path), {"AGENTS.md"}.__contains__) == ["a/AGENTS.md"]


@prove
def test_more_text_than_can_be_looked_at_is_not_shown_and_not_trusted(trust, project):
    for number in range(20):
        write(project, f"{number:02}/AGENTS.md", "x" * MAX_FILE_BYTES)
    files = trust.shown().files
    assert sum(len(file.text) for file in files) < 5 << 20
    trust_all(trust)
    assert trust.read("00/AGENTS.md")
    assert [file.path for file in files if not file.sha256] == list(
        trust.untrusted(file.path for file in files)
    )


@pytest.mark.parametrize("project", ["home/me", "home", "/"])
def test_home_and_what_holds_it_is_never_trusted(tmp_path, monkeypatch, project):
    home = tmp_path / "home" / "me"
    write(home, "AGENTS.md")
    monkeypatch.setenv("HOME", str(home))
    trust = Trust(str(tmp_path / "state"), str(tmp_path / project))
    assert "contains your home directory" in trust.refusal
    assert trust.shown().refusal == trust.refusal
    assert trust.shown().files == ()
    with pytest.raises(ConfigError, match="contains your home directory"):
        trust.trust({"AGENTS.md": sha256(b"Be kind.\n").hexdigest()})
    assert not (tmp_path / "state").exists()


def test_trust_from_before_does_not_count_where_nothing_can_be_trusted(state, project, monkeypatch):
    write(project, "AGENTS.md")
    trust_all(Trust(str(state), str(project)))
    monkeypatch.setenv("HOME", str(project))
    assert Trust(str(state), str(project)).read("AGENTS.md") is None


def test_home_of_the_account_counts_whatever_the_environment_says(tmp_path, monkeypatch):
    import pwd

    monkeypatch.setenv("HOME", str(tmp_path))
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert "home directory" in Trust(str(tmp_path / "state"), home).refusal


def test_state_directory_may_not_lie_in_the_project(project, tmp_path):
    write(project, "AGENTS.md")
    trust = Trust(str(project / "state"), str(project))
    assert "is inside it" in trust.refusal
    (tmp_path / "link").symlink_to(project)
    assert "is inside it" in Trust(str(tmp_path / "link" / "state"), str(project)).refusal
    with pytest.raises(ConfigError, match="Move the state directory"):
        trust.trust({})


def store_file(state: Path) -> Path:
    (path,) = (state / "trust").glob("*.json")
    return path


def test_store_is_private(trust, state, project):
    write(project, "AGENTS.md")
    trust_all(trust)
    assert stat.S_IMODE(store_file(state).stat().st_mode) == 0o600
    assert stat.S_IMODE((state / "trust").stat().st_mode) == 0o700
    assert json.loads(store_file(state).read_text())["version"] == 1


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"version":1,"files":{"AGENTS.md":1}}', "is damaged"),
        (b'{"version":1,"files":{"AGENTS.md":"\xff"}}', "is damaged"),
        (b'{"version":2,"files":{}}', "was written by another version"),
        (b"[" * 500_000, "is damaged"),
    ],
)
def test_damaged_store_says_so_and_is_mended_by_trusting_again(trust, state, project, data, why):
    write(project, "AGENTS.md")
    trust_all(trust)
    store_file(state).write_bytes(data)
    assert trust.read("AGENTS.md") is None
    assert why in trust.problem
    assert states(trust) == {"AGENTS.md": "new"}
    trust_all(trust)
    assert (trust.problem, trust.read("AGENTS.md")) == ("", "Be kind.\n")


def test_store_that_cannot_be_written_is_an_error(trust, state):
    write(state, "trust", "no directory")
    with pytest.raises(ConfigError, match="cannot store"):
        trust.trust({})


def test_own_files_are_trusted_wherever_their_links_lead(trust, tmp_path):
    write(tmp_path, "dotfiles/AGENTS.md", "Mine.")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "AGENTS.md").symlink_to(tmp_path / "dotfiles" / "AGENTS.md")
    file = OwnFiles(str(tmp_path / "config"), trust).look("AGENTS.md")
    assert (file.state, file.text) == ("trusted", "Mine.")


def test_own_files_that_lie_in_the_project_need_trust_like_its_others(trust, project, tmp_path):
    write(project, "sanderling/AGENTS.md", "Mine.")
    (tmp_path / "config").symlink_to(project / "sanderling")
    own = OwnFiles(str(tmp_path / "config"), trust)
    assert (own.look("AGENTS.md").path, own.look("AGENTS.md").state) == (
        "sanderling/AGENTS.md",
        "new",
    )
    trust_all(trust)
    assert own.look("AGENTS.md").state == "trusted"


@pytest.mark.parametrize(
    "make, why", [(os.mkfifo, "is not a regular file"), (make_loop, "cannot be read")]
)
def test_own_file_that_cannot_be_read_says_why(trust, tmp_path, make, why):
    make(tmp_path / "AGENTS.md")
    file = OwnFiles(str(tmp_path), trust).look("AGENTS.md")
    assert (file.state, file.sha256) == ("trusted", "")
    assert file.text.startswith(f"[AGENTS.md {why}")


def imports(text: str) -> list[Import]:
    return [found for _, all_of_line in lines_with_imports(text) for found in all_of_line]


@pytest.mark.parametrize(
    "text, found",
    [
        ("@docs/a.md", [Import("docs/a.md", is_alone=True)]),
        ("  - @docs/a.md  ", [Import("docs/a.md", is_alone=True)]),
        ("    - @docs/a.md", [Import("docs/a.md", is_alone=True)]),
        ("See @README.md, and (@a.json).", [Import("README.md", False), Import("a.json", False)]),
        ("me@example.com, `@a`, ``@b ` @c``", []),
        ("```\n@a\n```\n@b", [Import("b", is_alone=True)]),
        ("~~~~ md\n@a\n~~~\n@a\n~~~~~\n@b", [Import("b", is_alone=True)]),
        ("```\n@a\n``` x\n@a", []),
        ("    @decorator\n\t@decorator", []),
        ("@", []),
    ],
)
def test_imports_are_found_outside_of_code(text, found):
    assert imports(text) == found
    assert "\n".join(line for line, _ in lines_with_imports(text)) == text


@given(st.text(st.sampled_from("`~ @a.\n\t-*(")))
def test_no_line_is_lost(text):
    assert "\n".join(line for line, _ in lines_with_imports(text)) == text


@pytest.mark.parametrize(
    "line", ["`" * 200_000, "a".join(map("`".__mul__, range(500))), "@" * 200_000]
)
def test_line_that_is_made_to_take_forever_does_not(line):
    assert imports(f"x {line} @a.md")[-1] == Import("a.md", is_alone=False)


@pytest.mark.parametrize(
    "importing, mention, path",
    [
        ("AGENTS.md", "docs/a.md", "docs/a.md"),
        ("docs/AGENTS.md", "./a.md", "docs/a.md"),
        ("docs/AGENTS.md", "../a.md", "a.md"),
        ("AGENTS.md", "../../etc/passwd", None),
        ("docs/AGENTS.md", "../../a.md", None),
        ("AGENTS.md", "/etc/passwd", None),
        ("AGENTS.md", "~/.ssh/id_rsa", None),
        ("docs/AGENTS.md", "..", None),
    ],
)
def test_import_is_relative_to_the_importing_file_and_stays_inside(importing, mention, path):
    assert imported_path(importing, mention) == path


def test_what_a_project_would_allow_is_told_beside_its_file(project, trust):
    rule = '[[permissions]]\naction = "allow"\ntool = "bash"\ncommand = "make"\n'
    write(project, ".sanderling.toml", rule)
    (file,) = trust.shown().files
    assert file.allowed == ("run `make` with any arguments",)
