"""Launches as the result tells them: where their time went, and what nobody measured."""

import json
from pathlib import Path

from parity import assemble
from parity.launch import Ended
from parity.session import Held
from parity.turns import Turn
from spec.job import read_job
from tests.parity.timed import time_pass


def test_compiling_that_a_side_did_not_measure_is_null_with_its_reason(tmp_path: Path) -> None:
    baseline, own, again = (tmp_path / name for name in ("001_baseline", "002_own", "003_own"))
    for folder, mode in ((baseline, "baseline:compile"), (own, "inductor"), (again, "inductor")):
        time_pass(folder, ("torch", mode), [1.0])
        (folder / "done.json").write_text(json.dumps({"seconds": 5.0}))
    for folder in (own, again):
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"compile_s": 2.0, "reasons": {}}))
    turn = Turn(side="torch", jobs=tuple(read_job(folder / "job.json") for folder in (baseline, own, again)))
    held = Held(turn=turn, ended=Ended(how="done", seconds=20.0), log=tmp_path / "001_torch.log")
    (launch,) = assemble.launches([held])
    assert launch.compile_s == {"001_baseline": None, "002_own": 2.0, "003_own": 2.0}
    assert launch.reasons == {"001_baseline": "nothing was compiled"}
    told = assemble.seconds([launch], total=21.0, judged=0.5)
    assert (told.start_up, told.compile, told.jobs) == (5.0, 2.0, 13.0)
