"""`parity bench`: contenders timed beside each other, in blocks that are measured together; one batch or several."""
