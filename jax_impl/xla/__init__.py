"""What only XLA has: reading compiled programs. PyTorch's own folder is `torch_impl/graph/`; the two are not mirrored."""
