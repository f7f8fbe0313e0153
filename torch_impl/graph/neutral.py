"""Warm-up and capture leave no trace: the state is saved before, put back after, and compared by a checksum.

Saved are the tensors that one step leaves for the next and torch's random generators. Copies lie on the host,
so a model that fills the GPU can be captured too. Must not: know what the tensors mean.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK_WORDS = 1 << 22
_MULTIPLIERS = tuple(odd - (1 << 64) for odd in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""Odd 64-bit constants, as the signed numbers that torch's int64 holds."""


class SavedState:
    """Tensors and generators as they are now."""

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        self._tensors, self._device = list(tensors), device
        self.checksum = checksum(self._tensors)
        self._copies = [tensor.detach().to("cpu", copy=True) for tensor in self._tensors]
        self._cpu_rng = torch.get_rng_state()
        self._cuda_rng = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    @torch.no_grad()
    def put_back(self) -> str:
        """Writes everything back in place; the checksum of what is then there."""
        for tensor, copy in zip(self._tensors, self._copies, strict=True):
            tensor.copy_(copy)
        torch.set_rng_state(self._cpu_rng)
        if self._cuda_rng is not None:
            torch.cuda.set_rng_state(self._cuda_rng, self._device)
        return checksum(self._tensors)


@torch.no_grad()
def checksum(tensors: Sequence[Tensor]) -> str:
    """64 bits over the bytes of tensors, as hex; moves with every bit and its place. Not cryptographic."""
    first, second, third = _MULTIPLIERS
    total = 0
    for tensor in tensors:
        data = tensor.detach().contiguous().view(-1).view(torch.uint8)
        data = torch.nn.functional.pad(data, (0, -data.numel() % 4))
        words, part = data.view(torch.int32), torch.zeros((), dtype=torch.int64, device=tensor.device)
        for start in range(0, words.numel(), CHUNK_WORDS):
            chunk = words[start : start + CHUNK_WORDS].long()
            place = torch.arange(start + 1, start + 1 + chunk.numel(), device=tensor.device)
            mixed = (chunk ^ (place * first)) * second
            part += ((mixed ^ (mixed >> 29)) * third).sum()
        total = (total * 0x100000001B3 + int(part) + data.numel()) % (1 << 64)
    return f"{total:016x}"


def generator_offset(device: torch.device) -> int:
    """How many numbers torch's generator of the device has given; it moves when a step uses it."""
    if device.type != "cuda":
        return 0
    index = device.index if device.index is not None else torch.cuda.current_device()
    return torch.cuda.default_generators[index].get_offset()
