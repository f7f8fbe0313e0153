"""Which line of a user's code is being run: the innermost one outside a framework and this project.

Must not: import what it looks past.
"""

import contextlib
import sys
from pathlib import Path

NOBODY = "backward"
"""Where no line of the user's calls: a framework works on its own, as in a backward pass."""


def line(outside: tuple[str, ...]) -> str:
    """`file.py:12`, or `NOBODY`.

    Args:
      outside: folders whose code is not the user's.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", *outside)):
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return NOBODY


def folders(*modules: object) -> tuple[str, ...]:
    """The folders of packages, and of this project."""
    files = [Path(str(getattr(module, "__file__", ""))) for module in modules]
    root = Path(__file__).resolve().parent.parent
    own = [root / name for name in ("spec", "torch_impl", "jax_impl")]
    # Python's own library, whose code stands between frameworks and users.
    standard = Path(contextlib.__file__).parent
    return tuple(f"{folder}/" for folder in [*(file.resolve().parent for file in files), *own, standard])
