"""The catalogue of edits, as data: named, small, real changes to the step of one side.

An edit makes a convention differ on purpose, so that a judge can be tested, a suspected cause confirmed, and
the power of a run measured. `catalogue` says which there are and `words` how they are written. `step` holds
the constants of the step, which the sides read from there without seeing an edit; `weights` and `data` move
elements of tensors and of batches; what an edit does inside a model stands in each side's `edits.py`.
"""

from spec.edits.catalogue import CATALOGUE, OF_ADAMW
from spec.edits.kinds import Edit, Kind
from spec.edits.step import Constants, constants, device_table
from spec.edits.words import parse, refuse, show, tell, why_not

__all__ = [
    "CATALOGUE",
    "OF_ADAMW",
    "Constants",
    "Edit",
    "Kind",
    "constants",
    "device_table",
    "parse",
    "refuse",
    "show",
    "tell",
    "why_not",
]
