"""The scaling study: the step measured on 1 to N devices of one host, and a cost model beyond.

`python -m benchmarks.scaling`; docs/scaling.md tells what it says.
"""
