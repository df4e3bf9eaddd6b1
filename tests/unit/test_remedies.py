"""What a person can do is told in the words of the face: a shell has no commands of Neovim's."""

import ast
import contextvars
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import prove

import sanderling
from sanderling.protocol.remedies import NEOVIM, SHELL, UNKEPT, Remedies, use
from sanderling.providers.credentials import (
    Credentials,
    CredentialsError,
)
from sanderling.providers.endpoint import ANTHROPIC
from sanderling.providers.http.errors import (
    explain_status,
    login_page,
    malformed,
    no_key,
    refused_key,
)
from sanderling.providers.idle import keeps_what_came

ACCOUNT = ANTHROPIC.account
PACKAGE = Path(sanderling.__file__).parent
ONLY_IN_NEOVIM = re.compile(
    r":Agent\w+\b(?! in Neovim)|(?<![\w/.])/(model|compact|clear|new|resume|login)\b|[Rr]estart|starts Neovim"
    r"|[Ss]tart again|(?<!other )(?<!Another )[Aa] new prompt"
)
REFUSALS = [
    ("authentication_error", 401),
    ("billing_error", 402),
    ("rate_limit_error", 429),
    ("overloaded_error", 529),
    ("api_error", 500),
    ("request_too_large", 413),
    ("", 407),
    ("", 302),
    ("not_found_error", 404),
    ("invalid_request_error", 400),
]
EDITORS_OWN = ("editor/", "protocol/remedies.py")


def told_in(remedies: Remedies, tell: Callable[[], str]) -> str:
    def speak() -> str:
        use(remedies)
        return tell()

    return contextvars.copy_context().run(speak)


@pytest.mark.parametrize("error_type, status", REFUSALS)
@pytest.mark.parametrize("remedies", [SHELL, UNKEPT])
def test_no_remedy_in_a_shell_names_what_only_neovim_has(remedies, error_type, status):
    remedy = told_in(
        remedies, lambda: explain_status(error_type, status, "so", 3.0, key_remedy="Look.").remedy
    )
    assert remedy
    assert not ONLY_IN_NEOVIM.search(remedy)


@pytest.mark.parametrize(
    "tell",
    [
        ACCOUNT.unlock_it,
        ACCOUNT.use_the_environment,
        keeps_what_came,
        lambda: no_key(ACCOUNT).remedy,
        lambda: refused_key(ACCOUNT, is_kept=True),
        lambda: refused_key(ACCOUNT, is_kept=False),
        lambda: login_page(200, "a page").remedy,
        lambda: malformed("x").remedy,
    ],
)
def test_other_remedies_fit_both_faces(tell):
    assert not ONLY_IN_NEOVIM.search(told_in(SHELL, tell))
    assert not re.search(r"--\w", told_in(NEOVIM, tell))


def test_a_model_is_chosen_by_the_faces_own_word():
    def tell() -> str:
        return explain_status("overloaded_error", 529, "so", None, key_remedy="").remedy

    assert told_in(NEOVIM, tell).endswith("Another model may be available: /model.")
    assert told_in(SHELL, tell).endswith("Another model may be available: --model NAME.")


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """The literals of a file that are no docstrings."""
    tree = ast.parse(path.read_text())
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


@prove
def test_commands_of_neovim_are_named_where_they_can_be_typed_and_nowhere_else():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        if not path.relative_to(PACKAGE).as_posix().startswith(EDITORS_OWN)
        for line, text in _strings(path)
        if re.search(r"(?<!see ):Agent\w+\b(?!`? in Neovim)", text)
    ]
    assert found == []


def test_what_fails_in_the_keychains_own_thread_is_told_in_the_faces_words(tmp_path, monkeypatch):
    monkeypatch.setattr("sanderling.providers.credentials._is_keychain", lambda _: False)

    def tell() -> str:
        with pytest.raises(CredentialsError) as caught:
            Credentials(str(tmp_path), ACCOUNT).store("sk-key")
        return caught.value.remedy

    assert told_in(SHELL, tell) == "Set ANTHROPIC_API_KEY in the environment instead."
    assert "starts Neovim" in told_in(NEOVIM, tell)
