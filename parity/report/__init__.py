"""What a command tells: `result` is the record, `schema` describes it to others, `console` prints it."""
