"""The judge: are two sides' numbers the same?

`align` reads what they wrote, `gate` asks whether they may be compared at all, `measures` and `tolerances`
say how far apart and how far is too far, `evidence` walks through everything in causal order, `verdict`
decides.
"""
