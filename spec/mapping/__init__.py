"""How the tensors of one model lie in another: names and layouts between PyTorch and JAX, as data.

`links` is that data and the one transform made from it, for weights, gradients and moments alike. `layouts`
says how a tensor of one shape can lie in one of another, `assign` pairs what is alike at the least cost,
`propose` puts both together for two whole models, and `search` settles what shapes and names leave open by
asking a side what it computes. Must not: import a framework. `jax_impl/state.py` alone applies links.
"""
