"""The cause of a difference, confirmed: which edit of the catalogue makes one side the other.

    settings    the run's step in float64, from saved states: once as it was, once held out
    residuals   what is left between the sides, tensor by tensor, and what rounding alone would leave
    signature   what the first difference looks like
    fit         an unknown constant, solved from the residual
    search      tries edits, keeps those that close something and open nothing, until nothing is left
    own_optimizers, update_rule    the same where each side brings an optimizer that edits do not reach
    command     `parity explain`; `reproduce.py` goes into the folder that it leaves where nothing explains

Edits are made on the torch side, which can make all of them; what makes torch equal to JAX tells as much
about either. Must not: import a framework.
"""
