"""An API's refusal is understood whoever's format it has, and told by what it means."""

import json

import pytest

from sanderling.providers.http.bodies import decode_refusal
from sanderling.providers.http.errors import explain_status

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
