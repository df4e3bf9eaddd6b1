"""The JSON Schema of a settings file, with which editors complete and check it."""

from collections.abc import Container
from typing import Any

import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: type[msgspec.Struct], title: str, whole: Container[str]) -> dict[str, Any]:
    """
    Return the schema of a file of this type.

    `whole` names the structs that must be complete; other tables may leave keys to other sources.
    """
    schema = msgspec.json.schema(kind)
    for name, definition in schema["$defs"].items():
        definition.pop("description", None)  # a docstring for developers
        if name not in whole:
            definition.pop("required", None)
    return {"$schema": DIALECT, "title": title, **schema}
