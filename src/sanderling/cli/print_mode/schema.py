"""The JSON schema of `--json-schema`: what the model is asked for, and whether its answer fits."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from sanderling.errors import UsageError

_FENCED = r"(?s).*?```(?:json)?[ \t]*\n(.*?)\n[ \t]*```[^`]*"
MAX_PROBLEMS = 5
MAX_PROBLEM_CHARS = 300
ASKED = """\
[Your final answer must be one JSON value that fits this schema, and nothing else: no other words, no code fence. It is read by a program.
{schema}]"""
REPAIR = """\
Your answer does not fit the schema:
{problems}
Answer again, with the whole JSON value and nothing else. The schema:
{schema}"""


class MisfitError(Exception):
    """An answer does not fit; `str(error)` has a line for each problem."""


class AnswerSchema:
    """A JSON schema, as `jsonschema` validates it: by its own `$schema`, else by the newest draft."""

    def __init__(self, schema: Any) -> None:
        """
        Check `schema`.

        Raises:
            UsageError: it is not a JSON schema, or refers to other files.
        """
        from jsonschema import SchemaError  # takes 50 ms, needed for such a run only
        from jsonschema.validators import (  # pyright: ignore[reportMissingModuleSource]
            Draft202012Validator,
            validator_for,
        )

        if not isinstance(schema, dict):
            raise UsageError("it is not a JSON schema: a schema is an object")
        schema = cast("dict[str, Any]", schema)
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            raise UsageError(
                f"it is not a JSON schema: {error.json_path}: {error.message}"
            ) from error
        for reference in _references(schema):
            if not reference.startswith("#"):
                raise UsageError(f"its '$ref' {reference!r} leads out of the file")
        self._validator = kind(schema)
        self._text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))

    @property
    def asked(self) -> str:
        """The note that asks the model for such an answer."""
        return ASKED.format(schema=self._text)

    def repair(self, misfit: MisfitError) -> str:
        """Return the prompt that asks for a better answer."""
        return REPAIR.format(problems=misfit, schema=self._text)

    def value_of(self, answer: str) -> Any:
        """
        Return the value in the model's answer, also from a code fence.

        Raises:
            MisfitError: there is none, or it does not fit the schema.
        """
        fenced = re.fullmatch(_FENCED, answer.strip())
        try:
            value = json.loads(fenced[1] if fenced else answer, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise MisfitError(f"- it is not JSON: {error}") from error
        from jsonschema.exceptions import relevance

        found = sorted(self._validator.iter_errors(value), key=relevance, reverse=True)
        if found:
            lines = (f"- {each.json_path}: {each.message[:MAX_PROBLEM_CHARS]}" for each in found)
            more = [f"- and {len(found) - MAX_PROBLEMS} more"] if len(found) > MAX_PROBLEMS else []
            raise MisfitError("\n".join([*list(lines)[:MAX_PROBLEMS], *more]))
        return value


def load_schema(path: Path) -> AnswerSchema:
    """
    Read a schema.

    Raises:
        UsageError: the file cannot be read, or is not a JSON schema.
    """
    try:
        return AnswerSchema(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"--json-schema {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--json-schema {path}: it is not JSON: {error}") from error
    except UsageError as error:
        raise UsageError(f"--json-schema {path}: {error}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")


def _references(schema: Any) -> Iterator[str]:
    match schema:
        case dict():
            for name, value in cast("dict[str, Any]", schema).items():
                if name in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                    yield value
                else:
                    yield from _references(value)
        case list():
            for each in cast("list[Any]", schema):
                yield from _references(each)
        case _:
            pass
