"""torch's own random generators: in a checkpoint where steps draw from them, and put back from it.

Weights and rows are functions of seeds and need none of this; a user's module with `nn.Dropout` does. Must
not: draw. JAX has no counterpart: its generators are part of a module's state, and a module that holds one is
refused.
"""

import numpy as np
import torch
from torch import Tensor

from spec.state import Arrays, own_key
from torch_impl.parallel import Ranks


class Generators:
    """The generators of the CPU and of this rank's GPU, watched from here on."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._before = self._states()

    def in_use(self) -> dict[str, Tensor]:
        """State, on this rank's device, of each generator that some rank has drawn from, under
        `generator/KIND`; all ranks call this together."""
        device, states = self._ranks.device, self._states()
        drawn = torch.tensor([not torch.equal(state, self._before[kind]) for kind, state in states.items()])
        by_any = torch.stack(self._ranks.gather(drawn.to(device))).any(dim=0).tolist()
        pairs = zip(states.items(), by_any, strict=True)
        return {f"generator/{kind}": state.to(device) for (kind, state), drawn in pairs if drawn}

    def put_back(self, tensors: Arrays) -> None:
        """Sets this rank's generators to its own states among the tensors; leaves them where it has none."""
        for kind in self._before:
            key = own_key(f"generator/{kind}", self._ranks.rank)
            if key not in tensors:
                continue
            state = torch.from_numpy(np.array(tensors[key]))
            if kind == "cpu":
                torch.set_rng_state(state)
            else:
                torch.cuda.set_rng_state(state, self._ranks.device)
            # A checkpoint of steps that draw no more must still hold where they would go on.
            self._before[kind] = torch.empty(0, dtype=torch.uint8)

    def _states(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self._ranks.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._ranks.device)
        return states
