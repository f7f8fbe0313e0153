"""What each precision profile means, as one table that both sides and all baselines obey.

Probes in `torch_impl/runtime.py` and `jax_impl/runtime.py` prove on the device what can be seen there: the
rounding of products, the dtypes of statistics and losses. No tuner may change a cell.
"""

from dataclasses import dataclass

from spec.errors import RuleError

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
"""Half an ulp at 1, the largest relative error of one rounding."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One row: a dtype for each kind of value in the step."""

    name: str
    master: str
    """Stored parameters."""
    compute: str
    """Parameters as the model reads them (norm parameters and embeddings too), activations between ops, the
    residual stream, logits."""
    matmul: str
    """Rounding of matrix-product inputs inside the product: `ieee` keeps the compute dtype, `tf32` rounds
    float32 to 10 bits."""
    statistics: str
    """Norm statistics, softmax and cross-entropy, computed from values of the compute dtype."""
    gradient: str
    """What the backward of one micro-batch delivers for each parameter."""
    accumulate: str
    """The sum over micro-batches, the all-reduce, then the one division by the tokens of the global batch,
    then the global norm."""
    moments: str
    """AdamW's moments and the update arithmetic."""
    attention: str
    """`exact` writes out scores, softmax and values; `fused` takes the framework's fused kernel."""
    excess: bool = False
    """Whether a compiler may leave out roundings that are written: in no profile, unless an edit says so."""

    @property
    def unit_roundoff(self) -> float:
        """The coarsest rounding that reaches a result of this profile."""
        return UNIT_ROUNDOFF["tf32" if self.matmul == "tf32" else self.compute]


def _uniform(name: str, dtype: str, matmul: str) -> Profile:
    return Profile(
        name=name,
        master=dtype,
        compute=dtype,
        matmul=matmul,
        statistics=dtype,
        gradient=dtype,
        accumulate=dtype,
        moments=dtype,
        attention="exact",
    )


PROFILES = {
    profile.name: profile
    for profile in (
        _uniform("f64", "float64", "ieee"),
        _uniform("strict", "float32", "ieee"),
        _uniform("tf32", "float32", "tf32"),
        Profile(
            name="bf16",
            master="float32",
            compute="bfloat16",
            matmul="ieee",
            statistics="float32",
            gradient="bfloat16",
            accumulate="float32",
            moments="float32",
            attention="fused",
        ),
    )
}


def narrower(one: str | None, other: str) -> str:
    """The one of two dtypes that rounds more; a first one alone."""
    return other if one is None or UNIT_ROUNDOFF[other] > UNIT_ROUNDOFF[one] else one


def find_profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
      RuleError: there is none.
    """
    if name not in PROFILES:
        raise RuleError(
            "A precision profile is one of the table's.", repr(name), f"take one of {', '.join(PROFILES)}"
        )
    return PROFILES[name]
