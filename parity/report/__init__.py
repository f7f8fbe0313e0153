"""What a command tells: `result` is the record, `schema` describes it to others, `console` prints it."""

from parity.report.schema import result_schema

__all__ = ["result_schema"]
