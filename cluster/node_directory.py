"""The data directory of a node: the copy of its leader's journal while it follows, and faults of its disk."""

import logging
import os
from collections.abc import Callable

import trio

from ..engine import Unreadable
from ..journal import Damaged, Files, JournalError
from ..journal.copying.copied_journal import CopiedJournal, has_disk_failed
from ..journal.disk.directory import read_format
from ..journal.format.terms import FIRST_LSN, TermTable
from .copying import full_copy
from .copying.joining import JournalSummary

logger = logging.getLogger("leveret.cluster")

#: Seconds between two attempts to open the directory.
RETRY_S = 1.0


class DirectoryRefused(Exception):
    """The data directory cannot be used; the message is for the operator."""


class NodeDirectory:
    """Opens the directory. `copied`: the open copy; None: the journal is damaged, or a broker of this node has it.

    summary: the content of the journal when it was opened last; the owner sets it. damage: why this node needs a full
    copy. is_suspect: a write or an fsync may have failed, in this process or the one before, so that a later fsync
    would prove nothing. is_rolled_back: the journal lacks records that this node had acknowledged, so it gets a new
    node id when it is opened.
    """

    summary: JournalSummary

    def __init__(self, path: str, files: Files) -> None:
        self.copied: CopiedJournal | None = None
        self.damage: Damaged | Unreadable | None = None
        self.is_suspect = True
        self.is_rolled_back = False
        self._path = path
        self._files = files

    @property
    def node_id(self) -> bytes:
        """The node id of this directory, from its term table."""
        return self.summary.terms.node_id

    def current(self) -> JournalSummary:
        """The content of the journal now."""
        copied = self.copied
        return self.summary if copied is None else JournalSummary(copied.journal_id, copied.terms, copied.end)

    def open(self) -> JournalSummary:
        """Open the directory as a copy. For a thread. Returns the content of the journal. Raises: DirectoryRefused."""
        path, files = self._path, self._files
        is_rolled_back = self.is_rolled_back  # it may become true during the call
        try:
            if full_copy.finish(path, files):
                self.damage = None  # it was that of the journal before
            try:
                if self.damage is not None:
                    raise self.damage
                self.copied = copied = CopiedJournal.open(
                    path, files=files, is_suspect=self.is_suspect, is_rolled_back=is_rolled_back
                )
            except (Damaged, Unreadable) as error:
                logger.error("%s; this node needs a full copy", error)
                self.copied = None
                journal_id = read_format(path, files, allows_unknown=True).journal_id
                return JournalSummary(journal_id, TermTable(os.urandom(16)), FIRST_LSN)
            self.is_suspect = False
        except (JournalError, OSError) as error:
            self.is_suspect = self.is_suspect or has_disk_failed(error)
            raise DirectoryRefused(f"data directory {path}: {str(error).removeprefix(f'{path}: ')}") from error
        if copied.unknown:
            text = "the journal holds %s, of which this release does not know: this node copies it, and does not lead"
            logger.warning(text, copied.unknown)
        return JournalSummary(copied.journal_id, copied.terms, copied.end)

    async def open_until_done(self, failed: Callable[[str], object] = lambda why: None) -> JournalSummary:
        """Call `open` until it succeeds, and `failed` with the error, in words, after each attempt that does not."""
        while True:
            try:
                return await trio.to_thread.run_sync(self.open)
            except DirectoryRefused as error:
                logger.error("%s", error)
                failed(str(error))
                await trio.sleep(RETRY_S)

    async def reopen(self, *, is_copy: bool, failed: Callable[[str], object] = lambda why: None) -> JournalSummary:
        """Close the directory and open it again. `is_copy`: a full copy has replaced the journal. `failed`: see
        `open_until_done`.
        """
        copied = self.copied
        if copied is not None:
            self.is_suspect = copied.has_failed
            await trio.to_thread.run_sync(copied.close)
        if is_copy:
            self.damage, self.is_suspect = None, False
        return await self.open_until_done(failed)

    def take_copy(self, journal_id: bytes) -> CopiedJournal | None:
        """Give the copy to a broker of this node, which will close it. None: the journal is damaged."""
        copied, self.copied = self.copied, None
        if copied is not None:
            self.summary = JournalSummary(journal_id, copied.terms, copied.end)
        return copied

    async def close(self) -> None:
        """Close the copy, if it is open."""
        if self.copied is not None:
            await trio.to_thread.run_sync(self.copied.close)
