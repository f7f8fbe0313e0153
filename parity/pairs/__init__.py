"""Pairs of the user's own, as the referee handles them: read, described by their sides, matched, then run.

`read` starts the neutral process that imports `pair.py`, `settle` makes a whole run of it, `record` says in
the result how the tensors correspond, `template` writes a new pair. Must not: import a file of a pair.
"""
