"""The JSON Schema of a file of settings, with which editors complete and check it."""

from collections.abc import Container
from typing import Any

import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: type[msgspec.Struct], title: str, whole: Container[str]) -> dict[str, Any]:
    """
    The schema of a file of this type.

    `whole` are the names of the structs that miss nothing: of the others, what a table does not say comes from another place.
    """
    schema = msgspec.json.schema(kind)
    for name, definition in schema["$defs"].items():
        definition.pop("description", None)  # what a developer is told of the struct
        if name not in whole:
            definition.pop("required", None)
    return {"$schema": DIALECT, "title": title, **schema}
