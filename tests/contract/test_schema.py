"""result.json has a committed JSON Schema, which is what the code writes; it changes by additions only."""

import json
from pathlib import Path

from jsonschema import Draft202012Validator

from parity.report import result_schema

COMMITTED = Path(__file__).resolve().parents[2] / "parity" / "result.schema.json"
TOP_LEVEL = {"schema_version", "verdict", "exit_code", "reasons", "numerics", "speed", "capture"}
VERDICTS = {"SAME", "DIFFERENT", "INCONCLUSIVE", "NOT_COMPARABLE", "FAILED"}


def test_committed_schema_is_what_the_code_writes() -> None:
    committed = json.loads(COMMITTED.read_text("ascii"))
    assert committed == result_schema(), (
        "parity/result.schema.json is not what parity.report.result_schema() gives. Readers depend on it: "
        "additions only, with a new schema_version; then write the new schema to that file."
    )


def test_schema_is_valid_and_holds_what_readers_were_promised() -> None:
    schema = json.loads(COMMITTED.read_text("ascii"))
    Draft202012Validator.check_schema(schema)
    result = schema["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    assert set(result["properties"]) >= TOP_LEVEL
    assert "schema_version" in result["required"]
    assert set(_strings(schema)) >= VERDICTS


def _strings(node: object) -> list[str]:
    """Every string below a node of the schema."""
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return [text for child in children for text in _strings(child)]
