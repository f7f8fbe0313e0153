"""Whether two measurements were made on the same device, host and versions, from what their records say.

Must not: look at the machine; `spec.environment` did when the records were made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Environment = Mapping[str, Any]
"""What `spec.environment.describe_environment` gave."""

NO_CHECKOUT = "no checkout"
"""Stands for a tree that nobody can tell."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What is not as it was; each entry names the thing and both values."""

    device: list[str]
    """Another kind of device: its figures say nothing about these."""
    host: list[str]
    """Another machine, or another device of the same kind."""
    versions: list[str]
    """Versions, code and variables that can change a speed or a bit."""

    @property
    def of_kind(self) -> list[str]:
        """All but the machine itself: what sets measurements of like machines apart."""
        return [*self.device, *self.versions]


def difference(before: Environment, now: Environment, device: str) -> Difference:
    """What differs between two environments.

    Args:
      device: `cpu` or `cuda`, which both were measured on.
    """
    devices = [_pair("device", *(_device(one, device) for one in (before, now)))]
    hosts = [
        _pair("host", before.get("host_hash"), now.get("host_hash")),
        *([_pair("GPU", _uuids(before), _uuids(now))] if device == "cuda" else ()),
    ]
    versions = [
        *([_pair("driver", before.get("driver"), now.get("driver"))] if device == "cuda" else ()),
        _pair("python", before["python"]["version"], now["python"]["version"]),
        _pair("code", code(before), code(now)),
        *_entries("", before["packages"], now["packages"]),
        *_entries("variable ", before["variables"], now["variables"]),
    ]
    return Difference(
        device=[one for one in devices if one],
        host=[one for one in hosts if one],
        versions=[one for one in versions if one],
    )


def code(environment: Environment) -> str:
    """The tree of this project that ran, in words: its commit, and a hash of what changed since."""
    told = environment["code"]
    commit = str(told["commit"])[:10] if told["commit"] else NO_CHECKOUT
    return f"{commit} with changes {told['diff_sha256'][:10]}" if told["dirty"] else commit


def _device(environment: Environment, device: str) -> str:
    if device == "cuda":
        names = [str(gpu["name"]) for gpu in environment.get("gpus") or ()]
        return ", ".join(dict.fromkeys(names)) or "a GPU that nvidia-ml-py could not name"
    cpu = environment["cpu"]
    return f"{cpu['model']}, {cpu['usable']} cores"


def _uuids(environment: Environment) -> str:
    return ", ".join(str(gpu["uuid"]) for gpu in environment.get("gpus") or ())


def _entries(kind: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = sorted(before.keys() | now.keys())
    return [_pair(f"{kind}{name}", before.get(name, "none"), now.get(name, "none")) for name in names]


def _pair(name: str, before: object, now: object) -> str:
    """`torch 2.11.0, now 2.13.0`; empty where they are equal."""
    return "" if before == now else f"{name} {before}, now {now}"
