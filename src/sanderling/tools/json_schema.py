"""JSON schemas that users give, as `jsonschema` validates them: by their own `$schema`, else by the newest draft."""

from collections.abc import Iterator
from typing import Any, cast

MAX_PROBLEMS = 5
MAX_PROBLEM_CHARS = 300


class InvalidSchemaError(Exception):
    """It is not a JSON schema, or refers to other files. `str(error)` is a clause."""


class JsonSchema:
    def __init__(self, schema: Any) -> None:
        """
        Check `schema`.

        Raises:
            InvalidSchemaError: see there.
        """
        from jsonschema import SchemaError  # takes 50 ms
        from jsonschema.validators import (  # pyright: ignore[reportMissingModuleSource]
            Draft202012Validator,
            validator_for,
        )

        if not isinstance(schema, dict):
            raise InvalidSchemaError("it is not a JSON schema: a schema is an object")
        schema = cast("dict[str, Any]", schema)
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            raise InvalidSchemaError(
                f"it is not a JSON schema: {error.json_path}: {error.message}"
            ) from error
        for reference in _references(schema):
            if not reference.startswith("#"):
                raise InvalidSchemaError(f"its '$ref' {reference!r} leads out of the file")
        self._validator = kind(schema)

    def problems(self, value: Any) -> list[str]:
        """Return a line for each way in which `value` does not fit; if they are many, for the first ones and their rest."""
        from jsonschema.exceptions import relevance

        found = sorted(self._validator.iter_errors(value), key=relevance, reverse=True)
        lines = [
            f"- {each.json_path}: {each.message[:MAX_PROBLEM_CHARS]}"
            for each in found[:MAX_PROBLEMS]
        ]
        more = len(found) - len(lines)
        return [*lines, f"- and {more} more"] if more else lines


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
