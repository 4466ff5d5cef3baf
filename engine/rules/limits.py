"""Limits in settings, where a number that is too low means no limit."""


def from_zero(limit: int) -> int | None:
    """The limit; None: it is below 0."""
    return limit if limit >= 0 else None


def from_one(limit: int) -> int | None:
    """The limit; None: it is below 1."""
    return limit if limit > 0 else None
