"""The JSON Schema of `result.json`, made from its structs; the committed copy is `parity/result.schema.json`.

`python -m parity.report` writes that copy anew after an addition.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from parity.report.result import Result

COMMITTED = Path(__file__).resolve().parent.parent / "result.schema.json"


def result_schema() -> dict[str, Any]:
    """The schema as a dictionary, draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | msgspec.json.schema(Result)


def text() -> str:
    """The content of the committed copy."""
    return json.dumps(result_schema(), indent=1) + "\n"
