"""Which code ran: the commit of this project's checkout, and whether it was changed since.

Only a checkout that holds this very file counts; a package installed inside some other repository has none.
"""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

_THIS_FILE = Path(__file__).resolve()
_ROOT = _THIS_FILE.parent.parent

_CODE = tuple(f"{package}/*.py" for package in ("jax_impl", "parity", "spec", "torch_impl"))

NO_COMMIT = "nogit"
"""Stands for the commit in names of run folders outside a checkout."""


def code_version() -> tuple[str, bool]:
    """(commit, dirty) for the name of a run folder: 10 hex digits or `NO_COMMIT`; whether files changed."""
    code = describe_checkout()
    return (code["commit"] or NO_COMMIT)[:10], bool(code["dirty"])


def describe_checkout(root: Path = _ROOT) -> dict[str, Any]:
    """Commit, dirty and the hash of all changes since; all null, with a reason, outside a checkout.

    `diff_sha256` covers the difference of tracked files from the commit, and every untracked `.py` file of
    the packages. What lies beside them, such as a user's own pair, is not this project's code.
    """
    nothing: dict[str, Any] = {"commit": None, "dirty": None, "diff_sha256": None}
    try:
        _git(root, "ls-files", "--error-unmatch", str(root / _THIS_FILE.relative_to(_ROOT)))
        commit = _git(root, "rev-parse", "HEAD").decode().strip()
        diff = _git(root, "diff", "--binary", "--no-ext-diff", "HEAD")
        untracked = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *_CODE)
    except FileNotFoundError:
        return nothing | {"reason": "git is not installed"}
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        return nothing | {"reason": f"no checkout of this project: {lines[0] if lines else 'git failed'}"}
    names = sorted(name for name in untracked.decode(errors="surrogateescape").split("\0") if name)
    if not diff and not names:
        return {"commit": commit, "dirty": False, "diff_sha256": None}
    digest = hashlib.sha256(diff)
    for name in names:
        digest.update(os.fsencode(name) + b"\0" + (root / name).read_bytes())
    return {"commit": commit, "dirty": True, "diff_sha256": digest.hexdigest()}


def _git(root: Path, *arguments: str) -> bytes:
    """The output of a git command that reads only and takes no locks, in `root`."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", *arguments],
        cwd=root,
        env=environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    ).stdout
