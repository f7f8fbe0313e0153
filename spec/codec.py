"""Frozen dataclasses to JSON and back, with the field named when a value does not fit.

The sides read jobs with this module, so it needs nothing but the standard library. Floats travel as `repr`
decimals, which round-trip exactly; tuples travel as lists; a field whose type is a union of dataclasses
carries a `"type"` tag.
"""

import dataclasses
import json
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from spec.errors import RuleError


def to_dict(value: Any) -> Any:
    """Plain JSON-able form of a dataclass tree."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, dict):
        return {key: to_dict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_dict(item) for item in value]
    return value


def from_dict(cls: type, data: Any, where: str = "$") -> Any:
    """Rebuilds a `cls` from `to_dict` output.

    Raises:
      RuleError: an unknown or missing field, or a value of another type, named by its path
      (`$.problem.steps`).
    """
    if not isinstance(data, dict):
        raise _misfit(where, cls.__name__, data)
    hints = get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}
    unknown = set(data) - set(known) - {"type"}
    if unknown:
        raise RuleError(
            "A job or run file holds only known fields.",
            f"{where}.{min(unknown)}",
            f"known here: {', '.join(known)}; was the file written by another version?",
        )
    missing = [
        name
        for name, f in known.items()
        if name not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise RuleError("A job or run file holds every required field.", f"missing {where}.{missing[0]}")
    return cls(
        **{name: _decode(hints[name], data[name], f"{where}.{name}") for name in known if name in data}
    )


def _decode(hint: Any, value: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(hint), value, where)
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise _misfit(where, "list", value)
        return tuple(_decode(get_args(hint)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _misfit(where, "object", value)
        return {key: _decode(get_args(hint)[1], item, f"{where}.{key}") for key, item in value.items()}
    return _decode_scalar(hint, value, where)


def _decode_union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    classes = [option for option in options if dataclasses.is_dataclass(option)]
    if isinstance(value, dict) and classes:
        tagged = [cls for cls in classes if cls.__name__ == value.get("type")] or classes[:1]
        return from_dict(tagged[0], value, where)  # type: ignore[arg-type]
    for option in options:
        if option is not type(None) and not dataclasses.is_dataclass(option):
            try:
                return _decode(option, value, where)
            except RuleError:
                continue
    raise _misfit(where, " | ".join(getattr(o, "__name__", str(o)) for o in options), value)


def _decode_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise _misfit(where, "float", value) from None
    if hint in (int, float, str, bool):
        if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
            raise _misfit(where, hint.__name__, value)
        return value
    assert hint is Any, f"the codec does not know the type {hint} of {where}"
    return value


def _misfit(where: str, expected: str, value: Any) -> RuleError:
    return RuleError(
        "A field of a job or run file has its declared type.",
        f"{where}: expected {expected}, got {type(value).__name__} {str(value)[:60]!r}",
    )


def read_json(path: Path, cls: type) -> Any:
    """Reads one dataclass from a JSON file; errors name the file."""
    try:
        return from_dict(cls, json.loads(Path(path).read_text()))
    except FileNotFoundError:
        raise RuleError("The file exists.", str(path)) from None
    except json.JSONDecodeError as error:
        raise RuleError("The file is JSON.", f"{path}: {error}") from None
    except RuleError as error:
        raise RuleError(error.rule, f"{path}: {error.numbers}", error.mend) from None
