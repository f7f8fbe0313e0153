"""Edits of what a side's compiler may do with the step. They change nothing in a mode that compiles nothing.

Must not: compute; the sides' `runtime.py` tell their compilers.
"""

from spec.edits.kinds import Kind

OF_COMPILERS = {
    "excess_precision": Kind(
        what="the compiler may leave out roundings that are written (1), or not (0)",
        reach="compiler",
        shows="act",
        signature="elementwise",
        values=(1, 0),
        number=bool,
        narrow=True,
        mend={
            "torch": {
                1: "inductor as it is",
                0: 'torch.compile(..., options={"emulate_precision_casts": True})',
            },
            "jax": {
                1: "XLA as it is",
                0: 'compile with {"xla_allow_excess_precision": False}; lax.reduce_precision is always kept',
            },
        },
    ),
}
