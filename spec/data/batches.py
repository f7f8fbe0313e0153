"""The door to data: a problem's source of rows, and who takes which of them.

source = open_source(problem)
start, stop = rank_rows(problem.global_batch, rank, world_size)
batch = source.rows(step, start, stop)
recorded = batch_digest(batch, first_row=start)
"""

from pathlib import Path
from typing import TYPE_CHECKING

from spec.data.digest import add_digests, batch_digest, row_digest_u64
from spec.data.folder import FolderSource, write_batches
from spec.data.rows import Batch, BatchSpec, RowSource, StreamRows
from spec.data.shards import open_shards
from spec.data.synthetic import SyntheticRegression, SyntheticTokens
from spec.data.text import open_text
from spec.errors import RuleError
from spec.workloads.gpt import GptSizes
from spec.workloads.mlp import MlpSizes

if TYPE_CHECKING:
    from spec.run import Problem

__all__ = [
    "Batch",
    "BatchSpec",
    "FolderSource",
    "RowSource",
    "add_digests",
    "batch_digest",
    "micro_slices",
    "open_source",
    "rank_rows",
    "row_digest_u64",
    "write_batches",
]


def open_source(problem: "Problem", batches: Path | str | None = None) -> RowSource:
    """The rows of a problem.

    Args:
      batches: a folder of batches written before, read instead of making them (a job's `batches`).

    Raises:
      RuleError: the data are missing or damaged, too short, or not of a kind that the workload can read.
    """
    data, sizes, seed = problem.data, problem.sizes, problem.seed_data
    folder = batches or (data.path if data.kind == "folder" else None)
    if folder is not None:
        return FolderSource(folder, vocab=sizes.vocab if isinstance(sizes, GptSizes) else None)
    if isinstance(sizes, MlpSizes):
        if data.ragged:
            raise RuleError(
                "Only rows of tokens can be ragged.", "workload mlp, ragged data", "leave ragged out"
            )
        return SyntheticRegression(sizes, seed=seed)
    assert isinstance(sizes, GptSizes), "a pair's batches lie in a folder"
    if data.kind == "synthetic":
        return SyntheticTokens(vocab=sizes.vocab, seq_len=sizes.seq_len, seed=seed, ragged=data.ragged)
    stream = open_text(data.path) if data.kind == "text" else open_shards(str(data.path))
    return StreamRows(stream, vocab=sizes.vocab, seq_len=sizes.seq_len, seed=seed, ragged=data.ragged)


def rank_rows(global_batch: int, rank: int, world_size: int) -> tuple[int, int]:
    """Rows [start, stop) of the global batch that a rank takes: contiguous, in the order of ranks."""
    assert 0 <= rank < world_size, (rank, world_size)
    return rank * global_batch // world_size, (rank + 1) * global_batch // world_size


def micro_slices(num_rows: int, micro_batches: int) -> list[slice]:
    """The slices of a rank's rows that its micro-batches take: contiguous, equal, in order."""
    assert num_rows % micro_batches == 0, f"{num_rows} rows, {micro_batches} micro-batches (see RunSpec)"
    size = num_rows // micro_batches
    return [slice(k * size, (k + 1) * size) for k in range(micro_batches)]
