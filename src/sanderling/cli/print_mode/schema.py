"""The JSON schema of `--json-schema`: the request for an answer that fits it, and the check."""

import json
import re
from pathlib import Path
from typing import Any

from sanderling.errors import UsageError
from sanderling.tools.json_schema import InvalidSchemaError, JsonSchema

_FENCED = r"(?s).*?```(?:json)?[ \t]*\n(.*?)\n[ \t]*```[^`]*"
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
    def __init__(self, schema: Any) -> None:
        """
        Check `schema`.

        Raises:
            UsageError: it is not a JSON schema, or refers to other files.
        """
        try:
            self._schema = JsonSchema(schema)
        except InvalidSchemaError as error:
            raise UsageError(str(error)) from error
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
            MisfitError: the answer has no value, or it does not fit the schema.
        """
        fenced = re.fullmatch(_FENCED, answer.strip())
        try:
            value = json.loads(fenced[1] if fenced else answer, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise MisfitError(f"- it is not JSON: {error}") from error
        if problems := self._schema.problems(value):
            raise MisfitError("\n".join(problems))
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
