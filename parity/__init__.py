"""The referee: starts both sides as processes of their own, reads what they wrote, judges, reports.

It imports `spec` and no framework, so that a saved run is judged on any machine. `cli` is the command line,
`library` the same as functions (`parity.run`, `parity.assert_same`), `pytest_plugin` in a test suite.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.library import assert_same, run

__all__ = ["assert_same", "run"]


def __getattr__(name: str) -> Any:
    """The library's functions, loaded when they are first asked for."""
    if name in __all__:
        from parity import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
