"""What a pair's batches cannot show, whatever its sides compute: positions that no row has.

Must not: judge. A run on short rows is judged as any other; its reader is told how far it saw.
"""

from pathlib import Path

from spec.data.folder import batch_file
from spec.weights import load_tensors

_LONG = 32
"""Positions from which on nothing is said: rotary angles and windows show by then, if they are to."""


def notes(batches: Path) -> list[str]:
    """One line where rows of tokens are short; none where they are long, or where there are no tokens.

    Args:
      batches: folder of the written batches, of which the first is read.
    """
    first = load_tensors(batch_file(batches, 0))
    lengths = [array.shape[1] for array in first.values() if array.ndim == 2 and array.dtype.kind in "iu"]
    if not lengths or max(lengths) >= _LONG:
        return []
    last = max(lengths) - 1
    seen = "position 0 alone was" if not last else f"positions 0 to {last} alone were"
    return [
        f"{seen} run: what shows at later ones, as rotary rates and windows do, was not seen; run rows of "
        f"{2 * _LONG} and more"
    ]
