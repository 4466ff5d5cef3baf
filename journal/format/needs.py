"""Needs: features of a journal that older programs do not know, listed in the file `format` of its directory.

A program that does not know one of them refuses the directory instead of losing data. A need is in the file before the
first record that requires it. Source: docs/journal-format.md, "The directory".
"""

from collections.abc import Set

from ...engine import Field, encode_table
from .heap import Declared
from .record import PARAMETER, QUEUE

LEASED_QUEUES = "leased queues"
LOGGED_TOPICS = "logged topics"
DUPLICATE_IDS = "duplicate ids"
PARAMETERS = "parameters"

#: Level of a release -> the features that it added. Nodes of a cluster tell each other their level: a leader writes
#: nothing of a level above the cluster's, which an operator raises when all nodes can read more. A later feature needs
#: a new level; `Journal.may_write` says whether it may be used yet.
LEVELS = {1: frozenset({LEASED_QUEUES, LOGGED_TOPICS, DUPLICATE_IDS, PARAMETERS})}
#: The highest level that this program reads.
LEVEL = max(LEVELS)
#: The level that every program reads.
LEVEL_MIN = min(LEVELS)
#: Needs that this program knows.
KNOWN = frozenset().union(*LEVELS.values())

#: Octets in the arguments of a leased queue (its queue type), without the length of their table.
_LEASED = encode_table({"x-queue-type": Field("S", b"amps")})[4:]


def level_of(needs: Set[str]) -> int:
    """The lowest level of a program that knows all these features. This program must know them."""
    return max((level for level, features in LEVELS.items() if features & needs), default=LEVEL_MIN)


def needs_of(declared: Declared) -> frozenset[str]:
    """The features that a program must know to restore this object."""
    if declared.object_type == PARAMETER:
        return frozenset({PARAMETERS})
    if declared.object_type == QUEUE and _LEASED in declared.arguments:
        return frozenset({LEASED_QUEUES})
    return frozenset()
