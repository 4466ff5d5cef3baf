"""Prepares a directory for writing: recover, cut the torn tail, seal a segment that a crash left open."""

from ...engine import QUEUE_TYPES, decode_table
from ..disk.files import Files, write_all
from ..disk.segment import Scan, path_of, segments_in
from ..format.block import MODES
from ..format.errors import ForeignDirectory, UnknownQueueType
from ..format.record import QUEUE
from .recovery import recover
from .replay import Recovered

#: Message ids that a start skips, so that no id or bookmark of a record that was cut is used for another message; and
#: ids that may be used before the journal records the next id, because not every message is recorded.
IDS_SKIPPED, IDS_UNNOTED_MAX = 1 << 32, 1 << 31


def prepare(files: Files, directory: str, journal_id: bytes, now_ms: int) -> Recovered:
    """Recover, and seal every segment; the next record has `next_lsn`. A crash on the way does no harm.

    `now_ms`: wall time.

    Raises: Damaged, ForeignDirectory (segments of another journal), UnknownQueueType: nothing was changed. OSError.
    """
    recovered = recover(files, directory, now_ms=now_ms)
    _check_queue_types(recovered)
    if recovered.segments and recovered.journal_id != journal_id:
        raise ForeignDirectory(f"{directory}: the segments are those of another journal")
    known = {segment.base_lsn for segment in recovered.segments}
    for base_lsn in reversed(segments_in(files, directory)):
        if base_lsn in known or (known and base_lsn < min(known)):
            break
        files.unlink(path_of(directory, base_lsn))  # made just before a power cut: it holds no records
        files.sync_directory(directory)
    if not recovered.segments:
        return recovered
    recovered.next_message_id += IDS_SKIPPED
    newest = recovered.segments[-1]
    handle = files.open(path_of(directory, newest.base_lsn), writable=True)
    try:
        if not newest.sealed:
            files.truncate(handle, newest.size)
            files.sync(handle)  # the records must be durable before the footer says so
            data = newest.footer(newest.ts_max, MODES.index("commit"))
            write_all(files, handle, data, newest.size)
            files.sync(handle)
            scan = Scan(files, handle, newest.end_lsn, offset=newest.size)
            for block in scan:
                newest.note(block)
            newest.sealed = True
            recovered.next_lsn = newest.end_lsn
        else:
            if files.size(handle) > newest.size:
                files.truncate(handle, newest.size)
            files.sync(handle)  # a broker may have been killed after writing the footer and before syncing it
    finally:
        files.close(handle)
    files.sync_directory(directory)  # it may have been killed before syncing the name of a new segment
    return recovered


def _check_queue_types(recovered: Recovered) -> None:
    """Refuse queues of a type that no package adds: as classic queues they would lose what the type promises.

    Raises: UnknownQueueType.
    """
    unknown = [
        (id_, type_)
        for id_, declared in recovered.objects.items()
        if declared.what == QUEUE and (type_ := _type_of(declared.arguments)) and type_ not in QUEUE_TYPES
    ]
    if unknown:
        (id_, type_), names = unknown[0], recovered.names
        more = f", and {len(unknown) - 1} more such queues" if len(unknown) > 1 else ""
        raise UnknownQueueType(
            f"queue {names.text(id_)!r} in virtual host {names.vhost_text(id_)!r} is of type {type_!r}, which no"
            f" package of this program adds{more}; nothing was changed: install that package again, then start"
        )


def _type_of(arguments: bytes) -> str:
    """The queue type that encoded arguments name; empty: none."""
    field = decode_table(arguments, 0)[0].get("x-queue-type") if b"x-queue-type" in arguments else None
    return field.text if field is not None and field.tag == "S" else ""
