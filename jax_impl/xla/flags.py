"""XLA's flags as the installed jaxlib knows them: names, defaults, what this process has, what is refused.

XLA ends a process that meets an unknown flag or value, at its first array and without a word on the mend. So
XLA_FLAGS is tried in a process of its own first. `python -m jax_impl.xla.flags` tells `parity doctor`.
Must not: set a flag, or load a device.
"""

import difflib
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jaxlib
from jaxlib import xla_client

from jax_impl.xla import protos
from spec.errors import RuleError

_OPTIONS, _FLAGS = "xla/pjrt/proto/compile_options.proto", "xla/xla.proto"
_TELL = "import json; from jax_impl.xla import flags; print(json.dumps(flags.values()))"


def values() -> dict[str, Any]:
    """Every flag and its value in this process: enums by name, flags that are tables or records left out; {}
    where jaxlib carries no schema.

    XLA reads XLA_FLAGS here, if it has not yet; `check` it first.
    """
    options, flags = protos.schema(_OPTIONS), protos.schema(_FLAGS)
    if options is None or flags is None:
        return {}
    data = xla_client.CompileOptions().SerializeAsString()
    outer = protos.decode(data, "CompileOptionsProto", options)
    build = protos.decode(outer["executable_build_options"], "ExecutableBuildOptionsProto", options)
    found = protos.decode(build["debug_options"], "DebugOptions", flags)
    fields = [field for field in flags.messages["DebugOptions"].values() if not field.is_message]
    return {field.name: found.get(field.name, protos.unset(field, flags)) for field in fields}


@functools.cache
def defaults() -> dict[str, Any]:
    """The values without XLA_FLAGS."""
    return values() if not os.environ.get("XLA_FLAGS") else json.loads(_tell(None).stdout)


@functools.cache
def changed() -> dict[str, Any]:
    """Flags of this process that have not their default value."""
    if not os.environ.get("XLA_FLAGS"):
        return {}
    usual = defaults()
    return {name: value for name, value in values().items() if value != usual[name]}


def check() -> None:
    """Tries the XLA_FLAGS of this process in another one.

    Raises:
      RuleError: a flag is unknown to the installed jaxlib, or has a value that it refuses; named, with the
        nearest flag that there is.
    """
    _check(os.environ.get("XLA_FLAGS", ""))


@functools.cache
def _check(text: str) -> None:
    if not text or not _tell(text).returncode:
        return
    refused = [token for token in _tokens(text) if _tell(token).returncode]
    raise RuleError(
        f"XLA_FLAGS holds flags of the installed jaxlib {jaxlib.__version__}.",
        f"refused: {', '.join(refused) or text}",
        "; ".join(_advice(token) for token in refused),
    )


def _advice(token: str) -> str:
    name = token.lstrip("-").partition("=")[0]
    known = list(defaults())
    if name in known:
        choices = ", ".join(_choices(name))
        return f"{name} is {defaults()[name]} by default" + (f", one of {choices} here" if choices else "")
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"instead of {name} there is {nearest[0]}" if nearest else f"take {name} out"


def _choices(name: str) -> list[str]:
    """The values of a flag that is an enum; none for others."""
    flags = protos.schema(_FLAGS)
    assert flags is not None
    types = [field.type_name for field in flags.messages["DebugOptions"].values() if field.name == name]
    return [value for type_name in types for value in flags.enums.get(type_name, {}).values()]


def _tokens(text: str) -> list[str]:
    """The flags of XLA_FLAGS, which may also name a file of them."""
    if not text.lstrip().startswith("-") and Path(text.strip()).is_file():
        text = Path(text.strip()).read_text()
    return re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""", text)


def _tell(text: str | None) -> subprocess.CompletedProcess[str]:
    """A process that starts with these XLA_FLAGS and tells its values."""
    environ = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    root = str(Path(__file__).resolve().parents[2])
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", _TELL],
        env=environ if text is None else environ | {"XLA_FLAGS": text},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def main() -> None:
    """Prints what `parity doctor` shows: whether XLA_FLAGS can be had, what was found, and the mend."""
    try:
        check()
        given = ", ".join(f"{name}={value}" for name, value in changed().items())
        answer = {"ok": True, "found": given or f"all {len(values())} at their defaults", "mend": ""}
    except RuleError as error:
        answer = {"ok": False, "found": error.numbers, "mend": error.mend}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
