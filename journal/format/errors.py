"""What the journal refuses, and what has become of it, in its own words."""


class JournalError(Exception):
    """Base of all; the text is a sentence for an operator."""


class DirectoryLocked(JournalError):
    """Another process has the journal open."""


class ForeignDirectory(JournalError):
    """The directory holds something else, or a journal of a format that this version does not read."""


class NewerJournal(ForeignDirectory):
    """A newer program wrote it: it has a version, or holds something, that this one does not know."""


class Damaged(JournalError):
    """Bytes that were durable are not what was written. `segment`: file name; `offset`: octets from its start."""

    def __init__(self, segment: str, offset: int, why: str) -> None:
        super().__init__(f"segment {segment}, offset {offset}: {why}")
        self.segment = segment
        self.offset = offset
        self.why = why


class BadRecord(JournalError):
    """A record, a heap entry or a block header has a value that cannot be."""


class NotInJournal(JournalError):
    """No segment holds the record of that LSN (reclaimed, lost in a repair, or not written yet)."""


class JournalFull(JournalError):
    """No room on the disk: nothing is lost, the same bytes are written again by `retry`. Raised by no append."""


class JournalFailed(JournalError):
    """A write or an fsync failed: what follows the durable LSN is unknown until the directory is opened again."""


class DirectoryLost(JournalFailed):
    """The directory was deleted, moved away or made read-only beneath the journal: nothing can be kept there."""


class JournalClosed(JournalError):
    """An append after `close`."""
