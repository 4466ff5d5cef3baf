"""The journal: what happened, on disk, in order. The one truth for recovery, replay, audit and Spark.

Frontends and the pipeline use what is named here; `record`, `heap` and `block` are the format (docs/journal-format.md).
"""

from .content_reader import ContentReader
from .directory import forget_journal, forget_reader, reader_offsets, register_reader
from .errors import (
    BadRecord,
    Damaged,
    DirectoryLocked,
    ForeignDirectory,
    JournalClosed,
    JournalError,
    JournalFailed,
    JournalFull,
    NotInJournal,
)
from .files import REAL, Files, RealFiles
from .heap import Bound, Content, Declared
from .journal import Journal, JournalOptions, JournalStatistics
from .names import Names
from .reader import JournalReader
from .record import Record
from .recovered import MessageState, RecoveredMessage, RecoveredQueue
from .recovery import Recovered, ended_us, recover
from .writer import WriterState

__all__ = [
    "REAL",
    "BadRecord",
    "Bound",
    "Content",
    "ContentReader",
    "Damaged",
    "Declared",
    "DirectoryLocked",
    "Files",
    "ForeignDirectory",
    "Journal",
    "JournalClosed",
    "JournalError",
    "JournalFailed",
    "JournalFull",
    "JournalOptions",
    "JournalReader",
    "JournalStatistics",
    "MessageState",
    "Names",
    "NotInJournal",
    "RealFiles",
    "Record",
    "Recovered",
    "RecoveredMessage",
    "RecoveredQueue",
    "WriterState",
    "ended_us",
    "forget_journal",
    "forget_reader",
    "reader_offsets",
    "recover",
    "register_reader",
]
