"""A run that changed sides, as one run: the passes of its stretches read one behind the other.

Must not: compare numbers; `verdict.judge` does, with the whole run of a side.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from parity.judge.align import Curve, Measured, joined
from parity.judge.curves import relative_difference
from parity.judge.evidence import Evidence
from parity.judge.facts import replicas
from parity.report.result import Handoff, Stretch
from spec.job import Job


@dataclass(frozen=True)
class Chain(Measured):
    """Passes that each go on from the checkpoint of the one before."""

    parts: tuple[Measured, ...] = ()

    @cached_property
    def job(self) -> Job:
        """That of the first, up to the last step of the last."""
        return dataclasses.replace(self.parts[0].job, steps=self.parts[-1].job.steps)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What the first said of itself, with the probes of all."""
        probes = [probe for part in self.parts for probe in part.manifest["probes"]]
        return self.parts[0].manifest | {"probes": probes}

    @cached_property
    def whole_curve(self) -> Curve:
        """The steps of all."""
        return joined([part.whole_curve for part in self.parts])

    @cached_property
    def end_digests(self) -> dict[int, dict[str, Any]]:
        """The hashes of the last state, by rank."""
        return self.parts[-1].end_digests

    @property
    def finished(self) -> bool:
        """Whether every part ended well."""
        return all(part.finished for part in self.parts)

    def tensor_files(self) -> dict[int, Path]:
        """The file of each step that was observed."""
        found = [part.tensor_files() for part in self.parts]
        return {step: path for files in found for step, path in files.items() if step >= self.since}

    def handed_over(self) -> Iterator[Evidence]:
        """Where a side did not begin with the bits that the other ended with, or its ranks had parted."""
        for before, after in pairwise(self.parts):
            yield from replicas(before)
            given, taken = before.end_digests[0]["param"], after.manifest["init_digest"]
            if given != taken:
                step = int(before.end_digests[0]["step"])
                yield Evidence(
                    step=step,
                    phase="handoff",
                    class_="state",
                    values={before.label: given, after.label: taken},
                    message=f"parameters handed over at step {step}: {before.label} ended with {given[:12]}, "
                    f"{after.label} began with {taken[:12]}",
                )


def describe(chain: Chain, whole: Mapping[str, Measured]) -> Handoff:
    """The stretches of a run that changed sides, beside the whole run of each side."""
    return Handoff(label=chain.label, stretches=[_stretch(part, whole) for part in chain.parts])


def _stretch(part: Measured, whole: Mapping[str, Measured]) -> Stretch:
    curve = part.curve
    distances = {
        side: float(relative_difference(curve.loss[:1], run.curve.loss[curve.first_step :][:1])[0])
        for side, run in whole.items()
    }
    return Stretch(
        side=part.job.side,
        first_step=curve.first_step,
        stop=curve.stop,
        folder=part.folder.name,
        checkpoint=part.job.resume,
        loss_rel={side: rel if math.isfinite(rel) else None for side, rel in distances.items()},
    )
