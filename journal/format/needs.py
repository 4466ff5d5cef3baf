"""What a journal holds that not every program knows: names in the file `format` of its directory.

A program that does not know one of them refuses the directory, instead of losing what it would pass over. A name is
there before the first record that it is about. Source: docs/journal-format.md, "The directory".
"""

from ...engine import Field, encode_table
from .heap import Declared
from .record import PARAMETER, QUEUE

LEASED_QUEUES = "leased queues"
LOGGED_TOPICS = "logged topics"
DUPLICATE_IDS = "duplicate ids"
PARAMETERS = "parameters"

#: All that this program knows.
KNOWN = frozenset({LEASED_QUEUES, LOGGED_TOPICS, DUPLICATE_IDS, PARAMETERS})

#: How a queue's arguments say that it is leased, behind the length of their table.
_LEASED = encode_table({"x-queue-type": Field("S", b"amps")})[4:]


def needs_of(declared: Declared) -> frozenset[str]:
    """What a program must know that finds this object."""
    if declared.what == PARAMETER:
        return frozenset({PARAMETERS})
    if declared.what == QUEUE and _LEASED in declared.arguments:
        return frozenset({LEASED_QUEUES})
    return frozenset()
