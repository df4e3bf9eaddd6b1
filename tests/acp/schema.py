"""The official schema as a judge: a message that it does not know is none."""

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.conftest import ROOT

SDK = ROOT / "tests" / "peers" / "node_modules" / "@agentclientprotocol" / "sdk"
SCHEMA = SDK / "schema" / "v1" / "schema.json"


@cache
def _schema() -> dict[str, Any]:
    if not SCHEMA.is_file():
        pytest.skip("the schema of the protocol is not there: make peers")
    return json.loads(SCHEMA.read_text())


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": _schema()["$defs"]})


@cache
def _kinds() -> dict[tuple[str, str], str]:
    """The definition of each method's parameters ("Request", "Notification") and of its result ("Response")."""
    kinds: dict[tuple[str, str], str] = {}
    for name, definition in _schema()["$defs"].items():
        if method := definition.get("x-method"):
            what = next(
                each for each in ("Request", "Response", "Notification") if name.endswith(each)
            )
            kinds[method, what] = name
    return kinds


def definition(kind: str) -> dict[str, Any]:
    """A definition of the schema's."""
    return _schema()["$defs"][kind]


def check(kind: str, value: Any) -> None:
    """Fail if `value` is no `kind` of the schema's."""
    errors = [f"{'/'.join(map(str, each.path))}: {each.message}" for each in _errors(kind, value)]
    assert not errors, f"no {kind}: {value!r}: {errors}"


def _errors(kind: str, value: Any) -> Any:
    return _validator(kind).iter_errors(value)


def check_wire(messages: list[dict[str, Any]]) -> None:
    """Hold all messages of a connection, in whichever direction, against the schema; responses by what they answer."""
    asked: dict[tuple[str, Any], str] = {}
    for message in messages:
        direction, wire = message["direction"], message["message"]
        assert wire["jsonrpc"] == "2.0"
        if method := wire.get("method"):
            what = "Request" if "id" in wire else "Notification"
            assert (method, what) in _kinds() or method.startswith("_"), method
            if kind := _kinds().get((method, what)):
                check(kind, wire.get("params", {}))
            if "id" in wire:
                asked[direction, wire["id"]] = method
        elif "error" in wire:
            check("Error", wire["error"])
        else:
            other = "in" if direction == "out" else "out"
            check(_kinds()[asked.pop((other, wire["id"])), "Response"], wire["result"])
