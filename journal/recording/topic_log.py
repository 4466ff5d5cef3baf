"""The engine's `TopicLog`: published messages, read from the journal. Positions are LSNs.

The log needs no records or memory beside the journal, which holds publishes in their order until their segment is
deleted. Source: queues page A.8, C.1, C.3; docs/decisions/0012-log.md.
"""

from collections.abc import Iterator

from ...engine import NATIVE, Broker, Envelope, Message, PropertySummary, Unreadable, scan_properties
from ...engine.state import OVERHEAD, Entered, LoggedMessage, Page, Wanted
from ..appending.journal import Journal
from ..format.block import Block
from ..format.errors import JournalError, NotInJournal
from ..format.heap import Content, decode_content
from ..format.record import ADDRESS_ID, ENQUEUED, EXCHANGE, KIND, MSG_ID, PUBLISHED, QUEUE_ID, TS_US, Fields
from ..recovery.content_reader import ContentReader
from .pager import CACHED_MAX, PROPERTIES_AT
from .recorder import Recorder
from .retry import retry_blocking

#: Octets of blocks that one read examines, rounded up to whole blocks (2 to 5 ms).
EXAMINED_OCTETS = 512 * 1024


class JournalLog:
    """The journal as a `TopicLog`."""

    def __init__(self, broker: Broker, journal: Journal, recorder: Recorder) -> None:
        self._broker = broker
        self._journal = journal
        self._recorder = recorder
        self._summaries: dict[bytes, PropertySummary] = {}
        self._read_to = 0  # end of the last block that was read

    def start(self) -> int:
        return self._journal.usage.segments[0].base_lsn

    def end(self) -> int:
        return self._journal.next_lsn

    def first_id(self) -> int:
        return self._journal.usage.segments[0].first_id

    def next_id(self) -> int:
        return self._journal.next_message_id

    def position_of_id(self, id_: int) -> int:
        """See `TopicLog`: the LSN of the message's publish, or the base LSN of its segment if that is unknown."""
        rows, row = self._journal.usage.segments, self._journal.usage.segment_of_id(id_)
        lsn = self._recorder.messages.contents.lsn_of(id_)
        following = next((one.base_lsn for one in rows if one.base_lsn > row.base_lsn), self.end())
        return lsn if lsn is not None and row.base_lsn <= lsn < following else row.base_lsn

    def position_of_time(self, wall_ms: int) -> int:
        """See `TopicLog`: base LSN of the first segment that ended at this time or later, else of the last one.

        The segments are searched in order, because the clock may have been set back.
        """
        rows = self._journal.usage.segments
        return next((row.base_lsn for row in rows if row.ended_us >= wall_ms * 1000), rows[-1].base_lsn)

    def read(self, vhost: str, position: int, wanted: Wanted, octets: int) -> Page:
        found: list[LoggedMessage] = []
        for block, index, next_position in self._blocks(position):
            for at, fields in enumerate(block.fields()):
                if at < index or fields[KIND] != PUBLISHED:
                    continue
                one = self._message_at(block, fields, block.header.base_lsn + at, vhost, wanted)
                if one is not None:
                    found.append(one)
                    octets -= len(one.message.content) + OVERHEAD
                    if octets <= 0:  # also within a block, which may be large
                        return Page(found, block.header.base_lsn + at + 1)
            position = next_position
        return Page(found, max(position, self._read_to))

    def entered(self, vhost: str, queue: str, position: int, wall_ms: int) -> Entered:
        found = self._broker.virtual_hosts.find_queue(vhost, queue)
        # None: its virtual host is being deleted. No queue has the id -1.
        queue_id, first_id = -1 if found is None else self._recorder.objects.queue_id(found), 0
        ids: list[int] = []
        for block, _, _ in self._blocks(position):
            for fields in block.fields():
                if fields[KIND] == ENQUEUED and fields[QUEUE_ID] == queue_id:
                    ids.append(fields[MSG_ID])
                elif fields[KIND] == PUBLISHED and wall_ms and not first_id and fields[TS_US] >= wall_ms * 1000:
                    first_id = fields[MSG_ID]
        return Entered(ids, first_id, self._read_to)

    def _blocks(self, position: int) -> Iterator[tuple[Block, int, int]]:
        """(block, index of the first record in it, LSN after it) from `position` on, for `EXAMINED_OCTETS`.

        Sets `_read_to` to the LSN at which it ends. Raises: Unreadable.
        """
        contents, end, left = self._journal.contents, self.end(), EXAMINED_OCTETS
        position = self._read_to = max(position, self.start())
        while position < end and left > 0:
            found = self._block_at(contents, position)
            if found is None:  # a repair left a gap, or the segment was deleted
                segments = self._journal.usage.segments
                position = self._read_to = next((row.base_lsn for row in segments if row.base_lsn > position), end)
                continue
            block, index = found
            left -= len(block.data)
            position = self._read_to = min(block.end_lsn, end)
            yield block, index, position

    def _block_at(self, contents: ContentReader, position: int) -> tuple[Block, int] | None:
        try:
            return retry_blocking(lambda: contents.find_block(position), contents.close)
        except NotInJournal:
            return None
        except (JournalError, OSError) as error:
            lost = Unreadable(f"the log cannot be read from record {position} on: {error}")
            self._broker.context.storage.on_unreadable(lost)
            raise lost from error

    def _message_at(self, block: Block, fields: Fields, lsn: int, vhost: str, wanted: Wanted) -> LoggedMessage | None:
        names = self._journal.names
        exchange_id, id_ = fields[ADDRESS_ID], fields[MSG_ID]
        if (
            exchange_id not in names
            or names[exchange_id].object_type != EXCHANGE
            or names.vhost_text(exchange_id) != vhost
        ):
            return None
        content = decode_content(block.heap_of(fields))
        queues = [names.text(queue) if queue else "" for queue in content.queue_ids if not queue or queue in names]
        exchange, key = names.text(exchange_id), content.routing_key.decode()
        if not wanted(exchange, key, queues, id_):
            return None
        message = Message(id_, content.content, self._envelope(exchange, key, content))
        return LoggedMessage(message, fields[TS_US] // 1000, lsn)

    def _envelope(self, exchange: str, routing_key: str, stored: Content) -> Envelope:
        content = stored.content
        properties = content[PROPERTIES_AT : 4 + int.from_bytes(content[:4], "big")]
        summary = self._summaries.get(properties)
        if summary is None:
            if len(self._summaries) >= CACHED_MAX:
                self._summaries.clear()
            summary = self._summaries[properties] = scan_properties(properties)
        envelope = Envelope(exchange, routing_key, summary, NATIVE)
        envelope.cause_id = stored.cause_id
        return envelope
