"""Rounding up, once for all rules."""


def ceil_div(tokens: int, size: int) -> int:
    """`tokens` / `size` rounded up."""
    return -(-tokens // size)
