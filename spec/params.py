"""One row of the parameter table: everything about a parameter that both sides must agree on."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ParamSpec:
    """A parameter under its canonical name, in torch's layout: matrices are (out, in)."""

    name: str
    shape: tuple[int, ...]
    init: str
    """`normal`, `zeros` or `ones`."""
    init_std: float = 0.0
    """Standard deviation where init is `normal`."""
    decayed: bool = True
    """Whether AdamW's weight decay reaches it. Matrices and embeddings decay; biases and norm parameters do
    not."""
    partition: tuple[str | None, ...] = ()
    """The mesh axis of each dimension once parameters are sharded; data parallel alone replicates them all.
    """
    layout: str = "vector"
    """`linear` (out, in), `embedding` (rows, width) or `vector`: tells a side with another convention what to
    transpose."""
    zero_gradient: tuple[int, int] | None = None
    """Rows [start, stop) whose exact gradient is zero, so that what is seen there is rounding alone."""

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for n in self.shape:
            size *= n
        return size


def linear(name: str, d_in: int, d_out: int, std: float) -> tuple[ParamSpec, ParamSpec]:
    """The weight and bias of an affine layer."""
    weight = ParamSpec(
        name=f"{name}.weight",
        shape=(d_out, d_in),
        init="normal",
        init_std=std,
        partition=(None, None),
        layout="linear",
    )
    bias = ParamSpec(name=f"{name}.bias", shape=(d_out,), init="zeros", decayed=False, partition=(None,))
    return weight, bias


def norm(name: str, width: int) -> tuple[ParamSpec, ParamSpec]:
    """The scale and shift of a normalisation layer."""
    weight = ParamSpec(name=f"{name}.weight", shape=(width,), init="ones", decayed=False, partition=(None,))
    bias = ParamSpec(name=f"{name}.bias", shape=(width,), init="zeros", decayed=False, partition=(None,))
    return weight, bias
