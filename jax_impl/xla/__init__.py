"""What only XLA has: compiled programs to read. PyTorch's own is `torch_impl/graph/`; neither is mirrored."""
