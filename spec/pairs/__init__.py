"""A user's pair: a folder with `pair.py`, which says what is trained on, and one file for each framework.

    from spec.pairs import AdamW, Pair, Schedule

`pair` is what `pair.py` holds, `user_code` imports files that others wrote and turns their errors into a few
lines, `materialise` writes their batches down once, for both sides; `python -m spec.pairs` does that in a
process of its own. Must not: import a framework, or a side's file.
"""

from spec.mapping.links import Link, Part
from spec.pairs.pair import Pair
from spec.run import AdamW
from spec.schedule import Schedule

__all__ = ["AdamW", "Link", "Pair", "Part", "Schedule"]
