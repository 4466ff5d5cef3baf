"""Recovery: replays the segments in order, from the beginning of the last whole checkpoint on, or from the first.

This module decides which segments are read and checks that they are whole; replay.py applies the records. `prepare`
also makes the directory ready for writing: it cuts the torn tail and seals a segment that a crash left open.
Source: Spark page 4; rulings 21, 22.
"""

from bisect import bisect_right

from ...engine import QUEUE_TYPES, decode_table
from ...engine.state import EXCHANGE_TYPES
from ..disk.files import REAL, Files, write_all
from ..disk.segment import SegmentSummary, footer_of, opened, path_of, segment_name, segments_in
from ..disk.segment_scan import SegmentScan
from ..format.block import MODES, Block
from ..format.errors import BadRecord, Damaged, ForeignDirectory, UnknownType
from ..format.heap import Head, decode_head
from ..format.record import EXCHANGE, HEAD, KIND, QUEUE, TIME_MAX
from .replay import Recovered, Replay

#: Message ids that a start skips, so that no id or bookmark of a record that was cut is used for another message.
IDS_SKIPPED = 1 << 32
#: Message ids that may be used before the journal records the next one: not every message is recorded.
IDS_UNNOTED_MAX = 1 << 31


def recover(files: Files, directory: str, *, now_ms: int | None = None) -> Recovered:
    """Read the journal in a directory; changes nothing. Raises: OSError; Damaged, also if contents are missing.

    `now_ms`: wall time; recorded times of a clock that ran ahead of it are moved back. None: they stay as written.
    A torn tail (`Recovered.torn_bytes`) starts at `segments[-1].size`.
    """
    found = recover_unchecked(files, directory, now_ms=now_ms)
    base_lsn = found.segments[0].base_lsn if found.segments else 1
    if base_lsn != 1 and (first := first_content(found)) < base_lsn:
        why = "segments before it are missing, with contents of messages that still exist"
        raise Damaged(segment_name(base_lsn), 0, f"{why}; records from {first} on are lost")
    return found


def recover_unchecked(files: Files, directory: str, *, now_ms: int | None = None) -> Recovered:
    """`recover` without the check that no content of a message is missing. Raises: Damaged, OSError."""
    bases = segments_in(files, directory)
    found = Recovered()
    if not bases:
        return found
    found.next_lsn = bases[0]
    last = _summary_of(files, directory, bases[-1])
    empty: int | None = None
    if last is None:  # made just before a crash: it holds no records, but the segment before it was sealed
        empty = bases.pop()
        if not bases:
            if empty != 1:
                raise _missing(empty, 1)
            return found
        last = _summary_of(files, directory, bases[-1])
    begin, end = (last.checkpoint_begin, last.checkpoint_end) if last is not None else (0, 0)
    if not begin and bases[0] != 1:
        raise _missing(bases[0], 1)
    now_us = TIME_MAX if now_ms is None else now_ms * 1000
    replay = _replay(files, directory, bases, begin, end, now_us, empty)
    if any(first < end and begin < after for first, after in replay.gaps):
        replay = _replay(files, directory, bases, 0, 0, now_us, empty)  # a repair lost a part of the checkpoint
    replay.resolve_names()
    replay.drop_lost()
    return replay.found


def first_content(found: Recovered) -> int:
    """The lowest LSN of a recovered message's content; the next LSN if there are none. O(messages)."""
    lowest = (min(queue.columns()[1], default=found.next_lsn) for queue in found.queues.values())
    return min(lowest, default=found.next_lsn)


def _missing(base_lsn: int, expected: int) -> Damaged:
    name = segment_name(base_lsn)
    return Damaged(name, 0, f"it does not follow the segment before it; records {expected} to {base_lsn - 1} are lost")


def _replay(
    files: Files, directory: str, bases: list[int], begin: int, end: int, now_us: int, empty: int | None
) -> Replay:
    """Replay the segments from that of the last checkpoint on (`begin`, `end`: its LSNs; 0: none, so all segments).

    `empty`: the base LSN of a segment behind them that has no whole block. Raises: Damaged.
    """
    found = Recovered(checkpoint_begin=begin, checkpoint_end=end)
    start = max(bisect_right(bases, begin) - 1, 0)
    if begin and begin < bases[start]:
        raise Damaged(
            segment_name(bases[start]),
            0,
            f"the segment with the checkpoint at {begin} is missing; records {begin} to {bases[start] - 1} are lost",
        )
    replay = Replay(found, begin, now_us)
    for index in range(start):
        _skip_segment(files, directory, bases[index], bases[index + 1], replay)
    for index in range(start, len(bases)):
        base_lsn, is_last = bases[index], index == len(bases) - 1 and empty is None
        if index > start and base_lsn != found.next_lsn:
            raise _missing(base_lsn, found.next_lsn)
        _replay_segment(files, directory, base_lsn, is_last, replay)
    if empty is not None and empty != found.next_lsn:
        raise _missing(empty, found.next_lsn)
    return replay


def _skip_segment(files: Files, directory: str, base_lsn: int, next_base: int, replay: Replay) -> None:
    """Add a segment that ended before the checkpoint. Only its footer is read, unless it has gaps."""
    name = segment_name(base_lsn)
    with opened(files, directory, base_lsn) as handle:
        segment = footer_of(files, handle, base_lsn)
        if segment is not None and segment.has_gaps:
            scan = SegmentScan(files, handle, base_lsn)
            for _ in scan:
                pass
            replay.gaps += scan.gaps
    if segment is None:
        raise Damaged(name, 0, "no footer at its end: the segment is cut, or its end is damaged")
    if segment.end_lsn != next_base:
        raise Damaged(name, segment.size, f"records {segment.end_lsn} to {next_base - 1} behind it are missing")
    replay.found.segments.append(segment)


def ended_us(directory: str, files: Files = REAL) -> int:
    """The latest wall time (microseconds since 1970 UTC) in the newest segment; 0: there is none.

    Raises: Damaged, OSError.
    """
    for base_lsn in reversed(segments_in(files, directory)):
        segment = _summary_of(files, directory, base_lsn)
        if segment is not None:
            return segment.ts_max
    return 0


def _summary_of(files: Files, directory: str, base_lsn: int) -> SegmentSummary | None:
    """The summary of a segment from its blocks (it needs no footer). None: it has no whole block."""
    with opened(files, directory, base_lsn) as handle:
        scan = SegmentScan(files, handle, base_lsn)
        segment: SegmentSummary | None = None
        for block in scan:
            if segment is None:
                try:
                    head = _head_of(block)
                except BadRecord as error:
                    raise Damaged(segment_name(base_lsn), 0, str(error)) from error
                segment = SegmentSummary(base_lsn, head.checkpoint_begin, head.checkpoint_end)
            segment.add(block)
        if segment is None:
            scan.check_tail(segment_name(base_lsn), is_last=True)
        elif scan.sealed:
            segment.sealed = True
        return segment


def _head_of(block: Block) -> Head:
    for fields in block.fields():
        if fields[KIND] == HEAD:
            return decode_head(block.heap_of(fields))
        break
    raise BadRecord("a segment that does not begin with its head")


def _replay_segment(files: Files, directory: str, base_lsn: int, is_last: bool, replay: Replay) -> None:
    name = segment_name(base_lsn)
    found = replay.found
    with opened(files, directory, base_lsn) as handle:
        scan = SegmentScan(files, handle, base_lsn)
        segment = SegmentSummary(base_lsn)
        for block in scan:
            try:
                if not segment.size:
                    head = _head_of(block)
                    segment.checkpoint_begin, segment.checkpoint_end = head.checkpoint_begin, head.checkpoint_end
                segment.add(block)
                replay.block(block)
            except BadRecord as error:
                raise Damaged(name, block.offset, str(error)) from error
        replay.gaps += scan.gaps
        torn = scan.check_tail(name, is_last=is_last)
        segment.sealed = scan.sealed
        found.durable_lsn = max(found.durable_lsn, scan.durable_lsn)
        found.torn_bytes += torn
        found.segments.append(segment)
        found.next_lsn = max(scan.lsn, base_lsn)


def prepare(
    files: Files, directory: str, journal_id: bytes, now_ms: int, *, agreed_lsn: int | None = None
) -> Recovered:
    """Recover, remove segments without records, cut the torn tail, and seal the newest segment.

    The next record has `next_lsn`. If a crash interrupts it, call it again.

    `now_ms`: wall time. `agreed_lsn`: in a cluster, the footer calls only those records durable that are below it, or
    that a block calls durable; None: all of them, once they are synced.

    Raises: Damaged, ForeignDirectory (segments of another journal), UnknownType: nothing was changed. OSError.
    """
    recovered = recover(files, directory, now_ms=now_ms)
    _check_types(recovered)
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
            lag = 0 if agreed_lsn is None else max(newest.end_lsn - max(agreed_lsn, recovered.durable_lsn), 0)
            data = newest.footer(newest.ts_max, MODES.index("commit"), lag)
            write_all(files, handle, data, newest.size)
            files.sync(handle)
            scan = SegmentScan(files, handle, newest.end_lsn, offset=newest.size)
            for block in scan:
                newest.add(block)
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


def _check_types(recovered: Recovered) -> None:
    """Refuse queues and exchanges of a type that no installed package adds: no other type keeps its promises.

    Raises: UnknownType.
    """
    unknown: list[tuple[int, str, str]] = []
    for id_, declared in recovered.objects.items():
        if declared.object_type == QUEUE and (type_ := _text_of(declared.arguments, "x-queue-type")) not in (
            "",
            *QUEUE_TYPES,
        ):
            unknown.append((id_, "queue", type_))
        elif declared.object_type == EXCHANGE:
            types = (declared.type, _text_of(declared.arguments, "x-delayed-type"))
            unknown += [(id_, "exchange", type_) for type_ in types if type_ not in ("", *EXCHANGE_TYPES)]
    if unknown:
        (id_, what, type_), names = unknown[0], recovered.names
        more = f", and {len(unknown) - 1} more such objects" if len(unknown) > 1 else ""
        raise UnknownType(
            f"{what} {names.text(id_)!r} in virtual host {names.vhost_text(id_)!r} is of type {type_!r}, which no"
            f" package of this program adds{more}; nothing was changed: install that package again, then start"
        )


def _text_of(arguments: bytes, key: str) -> str:
    """The text of an encoded argument; empty: there is none."""
    field = decode_table(arguments, 0)[0].get(key) if key.encode() in arguments else None
    return field.text if field is not None and field.tag == "S" else ""
