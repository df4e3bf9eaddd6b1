"""
Tolerant decoding: optional fields that fail to decode count as absent, where the protocol allows that.

The official schema marks these fields. So messages of newer or careless programs are mostly understood. Fields in `Wire.exact` are never
dropped: there, an invalid value is an error.
"""

from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from sanderling.acp.wire.base import Wire

T = TypeVar("T")


def understood(value: Any, kind: type[T]) -> T:
    """
    Convert `value` to a `kind`, dropping invalid optional fields.

    Raises:
        msgspec.ValidationError: a required or exact field is invalid.
    """
    return msgspec.convert(_fit(value, kind), kind)


def _fit(value: Any, kind: Any) -> Any:
    """Return `value` without invalid optional parts."""
    for each in (kind, *get_args(kind)):
        if isinstance(value, list) and get_origin(each) is list:
            items = cast("list[Any]", value)
            return [_fit(item, *get_args(each)) for item in items]
        if isinstance(value, dict) and get_origin(each) is None and issubclass(each, Wire):
            return _fit_message(cast("dict[str, Any]", value), each)
    return cast("Any", value)


def _fit_message(message: dict[str, Any], kind: type[Wire]) -> dict[str, Any]:
    fit = dict(message)
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name not in fit:
            continue
        value = fit[name] = _fit(fit[name], field.type)
        if field.name in kind.exact or _is_a(value, field.type):
            continue
        if isinstance(value, list) and _is_a([], field.type):
            items = cast("list[Any]", value)
            fit[name] = [item for item in items if _is_a([item], field.type)]
        elif not field.required:
            del fit[name]
    return fit


def _is_a(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
