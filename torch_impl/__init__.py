"""The PyTorch side: one whole training step over flat memory whose addresses never move.

Read `step.py` first; it is the step. `memory.py` is where its state lives, `compile.py` makes it faster
without changing what it says, `trainer.py` is the library's door and `work.py` the worker's. Imports `spec`
and torch, and nothing else of this project. Counterpart: `jax_impl`, file by file.
"""
