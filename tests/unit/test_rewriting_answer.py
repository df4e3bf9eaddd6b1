"""The replacement in an answer: what a model puts around it goes, and nothing else."""

import pytest

from sanderling.editor.rewriting.answer import replacement


def lines(answer, original="x = 1", filetype="python"):
    return replacement(answer, original, filetype, is_whole_lines=True)


@pytest.mark.parametrize(
    "answer",
    [
        *("y = 2", "y = 2\n", "\n\ny = 2\n\n\n", "```\ny = 2\n```", "```python\ny = 2\n```\n"),
        *("````py\ny = 2\n````", "~~~\ny = 2\n~~~", "```python\r\ny = 2\r\n```"),
        *("Here is the code:\n\n```python\ny = 2\n```", "Here is the rewritten line:\n\ny = 2"),
        "I changed it.\n\nThe new line is:\n```python\ny = 2\n```\nIt has another name now.\n",
        *("Sure, as you wish:\n```\ny = 2\n```", "```python\ny = 2", "```python\ny = 2\n``"),
    ],
)
def test_what_stands_around_an_answer_goes(answer):
    assert lines(answer) == "y = 2"


@pytest.mark.parametrize("answer", ["`", "``", "```", "```pyth", "```python\n", "~~~"])
def test_a_fence_that_is_only_begun_shows_nothing(answer):
    assert lines(answer) == ""


@pytest.mark.parametrize(
    "answer, original, filetype",
    [
        # two blocks: which of them is meant, the person decides
        ("```python\na\n```\nor\n```python\nb\n```", "x", "python"),
        # fences that belong to the code
        ('"""\nDoc:\n\n    >>> f()\n```sh\nls\n```\n"""', "x", "python"),
        ('def f\n@doc """\n```\niex\n```\n"""', "x", "elixir"),
        ("a = 1\nb = 2\nc = 3\nd = 4\n```\nwhat\n```", "x", "python"),
        # a file of prose has fences and introductions of its own
        ("```sh\nls\n```", "Some words.", "markdown"),
        ("Here is how it is done:\n\nOne does it.", "It is done.", "markdown"),
        ("```sh\nls -l\n```", "```sh\nls\n```", "markdown"),
        ("```sh\nls -l\n```", "```sh\nls\n```", "lua"),
        ("Do this:\n```sh\nls\n```\nand then that.", "Do this.", "text"),
        ("```\nls\n```", "", ""),
    ],
)
def test_what_may_be_meant_so_stays(answer, original, filetype):
    assert replacement(answer, original, filetype, is_whole_lines=True) == answer


def test_a_fence_in_a_fence_of_markdown_stays():
    answer = "````markdown\n# A\n\n```sh\nls\n```\n\nend\n````"
    assert lines(answer, "# B", "markdown") == "# A\n\n```sh\nls\n```\n\nend"
    answer = "```markdown\n# A\n\n```sh\nls\n```\n\nend\n```"
    assert lines(answer, "# B", "markdown") == "# A\n\n```sh\nls\n```\n\nend"


@pytest.mark.parametrize(
    "original, answer, expected",
    [
        ("    return 1", "return 2", "    return 2"),
        ("\treturn 1", "return 2", "\treturn 2"),
        ("    return 1", "    return 2", "    return 2"),
        ("    a = 1\n    b = 2", "a = 3\n    b = 4", "    a = 3\n    b = 4"),
        # the first line alone was trimmed
        (
            "    def f():\n        pass",
            "def f():\n        return 1",
            "    def f():\n        return 1",
        ),
        # all of them were
        ("    def f():\n        pass", "def f():\n    return 1", "    def f():\n        return 1"),
        ("    a = 1", "if b:\n    a = 2", "    if b:\n        a = 2"),
        ("    a = 1", "if b:\n        a = 2", "    if b:\n        a = 2"),
        # it was meant so: it has some
        ("        a = 1", "    a = 1", "    a = 1"),
        # without indentation nothing is added
        ("a = 1", "    a = 1", "    a = 1"),
        ("    a\n\n    b", "c\n\nd", "    c\n\n    d"),
        ("", "    a", "    a"),
    ],
)
def test_lines_get_the_indentation_of_those_that_they_replace(original, answer, expected):
    assert lines(answer, original) == expected


def test_characters_of_a_line_get_none():
    assert replacement("y", "    x", "python", is_whole_lines=False) == "y"


@pytest.mark.parametrize(
    "original, answer, expected",
    [
        ("a\n\n", "b\n", "b\n\n"),
        ("\na", "\nb", "\nb"),
        ("a", "b\r\nc\r\n", "b\nc"),
        ("a\r\nb\r", "c\r\nd\r", "c\r\nd\r"),
        ("", "", ""),
        ("a", "", ""),
    ],
)
def test_line_ends_are_those_of_the_original(original, answer, expected):
    assert lines(answer, original, "text") == expected
