"""Answers in the format of Gemini: https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

Part = dict[str, Any]


def text(words: str) -> Part:
    return {"text": words}


def call(name: str, arguments: Any) -> Part:
    return {"functionCall": {"name": name, "args": arguments}}


def chunk(parts: Sequence[Part], reason: str = "") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [*parts]}, "index": 0}
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {
        "candidates": [candidate | ({"finishReason": reason} if reason else {})],
        "usageMetadata": counts,
        "modelVersion": "m",
    }


def event(data: object) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def events_of(words: str, calls: Iterable[tuple[str, str]]) -> bytes:
    """
    Return the stream that says `words` and makes `calls`, given by name and JSON.

    The format has no place for arguments that are no JSON: the API says that the call is malformed, and leaves it out.
    """
    parts = [text(words)] if words else []
    reason = "STOP"
    for name, arguments in calls:
        try:
            parts.append(call(name, json.loads(arguments)))
        except ValueError:
            reason = "MALFORMED_FUNCTION_CALL"
    return event(chunk(parts, reason))
