"""What a person can do is told in the words of the face: a shell has no commands of Neovim's."""

import ast
import contextvars
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import prove

import sanderling
from sanderling.protocol.remedies import NEOVIM, SHELL, UNKEPT, Remedies, use
from sanderling.providers.credentials import Credentials, CredentialsError
from sanderling.providers.endpoint import ANTHROPIC
from sanderling.providers.http.bodies import decode_refusal
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
EDITORS_OWN = ("editor/", "cli/neovim.py", "protocol/remedies.py")


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


TOO_LONG = [
    (400, {"error": {"message": "This model's maximum context length is 8192 tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"}}),
    (400, {"error": {"message": "Input tokens exceed the configured limit.", "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded"}}),
    (400, {"error": {"code": 400, "message": "the request exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error", "n_ctx": 4096}}),
    (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens", "type": "BadRequestError", "code": 400}),
    (400, {"object": "error", "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error", "code": "3051"}),
    (400, [{"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}}]),
    (400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": '{"error":{"message":"prompt is too long: 300000 tokens > 200000 maximum"}}', "provider_name": "X"}}}),
    (400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens."}),
    (413, {"error": "request entity too large"}),
]  # fmt: skip


@pytest.mark.parametrize("status, body", TOO_LONG)
def test_conversation_that_is_too_long_is_known_in_the_words_of_each_api(status, body):
    kind, words = decode_refusal(json.dumps(body).encode())
    error = explain_status(kind, status, words, key_remedy="")
    assert (error.kind, error.is_temporary) == ("context_full", False)


@pytest.mark.parametrize(
    "status, body, kind, is_temporary, words",
    [
        (429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "You exceeded your current quota"}}, "auth", False, "cannot pay"),
        (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error", "param": None, "code": "invalid_request_error"}}, "auth", False, "cannot pay"),
        (429, {"error": {"type": "requests", "code": "rate_limit_exceeded", "message": "Rate limit reached"}}, "rate_limited", True, "rate limit"),
        (429, {"object": "error", "message": "Requests rate limit exceeded", "type": "rate_limited", "code": "1300"}, "rate_limited", True, "rate limit"),
        (401, {"error": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "Incorrect API key"}}, "auth", False, "refused the key"),
        (401, {"detail": "Unauthorized"}, "auth", False, "Unauthorized"),
        (404, {"error": {"type": "invalid_request_error", "code": "model_not_found", "message": "The model `x` does not exist"}}, "invalid_request", False, "does not know"),
        (404, {"error": "model 'x' not found"}, "invalid_request", False, "model 'x' not found"),
        (422, {"detail": [{"loc": ["body", "x"], "msg": "Extra inputs are not permitted"}]}, "invalid_request", False, "Extra inputs"),
        (503, {"error": {"type": "server_error", "message": "The engine is overloaded"}}, "server", True, "overloaded"),
        (400, {"error": {"message": 7, "type": ["x"]}}, "invalid_request", False, "refused the request"),
        (400, "oh no", "invalid_request", False, "refused the request"),
        (400, [], "invalid_request", False, "refused the request"),
    ],
)  # fmt: skip
def test_refusal_is_told_by_what_it_means(status, body, kind, is_temporary, words):
    error_type, told = decode_refusal(json.dumps(body).encode())
    error = explain_status(error_type, status, told, key_remedy="Look at the key.")
    assert (error.kind, error.is_temporary) == (kind, is_temporary)
    assert words in error.message


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_says_nothing(data):
    assert decode_refusal(data) == ("", "")
