"""The guide's program reads a checkpoint with safetensors and JSON alone."""

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from spec import checkpoint
from spec.checkpoint import Saver
from spec.weights import init_parameters
from tests.spec.checkpoint import small

GUIDE = Path(checkpoint.__file__).with_name("README.md")


def test_the_program_in_the_guide_runs(
    run_python: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    tensors = init_parameters(small.SPEC.problem.parameter_table(), seed=0)
    saver = Saver(tmp_path / "checkpoints", shard_bytes=20_000)
    saver.save(small.SPEC, small.position(20), {f"param/{name}": tensors[name] for name in tensors}, {})
    saver.close()
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found
    program = found.group(1).replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
    assert run_python("-c", program).stdout == "20 (128, 32)\n"


def test_the_tests_that_the_guide_names_exist() -> None:
    for name in set(re.findall(r"`(test_\w+\.py)`", GUIDE.read_text())):
        assert Path(__file__).with_name(name).exists(), name
