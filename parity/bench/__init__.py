"""`parity bench`: contenders timed beside each other, in blocks measured together; one batch or several."""
