"""Examples of the allocation spec, worked out by hand, on the oracle and the real manager at once."""
