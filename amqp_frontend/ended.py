"""Functions that replace the callables of a connection before it needs them, and when it has ended.

So no reference cycle remains, and a late call has no effect.
"""


def nothing(*_: object) -> None:
    """Do nothing."""


def never() -> bool:
    """Return False."""
    return False
