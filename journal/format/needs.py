"""Needs: features of a journal that older programs do not know, listed in the file `format` of its directory.

A program that does not know one of them refuses the directory instead of losing data. A need is in the file before the
first record that requires it. Source: docs/journal-format.md, "The directory".
"""

from ...engine import Field, encode_table
from .heap import Declared
from .record import PARAMETER, QUEUE

LEASED_QUEUES = "leased queues"
LOGGED_TOPICS = "logged topics"
DUPLICATE_IDS = "duplicate ids"
PARAMETERS = "parameters"

#: Needs that this program knows.
KNOWN = frozenset({LEASED_QUEUES, LOGGED_TOPICS, DUPLICATE_IDS, PARAMETERS})

#: Octets in the arguments of a leased queue (its queue type), without the length of their table.
_LEASED = encode_table({"x-queue-type": Field("S", b"amps")})[4:]


def needs_of(declared: Declared) -> frozenset[str]:
    """Needs of a program that restores this object."""
    if declared.what == PARAMETER:
        return frozenset({PARAMETERS})
    if declared.what == QUEUE and _LEASED in declared.arguments:
        return frozenset({LEASED_QUEUES})
    return frozenset()
