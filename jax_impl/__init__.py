"""The JAX side: one whole training step as ONE XLA program, compiled once, updating its state in place.

Read `step.py` first; it is the step. `memory.py` is what its state is, `parallel.py` how ranks share it,
`compile.py` makes it one program and proves what that program does, `trainer.py` is the library's door and
`work.py` the worker's. Imports `spec`, JAX, flax and optax, and nothing else of this project. Counterpart:
`torch_impl`, file by file.
"""
