"""How every command that runs the sides begins: its folder made, what will run written down, a pair settled.

Must not: train, time or judge.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from parity import assemble, folders
from parity.options import Training
from parity.pairs.settle import Settled, settle
from parity.plan import Plan
from parity.progress import Progress
from spec.errors import RuleError


def begin(
    plan: Plan,
    options: Training,
    argv: Sequence[str],
    progress: Progress,
    stated: Mapping[str, object] | None = None,
) -> tuple[Path, Settled]:
    """The new run folder, and the plan with what the models of a pair were found to be.

    Args:
      stated: what else `run.json` says from the start.

    Raises:
      RuleError: the folder cannot be written, or a file of a pair cannot be used.
    """
    folder = folders.create(Path(options.out), plan.spec.name)
    # Before the models are described, so that a run that fails there says what it was.
    assemble.write_run(folder, plan, argv, stated)
    for note in plan.notes:
        progress.say(note)
    try:
        settled = settle(plan, folder, progress)
    except RuleError:
        progress.say(f"pair: ended before training; what the sides were asked is in {folder}")
        raise
    if plan.pair is not None:
        assemble.write_run(folder, settled.plan, argv, stated)
    return folder, settled
