"""Writes `parity/result.schema.json`, after the structs of the result were added to."""

from parity.report import schema

if __name__ == "__main__":
    schema.COMMITTED.write_text(schema.text())
