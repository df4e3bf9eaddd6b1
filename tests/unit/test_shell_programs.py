"""Which commands do more than their first words say: they run another, write, or hold lines of their own."""

import pytest

from sanderling.permissions.shell.grammar import parse
from sanderling.permissions.shell.programs import (
    all_commands,
    code_files,
    core_words,
    runner_length,
    runs_more,
    runs_unseen,
)
from sanderling.tools.commands.variables import is_decisive


@pytest.mark.parametrize(
    "line",
    [
        "ls -la", "git status", "git --no-pager log", "git -C sub diff", "find . -name x -type f", "sed -n 1,5p x", "sed 's/a/b/g;$d' x",
        "awk -F: '{print $1}' x", "python -m pytest -q", "python x.py -c y", "bash run.sh -c", "npm test -- --prefix x", "make -j4 all",
        "tar -xzf x", "uv run pytest", "test -n x", "printf '%s\\n' a", "sort -k2 -n x", "env", "docker compose ps", "node --test",
        "date +%F", "read -r line", "go test ./...", '[ "$x" = y ]', 'test -f "$x"', "rg -e foo", "curl -sS http://x",
    ],
)  # fmt: skip
def test_plain_command_does_what_its_words_say(line):
    (command,) = [command for command in parse(line).commands if command.words]
    assert runs_more(command.words) == ""


@pytest.mark.parametrize(
    "line, why",
    [
        ("env A=1 ls", "'env'"),
        ("find . -delete", "'-delete'"),
        ("find . $x", "may be an option"),
        ("git diff --outp=x", "'--outp=x'"),
        ("git -c a=b log", "before its subcommand"),
        ("python -c x", "'-c'"),
        ("bash", "what it reads"),
        ("npx", "'npx'"),
        ("uv run python -c x", "'-c'"),
        ("sed -i s/a/b/ x", "'-i'"),
        ("awk 'BEGIN{system(1)}'", "'awk'"),
        ("make A=b", "'A=b'"),
        ("/usr/bin/sudo ls", "'sudo'"),
        ("uv run uv run ls", "'uv'"),
        ("sed -nE 'w x' y", "'sed'"),
        ("uniq a -- -b", "second file"),
        ("xxd a -b", "second file"),
        ('printf "%\'n" x', "'printf'"),
        ("printf '%.-3n' x", "'printf'"),
        ("make 'A = b'", "'A = b'"),
        ('make A"$x"', "may be an option"),
        ("git a/b", "'git a/b'"),
        ("git config core.pager x", "'git config'"),
        ("git remote-ext x y", "'git remote-ext'"),
        ("npm test -script-shell=x", "'--script-shell=x'"),
        ("python3.11 -c x", "'-c'"),
        ("lua5.4 -e x", "'-e'"),
        ("gcc-12 -specs=x", "'-specs=x'"),
        ("python /dev/stdin", "what it reads"),
        ("bash ../../dev/fd/0", "what it reads"),
        ("kubectl get x --kubeconfig=y", "'--kubeconfig=y'"),
        ("docker compose -f a -f b exec c d", "in a container"),
        ("sqlite3 x", "what it reads"),
        ("sqlite3 x \"select edit('a', 'b')\"", "functions"),
        ("go build -ldflags=-extld=x", "linker"),
        ("curl -w '%output{x}' y", "any file"),
        ('tar x"$y" z', "letters"),
    ],
)
def test_command_that_does_more_says_how(line, why):
    (command,) = [command for command in parse(line).commands if command.words]
    assert why in runs_more(command.words)


def test_option_that_is_cut_short_is_the_same():
    for length in range(3, len("--output") + 1):
        assert runs_more(("sort", "--output"[:length] + "=x", "y"))
    assert not runs_more(("sort", "--", "y"))


def test_harmless_options_of_git_are_left_out():
    assert core_words(("git", "--no-pager", "-C", "a", "log", "-C")) == (
        ("git", "log", "-C"),
        ("a",),
    )
    assert core_words(("git", "-c", "a=b", "log"))[0] == ("git", "-c", "a=b", "log")
    assert core_words(("ls", "-C", "a")) == (("ls", "-C", "a"), ())


@pytest.mark.parametrize(
    "line, core, directories",
    [
        ("make -j4 -C a test", "make test", ("a",)),
        ("make -C SHELL=x test", "make -C SHELL=x test", ()),
        ("make -C -f test", "make -C -f test", ()),
        ("make -W -C x", "make -W -C x", ()),
        ("npm --prefix a -s test --prefix b", "npm test --prefix b", ("a",)),
        ("go -C a test", "go test", ("a",)),
        ("/usr/bin/make -C a", "/usr/bin/make -C a", ()),
    ],
)
def test_directory_before_a_subcommand_is_told_apart(line, core, directories):
    assert core_words(tuple(line.split())) == (tuple(core.split()), directories)


@pytest.mark.parametrize(
    "line, is_unseen",
    [
        ("sh", True),
        ("sudo -u me sh", True),
        ("env A=1 bash -s x", True),
        ("uv run python -", True),
        ("xargs sh", True),
        (". /dev/stdin", True),
        ("bash x.sh", False),
        ("bash -c x", False),
        ("sudo apt install python", False),
        ("command -v python", False),
        ("xargs rm", False),
        ("sh --version", False),
    ],
)
def test_what_runs_its_input_is_not_seen(line, is_unseen):
    assert runs_unseen(tuple(line.split())) is is_unseen


@pytest.mark.parametrize(
    "line, files",
    [
        ("python a.py b", ("a.py",)),
        ("uv run python -u a.py", ("a.py",)),
        ("python -m x y", ()),
        ("python -m pytest a/b.py::c -k d/e", ("a/b.py", "d/e")),
        ("pytest a -q ..", ("a", "..")),
        ("cmake -S a -B b", ("a", "b")),
        ("cmake -S/a -Bb --build c", ("c", "/a", "b")),
        ("python a.py -m", ("a.py",)),
        ("ls a", ()),
    ],
)
def test_code_that_a_command_runs_is_told(line, files):
    assert code_files(tuple(line.split())) == files


def test_runner_is_as_long_as_its_words():
    assert runner_length(("uv", "run", "pytest")) == 2
    assert runner_length(("npx", "tsc")) == 1
    assert runner_length(("uv", "sync")) == 0


def test_lines_inside_of_lines_are_looked_into():
    seen = all_commands(parse("bash -c 'a; sh -c \"b; eval c\\;d\"' && find . -exec e ';'"))
    assert {command.words[0] for command in seen.commands} >= {"a", "b"}
    assert seen.problem == ""
    assert all_commands(parse("bash -c 'a $(b)'")).problem != ""
    assert all_commands(parse("bash -c 'a <<E\nb c\nE'")).inputs == ("b c\n",)
    assert all_commands(parse("echo 'a; b'")).commands == parse("echo 'a; b'").commands


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "BASH_ENV", "ENV", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"),
        *("GIT_EXTERNAL_DIFF", "GIT_DIR", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS"),
        *("NODE_PATH", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "PAGER", "LESSOPEN", "EDITOR"),
        *("CDPATH", "PS4", "PROMPT_COMMAND", "GCONV_PATH", "LOCPATH", "RIPGREP_CONFIG_PATH"),
        *("npm_config_script_shell", "MAKEFLAGS", "RUSTC_WRAPPER", "GOFLAGS", "PYTEST_ADDOPTS"),
        *("TAR_OPTIONS", "ANYTHING", "path"),
    ],
)
def test_variable_that_is_not_known_to_be_harmless_is_decisive(name):
    assert is_decisive(name, "1")
    assert is_decisive(name, None)


@pytest.mark.parametrize(
    "name, value", [("x", "/any $thing"), ("LANG", "C.UTF-8"), ("CI", "1"), ("NODE_ENV", "test"), ("TZ", None)]
)  # fmt: skip
def test_variable_that_only_changes_how_programs_print_is_not_decisive(name, value):
    assert not is_decisive(name, value)


def test_harmless_variable_with_a_path_in_it_is_decisive():
    assert is_decisive("TZ", "../x")
    assert is_decisive("LC_ALL", "/x")
