"""The update rule of a user's own optimizer, told from gradients and parameters of every step.

    followed     both sides' runs in float64, as they were and held out
    observed     what an optimizer was given, and what it made of it
    forms        the rules that are told apart: SGD and Adam, their decays, eps, corrections and clippings
    solve        the constants of a form
    identify     the form that reproduces the updates with the constants that somebody wrote
    shapes       what a row of learning rates is
    storing      parameters that are rounded after each step
    differences  how two rules differ, in words
    explain      all of it, for `parity explain`

NumPy alone; no framework, and nothing of the optimizer's code is looked at. Must not: import a framework.
"""
