"""Errors of the journal."""


class JournalError(Exception):
    """Base of the journal's errors; the text is a sentence for an operator."""


class DirectoryLocked(JournalError):
    """Another process has the journal open."""


class ForeignDirectory(JournalError):
    """The directory holds foreign files, or a journal of a format that this version does not read."""


class NewerJournal(ForeignDirectory):
    """A newer program wrote the journal: this program does not know its version or one of its needs."""


class UnknownType(JournalError):
    """The journal has queues or exchanges of a type that no package adds."""


class Damaged(JournalError):
    """Durable octets have changed since they were written. `segment`: file name; `offset`: octets from its start."""

    def __init__(self, segment: str, offset: int, why: str) -> None:
        super().__init__(f"segment {segment}, offset {offset}: {why}")
        self.segment = segment
        self.offset = offset
        self.why = why


class BadRecord(JournalError):
    """A record, a heap entry or a block header has an impossible value."""


class NotInJournal(JournalError):
    """No segment holds the record of that LSN (reclaimed, lost in a repair, or not written yet)."""


class JournalFull(JournalError):
    """The disk is full. Nothing is lost: `retry` writes the same octets again. No append raises it."""


class JournalFailed(JournalError):
    """A write or an fsync failed: the fate of records after the durable LSN is unknown until the next opening."""


class DirectoryLost(JournalFailed):
    """The open journal's directory was deleted, moved away or made read-only: nothing can be written there."""


class JournalClosed(JournalError):
    """An append after `close`."""


class BadOctets(JournalError):
    """Octets from a leader that are not blocks, or do not follow those of a copied journal, which drops them."""


class ClusterDirectory(JournalError):
    """A program outside a cluster opened the directory of a node for writing."""
