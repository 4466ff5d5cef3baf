# mypy: implicit-reexport
# ruff: noqa: F401 - imported for others
"""The journal: an ordered log of events on disk. Recovery, replay, audit and Spark read it.

Other rooms import the names below. Each folder imports only from those to the left of it: `format` (the octets, as
docs/journal-format.md describes them) < `disk` < `copying` (a follower of a cluster) < `recovery` (all readers) <
`appending` (`Journal`, turns of records) < `recording`, which alone knows the engine's queues. Only the cluster
imports `copying`, each module by its own name.
"""

from .appending.journal import Journal
from .disk.directory import forget_journal
from .disk.files import REAL, Files, RealFiles
from .disk.options import ClusterJournal, JournalOptions
from .disk.readers import forget_reader, reader_offsets, register_reader
from .disk.segment_file import SYNC_SECONDS
from .disk.writer import WriterState
from .format.errors import (
    BadOctets,
    BadRecord,
    ClusterDirectory,
    Damaged,
    DirectoryLocked,
    DirectoryLost,
    ForeignDirectory,
    JournalClosed,
    JournalError,
    JournalFailed,
    JournalFull,
    NotInJournal,
)
from .format.heap import Bound, Declared
from .format.names import Names
from .format.record import Record
from .format.terms import TermTable
from .recovery.content_reader import ContentReader
from .recovery.reader import JournalReader
from .recovery.recovered import MessageState, RecoveredMessage, RecoveredQueue
from .recovery.recovery import ended_us, recover
from .recovery.replay import Recovered
from .recovery.stories import JournalStories
