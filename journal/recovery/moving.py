"""Moving forward: live contents of an old segment are written again, so that the segment can be deleted."""

import os
from collections.abc import Iterator, Sequence

from ..disk.files import Files
from ..disk.segment import Scan, path_of
from ..format.errors import BadRecord, Damaged, NotInJournal
from ..format.heap import content_prefix, decode_content
from ..format.record import DURABLE, MOVED, PUBLISHED, Record


def contents_of(files: Files, directory: str, base_lsn: int) -> Iterator[tuple[int, Record]]:
    """(LSN, record) of every `published` and `moved` in a sealed segment.

    Raises: NotInJournal, Damaged, OSError.
    """
    path = path_of(directory, base_lsn)
    try:
        handle = files.open(path)
    except FileNotFoundError as error:
        raise NotInJournal(f"segment {base_lsn} is not in the journal any more") from error
    try:
        scan = Scan(files, handle, base_lsn)
        for block in scan:
            try:
                for lsn, record in block.records():
                    if record.kind in (PUBLISHED, MOVED):
                        yield lsn, record
            except BadRecord as error:
                raise Damaged(os.path.basename(path), block.offset, str(error)) from error
        scan.check_tail(os.path.basename(path), is_last=False)
    finally:
        files.close(handle)


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
