"""Which edge carries a difference: meaning, a side's arithmetic, its compiler, or its capture.

    torch: float64 - eager - inductor - graph        jax: float64 - nojit - jit

Every word is the same step from the same state on the same rows, an edge what lies between two of them.
`passes` has the steps made, `edges` measures, `charge` says what carries it. `parity explain` asks for it.
"""
