"""The pipe that ends a command line: found without knowing the grammar, and its failures."""

import pytest

from sanderling.tools.commands.pipes import failed_parts, last_pipe, statuses_in


@pytest.mark.parametrize(
    "command, names",
    [
        ("npx jest 2>&1 | tail -40", "npx tail"),
        ("cd x && FOO=1 /usr/bin/make test |& tee log | cat;\n", "make tee cat"),
        ("a; time b | c # d | e", "b c"),
        ("for i in 1 2; do echo $i; done | sort", "done sort"),
        ("a 'x | y' \"$(date) | z\" \\| > out | b", "a b"),
        ("python3 - <<'E' | tail\nprint(1 | 2)\nE", "python3 tail"),
        ("cat <<-A <<B | wc\n1\n\tA\n2\nB\n", "cat wc"),
        ("cat <<<x | wc", "cat wc"),
        ("echo a#b | c", "echo c"),
        ("a | b |\n\nc", "a b c"),
    ],
)
def test_the_pipe_that_ends_a_line_is_found(command, names):
    assert [part.name for part in last_pipe(command)] == names.split()


@pytest.mark.parametrize(
    "command",
    [
        "a",
        "a || b",
        "a | b && c",
        "a | b || true",
        "x | y && a | b",
        "a | b; c",
        "a | b &",
        "a |",
        "a | b |",
        "| a",
        "a | b \\",
        "a | 'b",
        'a | "b',
        "a | $(b",
        "a | `b`",
        "a | b)",
        "if a | b; then c; fi",
        "cat <<E | a\nno end",
        "cat <<E | a",
        "echo 'a | b'",
        "set -ev; a | b",
        "trap 'echo $BASH_COMMAND' DEBUG; a | b",
    ],
)
def test_where_no_pipe_ends_a_line_or_it_is_unclear_there_is_none(command):
    assert last_pipe(command) == ()


@pytest.mark.parametrize(
    "command, statuses, status, failed",
    [
        ("jest | tail", (1, 0), 0, "1 in the pipe before tail"),
        ("a | b | c", (2, 3, 0), 0, "2 in the pipe before b; 3 in the pipe before c"),
        ("a | grep x", (2, 1), 1, "2 in the pipe before grep"),
        ("a | (b; c)", (2, 0), 0, "2 in the pipe before the next part"),
        ("yes | head", (141, 0), 0, ""),
        ("grep x f | wc", (1, 0), 0, ""),
        ("grep x f | wc", (2, 0), 0, "2 in the pipe before wc"),
        ("find . | xargs grep x | wc", (0, 123, 0), 0, ""),
        ("find / 2>/dev/null | head", (1, 0), 0, ""),
        ("jest 2>/dev/null | head", (1, 0), 0, "1 in the pipe before head"),
        ("set -o pipefail; a | b", (5, 0), 5, ""),
        ("a | b", (1,), 0, ""),
        ("a | b", (), 0, ""),
    ],
)
def test_failures_before_the_end_are_named_and_answers_are_not(command, statuses, status, failed):
    assert failed_parts(command, statuses, status) == failed


@pytest.mark.parametrize(
    "text, statuses", [("1 0", (1, 0)), ("", ()), ("1 x", ()), ("-1 0", ()), ("9999 0", ())]
)
def test_only_numbers_are_taken_from_a_report(text, statuses):
    assert statuses_in(text) == statuses
