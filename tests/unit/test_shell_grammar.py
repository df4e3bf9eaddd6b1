"""What a line says, or why it is not understood: held against bash itself, which is the one that runs it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.conftest import DEADLINE_S, examples, little_work, prove_rest

from sanderling.permissions.shell.grammar import MAX_CHARACTERS, Opaque, SimpleCommand, parse
from sanderling.permissions.shell.programs import all_commands, runs_more

pytestmark = pytest.mark.guard

VALUE, OPTION = Opaque(can_be_option=False), Opaque(can_be_option=True)


def words(line: str) -> list[tuple]:
    parsed = parse(line)
    assert parsed.problem == "", parsed.problem
    return [command.words for command in parsed.commands if command.words]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("ls", [("ls",)]),
        ("  ls\t-la  ", [("ls", "-la")]),
        ("a && b || c; d | e |& f\ng", [(name,) for name in "abcdefg"]),
        ("! a", [("a",)]),
        ("(a; b) && { c; }", [("a",), ("b",), ("c",)]),
        ("if a; then b; elif c; then d; else e; fi", [(name,) for name in "abcde"]),
        ("for x in 1 2; do a; done", [("a",)]),
        ("while a; do b; done; until c; do d; done", [(name,) for name in "abcd"]),
        ("case x in a|b) c;; *) d;& e) f;;& g) h;; esac", [(name,) for name in "cdfh"]),
        ("a 'b c' \"d e\" f\\ g", [("a", "b c", "d e", "f g")]),
        ("a 'b'\"c\"d\\e", [("a", "bcde")]),
        ('a "b\\"c\\\\d\\e\\$f"', [("a", 'b"c\\d\\e$f')]),
        ("a 'b\\' \"'\" '\"'", [("a", "b\\", "'", '"')]),
        ("a '' \"\"", [("a", "", "")]),
        ("a # b; c\nd", [("a",), ("d",)]),
        ("a b#c '#d' \\#e", [("a", "b#c", "#d", "#e")]),
        ("a 'x\ny' \"x\n# y\"", [("a", "x\ny", "x\n# y")]),
        ("a é — 漢字", [("a", "é", "—", "漢字")]),
        ("git diff HEAD@{1} @{u} {} x^ HEAD~2 a:b %d", [("git", "diff", "HEAD@{1}", "@{u}", "{}", "x^", "HEAD~2", "a:b", "%d")]),
        ("a 'foo$' \"bar$\"", [("a", "foo$", "bar$")]),
        ("a !b a=b --c=d", [("a", "!b", "a=b", "--c=d")]),
        ("[ -f x ] && [ ! -d 'y z' ]", [("[", "-f", "x", "]"), ("[", "!", "-d", "y z", "]")]),
        ("export A=b; unset C", [("export", "A=b"), ("unset", "C")]),
        ("a ~/b", [("a", "~/b")]),
        ("a \\\n  b \\\n\tc", [("a", "b", "c")]),
        ("a && \\\nb # c \\\nc", [("a",), ("b",), ("c",)]),
        ("a 'b \\\nc'", [("a", "b \\\nc")]),
        ("a \\\n\\\nb", [("a", "b")]),
        ("a <<'E'\nIt's $(b) `c`\n'E'\nE\nb", [("a",), ("b",)]),
        ('a <<"E" && b | c\n(\nE\n', [("a",), ("b",), ("c",)]),
        ("a <<E |\nb\nE\nc", [("a",), ("c",)]),
        ("a - <<-'E'\n\tb\n\tE", [("a", "-")]),
        ("while a; do b; done <<'E'\nE", [("a",), ("b",)]),
        ("a \"$(cat <<'E'\nIt's $(b) `c` \"\\\n  )\n\nE\n)\" b", [("a", "It's $(b) `c` \"\\\n  )", "b"), ("cat",)]),
        ('a "b $(cat <<"E"\n\nE\n) \\" c" && b', [("a", 'b  " c'), ("b",), ("cat",)]),
        ('a "$(cat<<E\nplain "text"\n\nE\n\n)"', [("a", 'plain "text"'), ("cat",)]),
        ("a \"$(cat <<-'E'\n\t\tb\n c\n\tE\n)\"", [("a", "b\n c"), ("cat",)]),
        ("a '$(cat <<'E'\nx\nE\n)'", [("a", "$(cat <<E\nx\nE\n)")]),
        ("", []),
        ("# only a comment", []),
    ],
)  # fmt: skip
def test_commands_of_a_line_are_its_words_after_quote_removal(line, expected):
    assert words(line) == expected


@pytest.mark.parametrize(
    "line, word",
    [
        ("a $x", OPTION),
        ("a ${x}", OPTION),
        ("a b$x", OPTION),
        ("a *", Opaque(can_be_option=True)),
        ("a *.py", Opaque(can_be_option=True)),
        ("a [ab]", Opaque(can_be_option=True)),
        ("a src/*.py", Opaque(can_be_option=False)),
        ("a -*", Opaque(can_be_option=True)),
        ('a "$x"', Opaque(can_be_option=True, can_be_many=False)),
        ('a "b$x"', Opaque(can_be_option=False, can_be_many=False)),
        ('a "-$x"', Opaque(can_be_option=True, can_be_many=False)),
        ('a src/"$x"', Opaque(can_be_option=False, can_be_many=False)),
        ('a "it: $?"', Opaque(can_be_option=False, can_be_many=False)),
    ],
)
def test_word_that_the_shell_makes_is_opaque_and_says_what_it_may_become(line, word):
    assert words(line) == [("a", word)]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("a >b", [("", ">", "b")]),
        ("a 2>&1 >>b", [("2", ">&", "1"), ("", ">>", "b")]),
        ("a &>b <c", [("", "&>", "b"), ("", "<", "c")]),
        ("a 2>&- >|b", [("2", ">&-", ""), ("", ">|", "b")]),
        ("2>b a", [("2", ">", "b")]),
        ("a >'b c' 3>d", [("", ">", "b c"), ("3", ">", "d")]),
        ("{ a; } >b", [("", ">", "b")]),
        ("for x in y; do a; done >b", [("", ">", "b")]),
        ("a >$x", [("", ">", OPTION)]),
    ],
)
def test_redirections_are_told_with_their_target(line, expected):
    parsed = parse(line)
    assert parsed.problem == ""
    found = [redirection for command in parsed.commands for redirection in command.redirections]
    assert [(r.descriptor, r.operator, r.target) for r in found] == expected


def test_assignments_are_told_with_their_value():
    (command,) = parse("A=1 B='x y' C= D=$x ls").commands
    assert command.assignments == (("A", "1"), ("B", "x y"), ("C", ""), ("D", OPTION))
    assert command.words == ("ls",)
    assert [c.assignments for c in parse("a=1; b=2 c=3").commands] == [
        (("a", "1"),),
        (("b", "2"),),
        (("c", "3"),),
    ]
    assert parse("for f in x; do ls; done").commands[0].assignments == (("f", OPTION),)


@pytest.mark.parametrize(
    "line, why",
    [
        ("a $(b)", "uses command substitution"),
        ("a `b`", "uses command substitution"),
        ('a "x $(b)"', "uses command substitution"),
        ("a <(b)", "process substitution"),
        ("a $((1+1))", "computes"),
        ("((x=1))", "computes"),
        ("for ((;;)); do a; done", "computes"),
        ("a {b,c}", "brace expansion"),
        ("a {1..3}", "brace expansion"),
        ("f() { a; }", "defines a function"),
        ("function f { a; }", "defines a function"),
        ("a <<E\n$(b)\nE", "here-document"),
        ("a <<E\n`b`\nE", "here-document"),
        ("a <<E\n$b\nE", "here-document"),
        ("a <<E\nb\\\nE\nE", "continues a line"),
        ("a <<'E'\nb", "grammar"),
        ("a <<'E'\nb\nE ", "here-document"),
        ("a <<'E'\nEb)\nE", "grammar"),
        ("a <<'E' <<'F'\nE\nF", "grammar"),
        ("a 3<<'E'\nb\nE", "here-document"),
        ('a "$(cat <<E\n$(b)\nE\n)"', "uses command substitution"),
        ("a \"$(cat <<'E'\nb\nE) c\nE\n)\"", "uses command substitution"),
        ("a \"$(cat <<'E'\nb\nE\nb)\"", "uses command substitution"),
        ("a \"$(cat <<'E' | b\nx\nE\n)\"", "uses command substitution"),
        ("a \"$(cat - <<'E'\nx\nE\n)\"", "uses command substitution"),
        ("a $(cat <<'E'\nx\nE\n)", "uses command substitution"),
        ("a <<< b", "here-string"),
        ("a &", "background"),
        ("a & b", "background"),
        ("[[ a ]]", "[[ ]]"),
        ("select x in a; do b; done", "menu"),
        ("a $'b'", "$'…'"),
        ('a $"b"', "more of the shell's language"),
        ("x=(a b)", "arrays"),
        ("x[0]=1 a", "sets a variable"),
        ("$x", "only known when it runs"),
        ("*", "only known when it runs"),
        ('a=b-c=d "a b"', "not plain"),
        ("a =b", "'='"),
        ("a\\\nb", "continues a line"),
        ("a b;\\\n;c", "continues a line"),
        ('a "b\\\nc"', "continues a line"),
        ("a\\ \\\nb", "continues a line"),
        ("a \\", "grammar"),
        ("a\rb", "control characters"),
        ("a\x00b", "control characters"),
        ("a\x1b[0m", "control characters"),
        ("a\u202eb", "invisible"),
        ("a\u200bb", "invisible"),
        ("a\u00a0b", "invisible"),
        ("a\U000e0041", "invisible"),
        ("a\udc80", "invisible"),
        ("a " * 5_000 + "b", f"{MAX_CHARACTERS:,} characters"),
        ("a|" * 600 + "b", "too many parts"),
        ("( " * 200 + "a" + ")" * 200, "nested too deeply"),
        ("a '", "grammar"),
        ("a && ", "grammar"),
        ("if a; then b", "grammar"),
        ("a > b c", "words follow a redirection"),
        ("a >&--delete", "words follow a redirection"),
        ("a >& --delete", "more of the shell's language"),
        ("a -2>&1", "more of the shell's language"),
        ("a ${x:-b}", "more of the shell's language"),
        ("a $1", "more of the shell's language"),
        ("a @(b|c)", ""),
        ("a ${!x}", ""),
        ("a ${x@P}", ""),
    ],
)  # fmt: skip
def test_what_is_not_understood_says_why(line, why):
    assert parse(line).problem != ""
    assert why in parse(line).problem


def test_commands_are_found_even_where_the_line_is_not_understood():
    def names(line: str) -> set:
        return {command.words[0] for command in parse(line).commands if command.words}

    assert names("a $(b `c`) <(d) &") >= {"a", "b", "c", "d"}
    assert names("f() { a; }; f") >= {"a", "f"}
    assert names("a ' ; b x") >= {"a", "b"}
    assert names("a \\\n; 'b' c") >= {"a", "b"}
    assert all(command.is_guess for command in parse("a ' ; b x").commands)


# --- Against bash --------------------------------------------------------------------------------------------------------------

BASH = shutil.which("bash")
NAMES = "abc"
RECORD = """() { printf '%s\\1' "$FUNCNAME" "$@" $'\\2' >>"$RECORD_IN"; }"""
CAT = """() { while IFS= read -r line; do printf '%s\\n' "$line"; done; }"""
UNKNOWN = """() { printf '%s\\1' "$@" $'\\2' >>"$RECORD_IN"; }"""


def run_in_bash(line: str, directory: Path) -> tuple[list[list[str]], set[str]]:
    """What bash ran for the line, and the files that it made. There is nothing to run but functions that note their words."""
    record, here = directory / "record", directory / "here"
    record.write_bytes(b"")
    here.mkdir()
    functions = {f"BASH_FUNC_{name}%%": RECORD for name in NAMES}
    environment = functions | {
        "BASH_FUNC_command_not_found_handle%%": UNKNOWN,
        "PATH": "/nonexistent",
        "RECORD_IN": str(record),
        "BASH_FUNC_cat%%": CAT,
        "v": "b -n",
    }
    subprocess.run(
        [str(BASH), "--norc", "-c", line], cwd=here, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    runs = record.read_bytes().decode(errors="replace").split("\2\1")[:-1]
    made = {path.name for path in here.iterdir()}
    shutil.rmtree(here)
    return [run.split("\1")[:-1] for run in runs], made


def is_said(argv: list[str], said: tuple) -> bool:
    """Whether these words are what was said; what is opaque may be any number of them."""
    if not said:
        return not argv
    if isinstance(said[0], Opaque):
        most = len(argv) if said[0].can_be_many else min(1, len(argv))
        return any(is_said(argv[count:], said[1:]) for count in range(most + 1))
    return bool(argv) and argv[0] == said[0] and is_said(argv[1:], said[1:])


def check_against_bash(line: str, directory: Path) -> bool:
    """Whether the line was understood; if it was, bash must have run nothing but what was understood."""
    parsed = parse(line)
    if parsed.problem or any(command.words[:1] == ("time",) for command in parsed.commands):
        return False
    ran, made = run_in_bash(line, directory)
    for argv in ran:
        assert any(is_said(argv, command.words) for command in parsed.commands), (
            line,
            argv,
            parsed,
        )
    targets = [r.target for command in parsed.commands for r in command.redirections]
    if not any(isinstance(target, Opaque) for target in targets):
        assert made <= {target for target in targets if isinstance(target, str)}, (
            line,
            made,
            parsed,
        )
    return True


PIECES = st.sampled_from(
    ["a", "b", "c", "a ", " b ", " ", "  ", "\t", "\n", ";", " ; ", "&&", "||", "|", "|&", "&", "(", ")", "{ ", "; }", "{", "}", ",",
     "'", '"', "\\", "'x y'", '"x y"', "\\ ", "\\;", "#", " #", "!", "! ", "=", "z=1", "z=1 ", "*", "?", "[", "]", "[ ", " ]", "$", "$v",
     "${v}", '"$v"', "$?", "$(b)", "`b`", ">", ">>", "<", "2>", ">&", "&>", "2>&1", ">f", "<<E\n", "\nE\n", "<<<", "if ", "then ", "fi",
     "else ", "for z in ", "do ", "done", "case ", " in ", "esac", ";;", ";&", ") ", "-n", "1", "..", "..", "@", "%", "^", "+", ":", ".",
     "é", "-", "time ", "function ", "() ", "&&\n", "|\n", "<(b)", "((", "))", "$((", "$'", '$"', "@(", "!(", "E", "<<'E'\n", "<<'E' ", "<<-E\n", "\"$(cat <<'E'\n", '\nE\n)"', "E)\n", " \\\n"]
)  # fmt: skip


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@settings(
    max_examples=examples(600),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(PIECES, min_size=1, max_size=12).map("".join))
@example("a >f b")
@example("a >&-n")
@example("a >& -n")
@example("a 2<& -n")
@example("a >&'$(b)'")
@example("a -2>&1")
@example("a >f b c")
@example("a 2>f 3")
@example("a b;#c\nc")
@example("a {b,c}")
@example("a $v")
@example("a [ b ]")
@example("a 'x'\"y\"\\ z|b")
@example("if a; then b; fi>f")
@example("a|b|c\na 2>&1")
@example("a|b\nc>f")
@example("a \"$(cat <<'E'\nE) b #\nE\n)\"")
@example("a \"$(cat <<'E'\nEE\nE;b)\nE\n)\"")
@example('a "$(cat <<\'E\'\n)"; b "\nE\n)"')
@example("a <<'E' |\nb\nE\nc")
@example("a <<-'E'\n E\n\tE\nb")
@example("a \\\n\\\nb")
@example("a b\\ \\\nc")
@example("a 'b' \\\n c")
def test_bash_runs_nothing_but_what_was_understood(tmp_path_factory, line):
    check_against_bash(line, tmp_path_factory.mktemp("bash"))


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_most_plain_lines_are_understood_when_bash_is_asked(tmp_path_factory):
    """Without this, the test above could pass because nothing is understood."""
    for line in (
        *("a b c", "a 'x y' && b|c", "if a; then b; fi", "for z in b c; do a $z; done"),
        *("a >f; b # c", "(a;b) 2>&1", "a \\\n  b", "a <<'E' && b\nIt's $(c)\nE"),
        "a \"$(cat <<'E'\nIt's $(c) `b`\nE\n)\"",
    ):
        assert check_against_bash(line, tmp_path_factory.mktemp("bash")), line


def test_oracle_sees_what_is_not_said(tmp_path):
    ran, made = run_in_bash("a $(b) >f", tmp_path)
    assert ran == [["b"], ["a"]]
    assert made == {"f"}
    assert not is_said(["a", "x"], ("a",))


# --- It never raises, and takes no time ------------------------------------------------------------------------------------------


@settings(max_examples=examples(400), deadline=None)
@given(st.text(max_size=200) | st.lists(PIECES, max_size=60).map("".join))
def test_any_text_is_parsed(line):
    parsed = parse(line)
    for command in all_commands(parsed).commands:
        runs_more(command.words)


LONG = [
    "(", "$(", "{ ", "if a; then ", "'", '"', "a;", "a|", "a&&", "<<a ", "`", '"$(', "[[ ", "a=(", "${", "<(", "((", "case x in ", "!", "a ",
    "\\a", "é", "{a,", "a", "for f in a; do ", "()", "f() ", "$((1+", "a[$(", "\n", "(a;", "> ", ">a ", "'a' ", '"a" ', "$x", "*", "a=b ",
    "#", "@(", "${x:-", "a\n", "a # b\n", ";;", "&", "1>", "$'", "a=", "-", "~", "[", "\\", "x() { ", "else ", "in ", "\t", "<<<a ", "<<'E'\n",
    "\"$(cat <<'E'\n", "\"$(cat <<'E'\nE\n)\"", "\"$(cat <<'E'\nE\n)", "a <<'E'\nE\n", " \\\n", "E\n)",
]  # fmt: skip


@pytest.mark.parametrize("piece", prove_rest(LONG, keep=(0, 1, 2, -1)))
def test_longest_line_is_read_at_once(piece):
    line = (piece * MAX_CHARACTERS)[:MAX_CHARACTERS]
    parse("warm")
    with little_work(1):  # at most 50 ms where nothing else runs
        parse(line)


@pytest.mark.parametrize("piece", prove_rest(LONG, keep=(0, 1, 2, -1)))
def test_deepest_line_is_read_at_once(piece):
    """Just short of what is refused unread."""
    line = piece * min(240, MAX_CHARACTERS // len(piece))
    with little_work(1):  # at most 50 ms where nothing else runs
        all_commands(parse(line))


def test_endless_line_is_not_read_to_its_end():
    with little_work():
        parsed = parse("rm x; " * 2_000_000)
    assert parsed.commands[0].words == ("rm", "x")


def test_grammar_is_loaded_by_the_first_line_and_not_by_the_import():
    code = (
        "import sys, sanderling.permissions.shell.grammar, sanderling.permissions.store; assert 'tree_sitter' not in sys.modules;"
        "sanderling.permissions.shell.grammar.parse('a'); assert 'tree_sitter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_command_keeps_the_text_that_it_was_written_as():
    assert [command.text for command in parse("a  'b' && c").commands] == ["a  'b'", "c"]
    assert isinstance(parse("a").commands[0], SimpleCommand)
    assert re.search("é", parse("a é; b").commands[0].text)
