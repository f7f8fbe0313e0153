"""The smallest folder that shows a difference which no edit explains: a step, its state, its rows, two jobs.

Must not: start a process.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from parity.explain.residuals import Key
from parity.explain.settings import Setting
from spec import record
from spec.data.batches import open_source
from spec.data.folder import batch_file
from spec.edits import Edit
from spec.weights import save_tensors

_README = """# One step that differs

`python reproduce.py` makes it again on both sides, from the same state on the same rows in float64, and shows
the first tensor that parts: {first}.

{pair}
"""


def write(setting: Setting, edits: tuple[Edit, ...], first: Key, out: Path) -> Path:
    """Writes the folder and returns it.

    Args:
      edits: made on the torch side already, as far as causes are confirmed.
      first: the first difference that is left.
    """
    out.mkdir(parents=True)
    (out / "states").mkdir()
    (out / "batches").mkdir()
    shutil.copy(batch_file(setting.states, first.step), batch_file(out / "states", first.step))
    problem = setting.spec.problem
    rows = open_source(problem).rows(first.step, 0, problem.global_batch)
    save_tensors(
        batch_file(out / "batches", first.step), {f"batch/{name}": array for name, array in rows.items()}
    )
    for side, own in (("torch", edits), ("jax", ())):
        job = setting.job(side, own)
        look = tuple(entry for entry in job.observe if entry.endswith(f"@{first.step}"))
        job = replace(job, observe=look, out=str(out), state=str(out / "states"), batches=None)
        job.write().rename(out / f"{side}.json")
    names = {"torch": first.tensor, "jax": setting.reference.name(first)}
    record.write_json(out / "first.json", first._asdict() | {"names": names})
    files = setting.spec.pair
    pair = f"The models are {files.torch} and {files.jax}." if files else "The model is a preset's."
    (out / "README.md").write_text(_README.format(first=first, pair=pair))
    shutil.copy(Path(__file__).with_name("reproduce.py"), out / "reproduce.py")
    return out
