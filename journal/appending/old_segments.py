"""Old segments: deletes those that are not needed, and moves the last live contents out of the oldest."""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from ...engine import Clock
from ..disk.directory import Directory
from ..disk.files import Files
from ..disk.readers import reader_offsets
from ..disk.reserve import Reserve
from ..disk.segment import opened, segment_name
from ..disk.segment_scan import SegmentScan
from ..format.errors import BadRecord, Damaged
from ..format.heap import content_prefix, decode_content
from ..format.record import DURABLE, MOVED, PUBLISHED, Record
from ..recovery.content_reader import ContentReader
from .reader_limits import ReaderLimits
from .turns import Turns

#: Octets that a checkpoint takes at most: for each message, for each name, and for the rest.
SNAPSHOT_OCTETS, NAMED_OCTETS, HEAD_OCTETS = 64, 512, 64 * 1024
#: Messages whose contents are moved in one turn.
MOVED_SLICE = 256


class OldSegments:
    """Deletes segments, and moves live contents forward so that a segment can be deleted."""

    def __init__(
        self, turns: Turns, directory: Directory, clock: Clock, reserve: Reserve, contents: ContentReader
    ) -> None:
        self._turns = turns
        self._files = directory.files
        self._path = directory.path
        self._clock = clock
        self._reserve = reserve
        self._contents = contents
        self.readers = ReaderLimits(directory, turns.options, clock)
        self._unneeded_at: dict[int, int] = {}  # segment -> LSN after all records when it was first unneeded

    def reclaim(self) -> list[int]:
        """Between turns: delete segments that are not needed (in the writer's thread). Returns their base LSNs.

        Before that, warns of readers near their limits, and drops those beyond.
        Raises: JournalError when a reader's file cannot be understood, OSError (nothing is deleted).
        """
        turns = self._turns
        begin, end = turns.checkpoint
        if not begin or turns.writer.file.trusted_lsn < end:
            return []
        self.readers.enforce(turns.usage, begin, self._retained_us())
        keep, keep_us = self._retention()
        gone = self._trusted(turns.usage.removable(begin, keep, keep_us))
        if gone:
            turns.usage.remove(gone)
            for base_lsn in gone:
                self._contents.forget(base_lsn)
        if gone or turns.writer.file.undeleted:
            turns.writer.add(lambda file: file.unlink(gone))
        return gone

    def _trusted(self, base_lsns: list[int]) -> list[int]:
        """The segments among these that stay unneeded after a power cut or a change of the leader.

        That is certain when the records that made them unneeded (acknowledgements, for example) are safe.
        """
        turns, before = self._turns, self._unneeded_at
        unneeded_at = {base_lsn: before.get(base_lsn, turns.next_lsn) for base_lsn in base_lsns}
        trusted_lsn = turns.writer.file.trusted_lsn
        trusted = list(takewhile(lambda base_lsn: unneeded_at[base_lsn] <= trusted_lsn, base_lsns))
        self._unneeded_at = {base_lsn: unneeded_at[base_lsn] for base_lsn in base_lsns[len(trusted) :]}
        return trusted

    def worth_emptying(self) -> int | None:
        """The oldest segment, if moving its live contents forward pays. Raises: JournalError, OSError."""
        return self._turns.usage.worth_emptying(*self._retention())

    def first_id_after(self, base_lsn: int) -> int:
        """An id above those of all messages with their content in this segment, which is not the open one."""
        rows = self._turns.usage.segments
        return next(after.first_id for row, after in zip(rows, rows[1:]) if row.base_lsn == base_lsn)

    def move_forward(
        self, base_lsn: int, queues_of: Callable[[int], Sequence[int]], moved: Callable[[int, int], object]
    ) -> Iterator[int]:
        """Copy the live contents of an old segment (`worth_emptying()`) forward, one slice a turn.

        queues_of(message id): ids of the durable queues that hold the message now. moved(message id, new content LSN):
        called for each copy. Yields: messages copied in the slice. The next checkpoint makes the segment reclaimable.
        Raises: Damaged, OSError.
        """
        turns, count = self._turns, 0
        for lsn, record in contents_of(self._files, self._path, base_lsn):
            if turns.usage.holds(record.msg_id, base_lsn) and (queue_ids := tuple(queues_of(record.msg_id))):
                block = turns.block or turns.begin()
                turns.usage.moved(record.msg_id, len(queue_ids))
                moved_lsn = block.add(moved_record(lsn, record, queue_ids))
                if turns.names.is_retired(record.address_id):
                    turns.names.retire(record.address_id, moved_lsn + 1)
                moved(record.msg_id, moved_lsn)
                count += 1
                if count == MOVED_SLICE:
                    yield count
                    count = 0
        yield count

    def can_make_room(self, unrecorded: int) -> bool:
        """Whether a checkpoint would free more room than it takes. It must fit into the reserve, unless that is spent.

        Without a reserve: False. `unrecorded`: octets of the contents and duplicate ids that the checkpoint has to
        append. O(segments), reads the readers' files.
        Raises: JournalError, OSError.
        """
        turns, reserve = self._turns, self._reserve
        if not (reserve.is_full or reserve.is_spent):
            return False
        live = sum(row.live for row in turns.usage.segments)
        need = live * SNAPSHOT_OCTETS + len(turns.names) * NAMED_OCTETS + HEAD_OCTETS + unrecorded
        need += turns.writer.backlog_bytes
        fits = reserve.is_spent or need <= reserve.size
        return fits and turns.usage.removable_size(turns.segment_bytes, *self._retention()) > need

    def _retention(self) -> tuple[int | None, int | None]:
        """The first LSN that a reader needs, and the time (wall us) since which segments are retained; None: none."""
        keep = min(reader_offsets(self._path, self._files).values(), default=None)
        return keep, self._retained_us()

    def _retained_us(self) -> int | None:
        """The time (wall us) since which segments are retained; None: none are."""
        now_ms = self._clock.wall_ms()
        self._turns.usage.clamp_ends(now_ms * 1000)
        retain_ms = max(self._turns.options.retain_ms or 0, self._turns.log_ms)
        return (now_ms - retain_ms) * 1000 if retain_ms else None


def contents_of(files: Files, directory: str, base_lsn: int) -> Iterator[tuple[int, Record]]:
    """(LSN, record) of every `published` and `moved` in a sealed segment. Raises: Damaged, OSError."""
    name = segment_name(base_lsn)
    with opened(files, directory, base_lsn) as handle:
        scan = SegmentScan(files, handle, base_lsn)
        for block in scan:
            try:
                for lsn, record in block.records():
                    if record.kind in (PUBLISHED, MOVED):
                        yield lsn, record
            except BadRecord as error:
                raise Damaged(name, block.offset, str(error)) from error
        scan.check_tail(name, is_last=False)


def moved_record(lsn: int, record: Record, queue_ids: Sequence[int]) -> Record:
    """The copy of the record at `lsn` for the queues that still hold the message; its `arg` is the original LSN."""
    content = decode_content(record.heap)
    return record._replace(
        kind=MOVED,
        ts_us=0,
        arg=record.arg if record.kind == MOVED else lsn,
        flags=DURABLE,
        heap=content_prefix(content.routing_key, queue_ids, content.expires_ms, content.cause_id) + content.content,
    )
