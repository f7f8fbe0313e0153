"""From evidence to one word about a pair of passes, with its reasons.

SAME           everything compared lies within its tolerance
DIFFERENT      something does not; the first in causal order is named
INCONCLUSIVE   only curves and states beyond the steps that the tolerances cover do not; or nothing differs,
               and the data cannot show what the model does
NOT_COMPARABLE the gate refused: the sides were not given the same
FAILED         a side did not finish
"""

from collections.abc import Iterable
from dataclasses import replace

from parity.judge import adequacy, curves, facts, gate, logs, measured, tensors
from parity.judge.align import Measured, aligned
from parity.judge.evidence import Evidence, divergence, first
from parity.judge.tolerances import covered_steps
from parity.report.result import CurveDifference, Numerics, TensorDifference, Verdict
from spec.errors import PRECEDENCE, ExitCode
from spec.own_optimizer import OwnOptimizer

EXIT_CODES: dict[Verdict, ExitCode] = {
    "SAME": ExitCode.SAME,
    "DIFFERENT": ExitCode.DIFFERENT,
    "INCONCLUSIVE": ExitCode.INCONCLUSIVE,
    "NOT_COMPARABLE": ExitCode.NOT_COMPARABLE,
    "FAILED": ExitCode.CRASHED,
}

UNMEASURED = {
    "floor": "the table of tolerances serves; a floor needs reruns",
    "latent": "differences below the noise are found by float64 truth alone, which this run did not make",
}
_NO_RATE = {"lr": "optimizers of the sides' own do not tell their learning rates"}
_NO_CLASS = {"class": "semantics and precision are told apart by float64 truth, which this run did not make"}


def judge(
    a: Measured,
    b: Measured,
    further: Iterable[Evidence] = (),
    passes: measured.Passes | None = None,
) -> Numerics:
    """The verdict about two run passes, with all that led to it; compared are the steps that both have.

    Args:
      further: evidence about one of them, found elsewhere.
      passes: of a measured run. Then floors and truths decide, and that the free runs leave the table alone
        makes at most INCONCLUSIVE: curves part by rounding.
    """
    unfinished = [side for side in (a, b) if not side.finished]
    if unfinished:
        return _refused(
            a, b, "FAILED", [f"{side.label} did not finish: {side.folder}" for side in unfinished]
        )
    a, b = aligned(a, b)
    refusals = gate.differences(a, b)
    if refusals:
        return _refused(a, b, "NOT_COMPARABLE", refusals)
    evidence = [*further, *facts.declared(a, b), *curves.counts(a, b), *facts.replicas(a), *facts.replicas(b)]
    curve_differences: dict[str, CurveDifference | None] = {}
    for quantity in curves.CURVES:
        curve_differences[quantity], found = curves.compare(a, b, quantity)
        evidence += found
    tensor_differences, found = tensors.compare(a, b)
    evidence += found
    if passes is None:
        return _decided(a, b, evidence, curve_differences, tensor_differences)
    looked = measured.look(a, b, passes)
    for quantity in ("loss", "grad_norm"):
        curve_differences[quantity] = measured.with_drift(curve_differences[quantity], a, b, quantity, passes)
    evidence = [*looked.evidence, *_of_free_runs(evidence, looked.runs_agree)]
    return _with_measurements(_decided(a, b, evidence, curve_differences, tensor_differences), looked)


def _of_free_runs(evidence: list[Evidence], runs_agree: bool) -> list[Evidence]:
    """Evidence of the free runs beside measured steps: meanings decide there, numbers alone do not.

    Args:
      runs_agree: whether the runs in float64 agree: then it is rounding that parts the others.
    """
    apart = [item for item in evidence if not (item.ok or item.class_ or item.phase == "lr")]
    head = first(apart)
    if head is None:
        return evidence
    why = "rounding, since in float64 the runs agree" if runs_agree else "which alone decides nothing"
    message = f"{len(apart)} of the free runs' numbers leave the table ({why}); the first: {head.message}"
    rest = [item for item in evidence if item not in apart]
    return [*rest, replace(head, ok=runs_agree, covered=False, message=message)]


def _with_measurements(numerics: Numerics, looked: measured.Found) -> Numerics:
    """The judgement with what lockstep steps showed."""
    latent = [measured.told(row) for row in looked.latent]
    numerics.lockstep = looked.summary
    numerics.latent = latent if looked.summary.truths else None
    numerics.unmeasured = {}
    if not looked.summary.truths:
        numerics.unmeasured["latent"] = "float64 could not be had"
        if numerics.first_divergence and numerics.first_divergence.class_ is None:
            numerics.unmeasured["class"] = "semantics and precision are told apart by float64 truth"
    if latent:
        head = latent[0]
        numerics.reasons.append(
            f"{len(latent)} latent differences of meaning, below the noise of the profile; the first: "
            f"{head.phase} of step {head.step}{', ' + head.tensor if head.tensor else ''} ({head.reason})"
        )
    return numerics


def _decided(
    a: Measured,
    b: Measured,
    evidence: list[Evidence],
    curve_differences: dict[str, CurveDifference | None],
    tensor_differences: list[TensorDifference],
) -> Numerics:
    deciding = [item for item in evidence if item.covered] if any(_decides(e) for e in evidence) else evidence
    earliest, precision = first(deciding), a.job.spec.problem.precision
    if earliest is not None and earliest.covered and earliest.class_ is None and precision == "f64":
        # Float64 against float64 leaves no rounding that could be seen, so what is seen is meaning.
        earliest = replace(earliest, class_="semantics")
    verdict, reasons = _verdict(evidence), _reasons(earliest, evidence, precision)
    unseen = adequacy.would_not_see(a) if verdict == "SAME" else []
    if verdict == "SAME" and (why := adequacy.too_little(a)):
        verdict, reasons = "INCONCLUSIVE", [why, *reasons]
    return Numerics(
        pair=[a.label, b.label],
        verdict=verdict,
        reasons=reasons,
        steps=min(a.curve.num_steps, b.curve.num_steps),
        loss=curve_differences["loss"],
        grad_norm=curve_differences["grad_norm"],
        lr=curve_differences["lr"],
        first_divergence=divergence(earliest) if earliest else None,
        latent=None,
        tensors=tensor_differences,
        unmeasured=UNMEASURED
        | ({} if earliest is None or earliest.class_ else _NO_CLASS)
        | (_NO_RATE if isinstance(a.job.spec.problem.optimizer, OwnOptimizer) else {}),
        would_not_see=unseen,
        log_skew=list(logs.skews(a, b)),
    )


def _decides(item: Evidence) -> bool:
    return item.covered and not item.ok


def _verdict(evidence: list[Evidence]) -> Verdict:
    failing = [item for item in evidence if not item.ok]
    if not failing:
        return "SAME"
    return "DIFFERENT" if any(_decides(item) for item in failing) else "INCONCLUSIVE"


def _reasons(earliest: Evidence | None, evidence: list[Evidence], precision: str) -> list[str]:
    reasons = [] if earliest is None else [f"first divergence: {earliest.message}"]
    if earliest is not None and not earliest.covered and earliest.step >= covered_steps(precision):
        reasons.append(
            f"the tolerances cover {covered_steps(precision)} steps; two right sides may part by rounding "
            f"after that: run fewer steps{'' if precision == 'f64' else ', or --precision f64'}"
        )
    return reasons + [item.message for item in evidence if item.ok]


def _refused(a: Measured, b: Measured, verdict: Verdict, reasons: list[str]) -> Numerics:
    return Numerics(
        pair=[a.label, b.label],
        verdict=verdict,
        reasons=reasons,
        steps=0,
        loss=None,
        grad_norm=None,
        lr=None,
        first_divergence=None,
        latent=None,
        tensors=[],
        unmeasured=dict.fromkeys(("loss", "grad_norm", "lr", "latent"), f"nothing was compared: {verdict}"),
    )


def found_nothing(numerics: Numerics) -> bool:
    """Whether the sides were compared and nothing differs, be it that the data show too little for a SAME."""
    compared = numerics.verdict in ("SAME", "INCONCLUSIVE")
    return compared and numerics.first_divergence is None


def gravest(judged: list[Numerics]) -> Numerics:
    """The pair whose verdict decides the exit code of several."""

    def rank(numerics: Numerics) -> int:
        code = EXIT_CODES[numerics.verdict]
        return PRECEDENCE.index(code) if code in PRECEDENCE else len(PRECEDENCE)

    return min(judged, key=rank)


def reasons(judged: list[Numerics]) -> list[str]:
    """The reasons of all pairs, each once, the gravest pair's first."""
    ordered = sorted(judged, key=lambda numerics: numerics is not gravest(judged))
    return list(dict.fromkeys(reason for numerics in ordered for reason in numerics.reasons))
