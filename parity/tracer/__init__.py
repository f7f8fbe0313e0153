"""The tracer: starts either side unchanged, in the same process, with CUPTI looking on.

`python -m parity.tracer -m torch_impl work JOB...` is what the referee starts for a `trace` job. CUPTI is
imported here and nowhere else: a process has one, and it must be there before the framework makes a context.
"""
