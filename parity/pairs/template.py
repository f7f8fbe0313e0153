"""`parity init-pair`: writes a pair that works, to be changed into the user's own."""

from pathlib import Path

from parity.options import InitPair
from spec import record
from spec.errors import ExitCode, RuleError

_STARTER = Path(__file__).resolve().parent / "starter"


def init_pair(options: InitPair) -> ExitCode:
    """Writes the files and says what to type next.

    Raises:
      RuleError: a file is there already.
    """
    folder = Path(options.dir).expanduser()
    files = {path.name.removesuffix(".txt"): path for path in sorted(_STARTER.glob("*.py.txt"))}
    present = [name for name in files if (folder / name).exists()]
    if present:
        raise RuleError("Nothing is written over.", f"{folder / present[0]} exists", "name another folder")
    for name, path in files.items():
        record.write_text(folder / name, path.read_text("ascii"))
    print(f"{folder}: {', '.join(files)}")
    shown = folder if "/" in options.dir else f"{folder}/"
    print(f"next: parity run {shown}")
    return ExitCode.SAME
