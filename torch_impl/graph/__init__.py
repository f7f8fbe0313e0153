"""The whole training step in one CUDA graph: one launch a step, nothing of the step left on the host.

`whole_step.py` is the door: it takes any step function with the state that it changes, and gives back
something that is called with a host batch. What a graph needs around it, one file each:

    mapped, layout, rings     batches in and metrics out through pinned memory that kernels reach
    neutral                   warm-up and capture leave no trace: save, put back, prove by checksum
    capture, handshake        capture on every rank or on none
    driver, kernels           the CUDA driver and NVRTC through cuda.bindings
    nodes, rewrite, launch    what was captured, made kernels alone, launched by one call
    ledger                    every pointer by name
    buckets, plan             all-reduces on a second stream while backward goes on
    random                    dropout that is a function of (seed, draw, site, element)
    shapes                    one graph for each shape
    teardown                  executable, then graph, then communicator
    report, picture           capture.json and a drawing of it
    cells, held, settings     what an optimizer of a user's own keeps, and what of it a graph would freeze
    proof, own_update         a few of its steps by replay, held against the same steps uncaptured

Must not: change what a step computes. Nothing here has a counterpart in `jax_impl`: XLA does its own.
"""
