"""Initial weights, and the one file format for tensors: safetensors under canonical names.

Weights are a function of (seed, name), made from raw Philox bits, so neither framework's generator decides
one and adding a layer does not move the others. Must not: know a framework's layout or container; that is for
`torch_impl/state.py` and `jax_impl/state.py`.
"""

import hashlib
import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import ml_dtypes  # noqa: F401 - gives NumPy, and safetensors through it, the bfloat16 dtype
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from spec import philox, threads
from spec.errors import RuleError
from spec.files import replacing
from spec.params import ParamSpec

Tensors = dict[str, np.ndarray]
"""Arrays by name, in the layout of the parameter table."""


def init_parameters(table: Iterable[ParamSpec], seed: int) -> Tensors:
    """The initial value of every parameter of the table, in its order.

    Float32 arrays in every precision profile; the float64 profile casts them up, so profiles start alike.
    """
    rows = list(table)
    drawn = threads.each(partial(init_parameter, seed=seed), rows)
    return {row.name: values for row, values in zip(rows, drawn, strict=True)}


def init_parameter(param: ParamSpec, seed: int) -> np.ndarray:
    """One initial value: float32 of `param.shape`, a function of (seed, param.name) and the row's init."""
    match param.init:
        case "normal":
            return philox.normals(philox.key(seed, "weight", param.name), param.shape, param.init_std)
        case "zeros":
            return np.zeros(param.shape, np.float32)
        case "ones":
            return np.ones(param.shape, np.float32)
    raise AssertionError(f"{param.name}: no such init: {param.init!r}")


def raw_bytes(array: np.ndarray) -> memoryview:
    """The bytes of an array in C order, of any dtype (ml_dtypes too); no copy where it is contiguous."""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data


def tensor_sha256(array: np.ndarray) -> str:
    """Hex hash of dtype, shape and bytes. Equal exactly where the bits are: -0.0 and 0.0 differ."""
    digest = hashlib.sha256(f"{array.dtype.name} {array.shape} ".encode())
    digest.update(raw_bytes(array))
    return digest.hexdigest()


def state_digest(tensors: Tensors) -> str:
    """Hex hash over the name and `tensor_sha256` of every tensor, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensor_sha256(tensors[name])}\n".encode())
    return digest.hexdigest()


def save_tensors(path: Path | str, tensors: Tensors) -> None:
    """Writes tensors to a safetensors file, whole or not at all. Any strides; bfloat16 as BF16."""
    # safetensors takes the memory as it lies, strides unseen.
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    with replacing(path) as temporary:
        save_file(contiguous, temporary)


class TensorFile:
    """A safetensors file held open; each tensor is read into memory of its own, and the file is not mapped.

    Raises:
      RuleError: the file is missing or damaged; the first tensor that it lost is named.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with _telling_damage(self.path):
            self._file = safe_open(path, framework="np", backend="pread")
            self.names = dict.fromkeys(self._file.keys())

    def read(self, name: str) -> np.ndarray:
        """One tensor.

        Raises:
          RuleError: it is not in the file, or the file was cut since it was opened.
        """
        self._check_present([name])
        with _telling_damage(self.path):
            return self._file.get_tensor(name)

    def read_all(self, names: Iterable[str] | None = None) -> Tensors:
        """All tensors, or those named; raises as `read`, before anything is read."""
        wanted = list(self.names if names is None else names)
        self._check_present(wanted)
        return {name: self.read(name) for name in wanted}

    def _check_present(self, names: list[str]) -> None:
        missing = [name for name in names if name not in self.names]
        if missing:
            raise RuleError(
                "Every tensor that is asked for is in the file.",
                f"{self.path}: no {missing[0]} ({len(missing)} missing), among {len(self.names)} tensors",
                "was it written for another model, or by another version?",
            )


def load_tensors(path: Path | str, names: Iterable[str] | None = None) -> Tensors:
    """Reads tensors of a safetensors file, all of them or those named, as arrays in memory.

    Raises:
      RuleError: the file is missing or damaged (naming the first tensor hit), or a name is not in it.
    """
    return TensorFile(path).read_all(names)


@contextmanager
def _telling_damage(path: Path) -> Generator[None]:
    try:
        yield
    except FileNotFoundError:
        raise RuleError(
            "A tensor file exists.", f"{path}: no such file", "name one, or make it first"
        ) from None
    except (SafetensorError, OSError) as error:
        raise RuleError(
            "A tensor file is a whole safetensors file.",
            f"{path}: {_damage(path) or error}",
            "write it again, or copy it again",
        ) from None


def _damage(path: Path) -> str | None:
    """Where a safetensors file (u64 header size, JSON header, data) breaks off; None where it does not."""
    if not path.is_file():
        return "not a file"
    size = path.stat().st_size
    if size < 8:
        return f"{size} bytes, too few for a header"
    with path.open("rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        if header_size > size - 8:
            return f"{size} bytes, but the header alone claims {header_size}"
        try:
            header = json.loads(file.read(header_size))
            ends = {name: int(entry["data_offsets"][1]) for name, entry in header.items() if name[:2] != "__"}
        except (ValueError, TypeError, AttributeError, KeyError, IndexError):
            return "the header is not the JSON of a safetensors file"
    have = size - 8 - header_size
    for name, end in sorted(ends.items(), key=lambda item: item[1]):
        if end > have:
            return f"cut off in tensor {name}, which ends at data byte {end} of {have}"
    return None
