"""The events of selected messages, read from the journal in steps, oldest first.

Source: management page 16; ruling 22 (with `scope = "durable"` deliveries are not recorded).
"""

from collections.abc import Callable, Iterator
from typing import Any

from ...engine import Envelope, EventKind, Message
from ..format.errors import BadRecord, JournalError
from ..format.heap import decode_content, decode_runs
from ..format.record import CODE_OF, RANGE, REASONS, Record
from .reader import JournalReader

#: Records read in one step.
READ_AT_ONCE = 200
_PUBLISHED = CODE_OF[EventKind.PUBLISHED]
#: Kinds of the events that are listed.
_KINDS = frozenset(code for code in CODE_OF.values() if code < CODE_OF[EventKind.MOVED])


class JournalStories:
    """Finds the events of messages. `found`: message id -> its events, oldest first.

    `records`: the number of records read; `from_ms`: wall time of the first event among them. `ended`: the reason for
    which reading ended early, as a sentence; empty: it did not.
    """

    def __init__(
        self,
        reader: JournalReader,
        takes: Callable[[Message], bool] | None,
        id_: int | None,
        *,
        stories_max: int,
        events_max: int,
        segments_max: int,
    ) -> None:
        """`takes(message)` selects published messages, `id_` a single one. Only the newest segments are read."""
        self._reader, self._takes = reader, takes
        self._stories_max, self._events_max, self._segments_max = stories_max, events_max, segments_max
        self._id = id_
        self.found: dict[int, list[dict[str, Any]]] = {} if id_ is None else {id_: []}
        self.records = 0
        self.from_ms: int | None = None
        self.ended = ""

    def steps(self) -> Iterator[None]:
        """Read the records, a step for each `next`."""
        try:
            segments = self._reader.segments()
            first_lsn = segments[-self._segments_max] if len(segments) > self._segments_max else 0
            for lsn, record in self._reader.records(first_lsn, trust_open=True):
                self.records += 1
                if self.records % READ_AT_ONCE == 0:
                    yield
                if record.kind in _KINDS:
                    self._note(lsn, record)
        except (JournalError, OSError) as error:
            self.ended = f"the journal could not be read further: {error}"

    def _note(self, lsn: int, record: Record) -> None:
        if self.from_ms is None:
            self.from_ms = record.ts_us // 1000
        if (
            record.kind == _PUBLISHED
            and self._id is None
            and len(self.found) < self._stories_max
            and self._is_selected(record)
        ):
            self.found[record.msg_id] = []
        for id_ in self._ids_of(record):
            events = self.found[id_]
            if len(events) < self._events_max:
                events.append(self._event_of(lsn, record))

    def _ids_of(self, record: Record) -> list[int]:
        """Ids of the selected messages that the record covers."""
        found = self.found
        if not record.flags & RANGE:
            return [record.msg_id] if record.msg_id in found else []
        inside = [id_ for id_ in found if record.msg_id <= id_ <= record.arg]
        if not inside or not record.heap:
            return inside
        runs = decode_runs(record.heap)
        return [id_ for id_ in inside if any(first <= id_ < first + count for first, count in runs)]

    def _is_selected(self, record: Record) -> bool:
        if self._takes is None:
            return False
        content = decode_content(record.heap)
        exchange, key = self._reader.names.text(record.address_id), content.routing_key.decode("utf-8", "replace")
        return self._takes(Message(record.msg_id, bytes(content.content), Envelope(exchange, key)))

    def _event_of(self, lsn: int, record: Record) -> dict[str, Any]:
        names = self._reader.names
        object_id = record.queue_id or record.address_id
        event: dict[str, Any] = {
            "lsn": lsn,
            "at_ms": record.ts_us // 1000,
            "kind": record.name,
            "vhost": names.vhost_text(object_id),
            "subject": names.text(object_id) if object_id else "",
            "detail": {},
        }
        if record.kind == _PUBLISHED:
            try:
                content = decode_content(record.heap)
            except BadRecord:
                return event
            queues = [names.text(id_) for id_ in content.queue_ids if id_]
            event["detail"] = {"routing_key": content.routing_key.decode("utf-8", "replace"), "queues": queues[:20]}
        elif record.reason and record.reason < len(REASONS):
            event["detail"] = {"reason": REASONS[record.reason]}
        return event
