"""A follower's journal: a copy of its leader's, octet by octet; records that the leader does not have are cut off.

    copied = CopiedJournal.open(path)             # locks; nothing is recovered, nothing sealed
    copied.begin(journal_id)                      # an empty directory joins
    copied.cut(lsn)                               # records that its leader does not have
    copied.set_terms(copied.terms.with_starts_of(leader_terms))
    copied.append(base_lsn, offset, octets)       # in any pieces; a block counts when it is whole
    end = copied.sync()                           # acknowledge it
    ...
    copied.set_terms(copied.terms.with_term(term, copied.end))
    Journal.open(..., cluster=ClusterJournal(copied.hand_over(), ...))         # this node leads

All calls wait for the disk. Only one thread may call at a time. A crash at any time leaves a whole journal.
Source: docs/journal-format.md, "The directory of a node of a cluster".
"""

import logging
import os
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

from ..disk.directory import (
    CUT,
    FORMAT,
    TERMS,
    Directory,
    Format,
    begin_directory,
    format_at,
    lock_directory,
    read_terms,
)
from ..disk.files import (
    DIRECTORY_GONE,
    DISK_FULL,
    OUT_OF_RESOURCES,
    REAL,
    Files,
    Preallocation,
    SyncError,
    replace_file,
    sync_file,
    write_all,
)
from ..disk.readers import NODE_PREFIX, reader_offsets
from ..disk.segment import footer_of, opened, path_of, segment_name, segments_in
from ..disk.segment_scan import WINDOW_SIZE, SegmentScan
from ..format.errors import (
    BadOctets,
    Damaged,
    DirectoryLost,
    JournalClosed,
    JournalError,
    JournalFailed,
    JournalFull,
    NewerJournal,
)
from ..format.terms import FIRST_LSN, NODE_ID_SIZE, TermTable
from .block_checker import BlockChecker
from .octet_reader import position_of

logger = logging.getLogger("leveret.journal")

#: Octets that are reserved ahead in the open segment: an fsync then has no size to write, a quarter less time.
PREALLOCATED = 4 * 1024 * 1024


class CopiedJournal:
    """A copied journal, locked for this process until `close` or `hand_over`. Made by `open`.

    After JournalFailed (`has_failed`) it accepts nothing. Then open the directory again with `is_suspect`. `terms`: see
    `set_terms`.
    """

    def __init__(self, files: Files, path: str, lock: int, format_: Format | None, terms: TermTable) -> None:
        self.path = path
        self.terms = terms
        self._files = files
        self._lock = lock
        self._format = format_
        self._is_usable = True
        self.has_failed = False
        self._handle = -1  # of the open segment, once something is appended to it
        self._base_lsn = 0  # of the newest segment; 0: there is none
        self._blocks = BlockChecker(FIRST_LSN)
        self._synced_lsn = FIRST_LSN
        self._is_dirty = False  # octets were written and not fsynced
        self._is_named = True  # the name of the newest segment is fsynced
        self._room = Preallocation(files, PREALLOCATED)  # of the open segment's file
        self._stray: list[int] = []  # segments without a whole block, after the newest

    @classmethod
    def open(
        cls,
        path: str,
        *,
        files: Files = REAL,
        node_id: bytes | None = None,
        is_suspect: bool = False,
        is_rolled_back: bool = False,
    ) -> "CopiedJournal":
        """Lock the directory and find where its journal ends. Changes nothing else in a journal's directory.

        is_suspect: a write or an fsync may have failed here, in this process or an earlier one. Then the system may
        treat octets as written that are not on the disk, and an fsync would prove nothing. So the newest segment is
        rewritten before it is fsynced; older ones were fsynced before it was begun.

        is_rolled_back: it lacks records that its node had acknowledged. So it gets a new node id.

        An absent or empty directory becomes that of a node without a journal. A plain journal is opened, too, see
        `upgrade`. Octets after the last whole block are cut off when something is appended: only on a leader could
        they prove that records were durable. `node_id`: of a new node; random unless given.
        Raises: DirectoryLocked, ForeignDirectory, NewerJournal, Damaged (it needs a full copy), JournalError (its term
        table cannot be understood), OSError.
        """
        format_at(path, files, of_node=True)
        files.make_directory(path)
        lock = lock_directory(path, files)
        try:
            format_ = format_at(path, files, of_node=True)
            terms = read_terms(path, files)
            if terms is None:
                if format_ is not None and format_.is_cluster:
                    raise JournalError(f"{path}: the directory of a node without its term table (the file {TERMS!r})")
                terms = TermTable(node_id or os.urandom(NODE_ID_SIZE))
                if format_ is None:
                    replace_file(files, path, TERMS, terms.octets)
            elif is_rolled_back:
                terms = replace(terms, node_id=node_id or os.urandom(NODE_ID_SIZE))
                replace_file(files, path, TERMS, terms.octets)
            copied = cls(files, path, lock, format_, terms)
            copied._find_end(is_suspect=is_suspect)
            return copied
        except BaseException:
            files.close(lock)
            raise

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def journal_id(self) -> bytes | None:
        """The journal's id; None: the directory is empty."""
        return None if self._format is None else self._format.journal_id

    @property
    def is_plain(self) -> bool:
        """Whether it is the journal of a broker without a cluster."""
        return self._format is not None and not self._format.is_cluster

    @property
    def needs(self) -> frozenset[str]:
        """Features that a program must know to open the directory."""
        return frozenset() if self._format is None else self._format.needs

    @property
    def unknown(self) -> str:
        """Features of the journal that this program does not know, in words: it may copy it, not lead. "": none."""
        return "" if self._format is None else self._format.unknown

    @property
    def end(self) -> int:
        """The LSN below which all records are fsynced. Call `sync` before telling it to a leader."""
        return self._synced_lsn

    @property
    def written_lsn(self) -> int:
        """The LSN after the last whole block; records from `end` on are not fsynced yet."""
        return self._blocks.lsn

    @property
    def position(self) -> tuple[int, int]:
        """(base LSN of the segment, offset) at which a leader continues: after the last record.

        Ticks after that record are sent again. (LSN, 0): in a new segment.
        """
        blocks = self._blocks
        if not self._base_lsn or blocks.is_sealed:
            return blocks.lsn, 0
        return self._base_lsn, blocks.record_size

    # -- format and terms ---------------------------------------------------------------------------------------------

    def begin(self, journal_id: bytes) -> None:
        """Make an empty directory that of the journal with this id. Raises: JournalError."""
        with self._guarded():
            if self._format is not None:
                raise ValueError(f"{self.path}: there is a journal")
            format_ = Format(journal_id, is_cluster=True)
            begin_directory(self.path, format_, self._files)
            self._format = format_

    def upgrade(self) -> None:
        """Turn a plain journal into that of a cluster's node. Idempotent. Raises: JournalError."""
        if self.is_plain:
            assert self._format is not None
            with self._guarded():
                replace_file(self._files, self.path, TERMS, self.terms.octets)
                self._write_format(replace(self._format, is_cluster=True))

    def add_needs(self, needs: Set[str]) -> None:
        """Add such features, before records that need them are taken. Idempotent."""
        assert self._format is not None
        if not needs <= self._format.needs:
            with self._guarded():
                self._write_format(replace(self._format, needs=self._format.needs | needs))

    def _write_format(self, format_: Format) -> None:
        replace_file(self._files, self.path, FORMAT, format_.octets)
        self._format = format_

    def set_terms(self, terms: TermTable) -> None:
        """Replace the term table. Needed before another leader's records are appended, or this node writes its own.

        Raises: ValueError, when it gives records of this journal to another term; JournalError.
        """
        end = self._blocks.lsn
        if terms.node_id != self.terms.node_id:
            raise ValueError("the term table of another node")
        if terms == self.terms:
            return
        same = terms.cut_to(end) == self.terms.cut_to(end) or terms.common_end(self.terms, end, end) == end
        if not same:
            raise ValueError(f"{self.path}: the terms {terms.starts} contradict {self.terms.starts} before {end}")
        with self._guarded():
            replace_file(self._files, self.path, TERMS, terms.octets)
            self.terms = terms

    # -- copying ------------------------------------------------------------------------------------------------------

    def append(self, base_lsn: int, offset: int, octets: bytes | memoryview) -> None:
        """Write the next octets of a segment: after the last ones, or at `position`, for a new link to the leader.

        Raises: BadOctets, JournalFull (these octets, and those of an incomplete block, are dropped: the leader starts
        again from `position`); JournalFailed.
        """
        before = self._blocks
        with self._guarded():
            if self._format is None or not self._format.is_cluster:
                raise ValueError(f"{self.path}: not the directory of a node")
            if (base_lsn, offset) != (self._base_lsn, before.taken) or before.is_sealed or self._handle < 0:
                self._begin_at(base_lsn, offset)
            blocks = self._blocks.copy()
            try:
                with memoryview(octets) as view:
                    blocks.take(view)
                self._is_dirty = True
                self._room.reserve(self._handle, blocks.taken)
                write_all(self._files, self._handle, octets, offset)
                if blocks.is_sealed:
                    self._files.truncate(self._handle, blocks.size)
            except BaseException:
                self._close_file()  # it is truncated when it is opened again
                raise
            self._blocks = blocks

    def _begin_at(self, base_lsn: int, offset: int) -> None:
        """Prepare for writing at this place. Raises: BadOctets, OSError."""
        blocks = self._blocks
        if (base_lsn, offset) == (self._base_lsn, blocks.record_size) and not blocks.is_sealed:
            size = blocks.record_size
        elif (base_lsn, offset) == (self._base_lsn, blocks.size) and not blocks.is_sealed:
            size = blocks.size
        elif offset == 0 and base_lsn > 0 and (not self._base_lsn or (blocks.is_sealed and base_lsn == blocks.lsn)):
            self._begin_segment(base_lsn)
            return
        else:
            raise BadOctets(f"octets at {offset} of segment {base_lsn} do not follow {self.position}")
        if self._handle < 0:
            self._handle = self._files.open(path_of(self.path, base_lsn), writable=True)
        self._drop_stray()
        self._is_dirty = True
        self._files.truncate(self._handle, size)
        self._room.end = size
        self._blocks = BlockChecker(blocks.lsn, size, blocks.record_size)

    def _begin_segment(self, base_lsn: int) -> None:
        """Begin a segment. The one before is sealed, and fsynced first: only the newest may be torn.

        A crash of this node, when it led, may have left zeros after the footer.
        """
        self._sync()
        self._close_file()
        self._drop_stray()
        if self._base_lsn:
            with self._writable(self._base_lsn) as handle:
                if self._files.size(handle) > self._blocks.size:
                    self._files.truncate(handle, self._blocks.size)
                    sync_file(self._files, handle)
        self._is_named, self._is_dirty = False, True
        self._handle = self._files.open(path_of(self.path, base_lsn), create=True)
        self._files.truncate(self._handle, 0)
        self._base_lsn, self._room.end = base_lsn, 0
        self._blocks = BlockChecker(base_lsn)

    def _drop_stray(self) -> None:
        """Delete segments that were begun just before a power cut and hold no records."""
        while self._stray:
            self._files.unlink(path_of(self.path, self._stray[0]))
            self._files.sync_directory(self.path)
            del self._stray[0]

    def sync(self) -> int:
        """Fsync what was appended. Returns the LSN below which all is fsynced. Raises: JournalFailed, JournalFull."""
        with self._guarded():
            self._sync()
            return self._synced_lsn

    def _sync(self) -> None:
        if self._is_dirty:
            if self._handle >= 0:
                self._sync_segment(self._handle)
            elif self._base_lsn:  # an append that failed has closed the file, with whole blocks before it unsynced
                with self._writable(self._base_lsn) as handle:
                    self._sync_segment(handle)
            self._is_dirty = False
        if not self._is_named:
            self._files.sync_directory(self.path)
            self._is_named = True
        self._synced_lsn = self._blocks.lsn

    def _sync_segment(self, handle: int) -> None:
        """Raises: SyncError, DirectoryLost."""
        sync_file(self._files, handle)
        if not self._files.is_linked(handle):
            raise DirectoryLost(f"{self.path}: the open segment was deleted")

    # -- cutting ------------------------------------------------------------------------------------------------------

    def cut(self, lsn: int) -> None:
        """Cut off all records from `lsn` on, which begins a block. They are saved in cut/ first.

        The newest segments are deleted first, so that a crash leaves a whole journal, and the cut can be repeated.
        Raises: NotInJournal (it is before the first segment, or within a block: a full copy is needed), JournalError.
        """
        with self._guarded():
            self._sync()
            if lsn >= self._blocks.lsn:
                return
            base_lsn, offset = position_of(self.path, lsn, self._files)
            self._close_file()
            self._drop_stray()
            doomed = [one for one in segments_in(self._files, self.path) if one > base_lsn or (one, 0) == (lsn, offset)]
            self._save_parts(lsn, self._parts(base_lsn, offset, doomed))
            for one in reversed(doomed):
                self._files.unlink(path_of(self.path, one))
                self._files.sync_directory(self.path)  # after each: a power cut could bring back any of several
            if offset:
                with self._writable(base_lsn) as handle:
                    self._files.truncate(handle, offset)
                    sync_file(self._files, handle)
            self._find_end()
            terms = self.terms.cut_to(lsn)
            replace_file(self._files, self.path, TERMS, terms.octets)
            self.terms = terms

    def _parts(self, base_lsn: int, offset: int, doomed: Sequence[int]) -> list[tuple[int, int, int]]:
        """(base LSN of the segment, first offset, offset after) of the octets that a cut drops."""
        parts: list[tuple[int, int, int]] = []
        starts = [(one, 0) for one in doomed]
        if offset:
            starts.insert(0, (base_lsn, offset))
        for one, start in starts:
            with opened(self._files, self.path, one) as handle:
                # Zeros, or half a block, may follow the newest segment's last whole block.
                end = self._blocks.size if one == self._base_lsn else self._files.size(handle)
            parts.append((one, start, end))
        return parts

    def _save_parts(self, lsn: int, parts: Sequence[tuple[int, int, int]]) -> None:
        """Copy what a cut drops to cut/. Durable when it returns."""
        files = self._files
        directory = os.path.join(self.path, CUT)
        if CUT not in files.names(self.path):
            files.make_directory(directory)
        name = f"{self.terms.term_at(lsn)}-{lsn}.log"
        size = sum(end - start for _, start, end in parts)
        if name in files.names(directory) and _size_of(files, os.path.join(directory, name)) >= size:
            return  # a crash interrupted this cut after they were saved
        temporary = os.path.join(directory, f"{name}.new")
        target = files.open(temporary, create=True)
        try:
            files.truncate(target, 0)
            at = 0
            for base_lsn, offset, end in parts:
                with opened(files, self.path, base_lsn) as handle:
                    while octets := files.read(handle, min(WINDOW_SIZE, end - offset), offset):
                        at = write_all(files, target, octets, at)
                        offset += len(octets)
            sync_file(files, target)
        finally:
            files.close(target)
        files.rename(temporary, os.path.join(directory, name))
        files.sync_directory(directory)

    @contextmanager
    def _writable(self, base_lsn: int) -> Iterator[int]:
        handle = self._files.open(path_of(self.path, base_lsn), writable=True)
        try:
            yield handle
        finally:
            self._files.close(handle)

    def unlink(self, base_lsns: Sequence[int]) -> list[int]:
        """Delete the segments that the leader deleted, and older ones, unless a reader of this directory needs them.

        Returns the base LSNs of those that are deleted. A later call tries the others again, also one that the system
        does not let it delete: the copy is as good with it.
        Raises: JournalError (also when the file of a reader cannot be understood: nothing is deleted).
        """
        gone: list[int] = []
        with self._guarded():
            bases = segments_in(self._files, self.path)
            offsets = reader_offsets(self.path, self._files)
            # A crash while this node led may have left readers of its followers.
            keep_lsn = min((lsn for name, lsn in offsets.items() if not name.startswith(NODE_PREFIX)), default=None)
            for base_lsn, following in zip(bases, bases[1:]):
                is_needed = keep_lsn is not None and following > keep_lsn
                if base_lsn > max(base_lsns, default=0) or is_needed or following > self._base_lsn:
                    break
                try:
                    self._files.unlink(path_of(self.path, base_lsn))
                except OSError as error:
                    logger.warning("%s: an old segment cannot be deleted: %s", self.path, error)
                    break  # the later ones stay, too, so that there is no gap
                self._files.sync_directory(self.path)
                gone.append(base_lsn)
        return gone

    # -- closing ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unlock the directory. Records that were not fsynced may be lost: none of them was acknowledged."""
        if self._lock >= 0:
            self._is_usable = False
            self._close_file()
            self._files.close(self._lock)
            self._lock = -1

    def hand_over(self) -> Directory:
        """The directory, still locked, for the journal of a node that leads. After that the copy must not be used.

        Raises: JournalError.
        """
        if self._format is None or not self._format.is_cluster:
            raise ValueError(f"{self.path}: not the directory of a node")
        if self.unknown:
            raise NewerJournal(f"{self.path}: the journal holds {self.unknown}, which this program does not know")
        self.sync()
        self._close_file()
        lock, self._lock, self._is_usable = self._lock, -1, False
        return Directory(self._files, self.path, self._format, lock)

    # -- helpers ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Raise errors of the system as errors of the journal."""
        if not self._is_usable:
            raise JournalClosed(f"{self.path}: closed, or a write or fsync failed")
        try:
            yield
        except OSError as error:
            text = f"{self.path}: {error}"
            if not isinstance(error, SyncError) and error.errno in DISK_FULL | OUT_OF_RESOURCES:
                raise JournalFull(text) from error
            self._is_usable, self.has_failed = False, True
            if not isinstance(error, SyncError) and error.errno in DIRECTORY_GONE:
                raise DirectoryLost(text) from error
            raise JournalFailed(text) from error
        except DirectoryLost:
            self._is_usable, self.has_failed = False, True
            raise

    def _close_file(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            self._files.close(handle)

    def _find_end(self, *, is_suspect: bool = False) -> None:
        """Find the last whole block, and fsync the segment that it is in. Raises: Damaged, SyncError, OSError."""
        files = self._files
        bases = segments_in(files, self.path)
        self._stray = []
        self._base_lsn, self._blocks = 0, BlockChecker(FIRST_LSN)
        while bases and not self._base_lsn:
            with self._writable(bases[-1]) as handle:
                blocks = _blocks_of(files, handle, bases[-1])
                if blocks.size:
                    if is_suspect:
                        _rewrite(files, handle, blocks)
                    sync_file(files, handle)
                    self._base_lsn, self._blocks = bases[-1], blocks
                else:
                    self._stray.append(bases.pop())
        if self._base_lsn:
            files.sync_directory(self.path)
        for base_lsn in self._stray if self._base_lsn else ():
            if not self._blocks.is_sealed or base_lsn != self._blocks.lsn:  # it was begun when that was fsynced
                raise Damaged(segment_name(self._base_lsn), self._blocks.size, f"no footer before record {base_lsn}")
        for base_lsn, following in zip(bases, bases[1:]):
            with opened(files, self.path, base_lsn) as handle:
                footer = footer_of(files, handle, base_lsn)
            if footer is None or footer.end_lsn != following:
                raise Damaged(segment_name(base_lsn), 0, f"it does not end with a footer before record {following}")
        self._synced_lsn = self._blocks.lsn
        self._is_dirty, self._is_named = False, True


def has_disk_failed(error: BaseException | None) -> bool:
    """Whether, because of this error, the system may count octets as written that are not on the disk: see `open`."""
    if isinstance(error, OSError):
        return isinstance(error, SyncError) or error.errno not in DISK_FULL | OUT_OF_RESOURCES
    return isinstance(error, JournalFailed)


def _blocks_of(files: Files, handle: int, base_lsn: int) -> BlockChecker:
    """The whole blocks of a segment."""
    record_size = 0
    scan = SegmentScan(files, handle, base_lsn)
    for block in scan:
        if block.end_lsn > block.header.base_lsn:
            record_size = scan.position
    blocks = BlockChecker(scan.lsn, scan.position, record_size)
    blocks.is_sealed = scan.sealed
    return blocks


def _rewrite(files: Files, handle: int, blocks: BlockChecker) -> None:
    """Write the whole blocks over themselves, so that the next fsync covers them. A crash meanwhile does no harm."""
    offset = 0
    while offset < blocks.size:
        octets = files.read(handle, min(WINDOW_SIZE, blocks.size - offset), offset)
        offset = write_all(files, handle, octets, offset)
    if blocks.is_sealed:
        files.truncate(handle, blocks.size)


def _size_of(files: Files, path: str) -> int:
    handle = files.open(path)
    try:
        return files.size(handle)
    finally:
        files.close(handle)
