"""A run that can go on: parameters, moments, counters, position and description, neutral to frameworks.

A checkpoint is a folder: `checkpoint.json` (`format.py`) and safetensors shards, under canonical names in the
layout of the parameter table, so either side goes on where the other stopped. `write.py` saves in the
background, `read.py` opens and verifies, `find.py` knows where checkpoints lie. Nothing is unpickled. Must
not: know how a side puts tensors into its state; that is for `state.py` of each side.
"""

from spec.checkpoint.find import checkpoints_in, find_checkpoint
from spec.checkpoint.format import Position
from spec.checkpoint.read import Checkpoint, open_checkpoint
from spec.checkpoint.write import Saver

__all__ = ["Checkpoint", "Position", "Saver", "checkpoints_in", "find_checkpoint", "open_checkpoint"]
