"""The pager: gives messages of a deep queue's tail back from the journal. The engine's `Pager`.

Source: queues page, section F; rulings 5 and 23.
"""

from collections.abc import Sequence

from ..engine import Broker, Envelope, Message
from ..engine.content import PLAIN, PropertyFacts, scan_properties
from .journal import Journal
from .recorder import Recorder

#: Property lists and envelopes that are remembered; bounded whatever was published.
MEMORY_MAX = 512


class JournalPager:
    """`memory`: octets that all deep queues may keep (limits.memory)."""

    def __init__(self, broker: Broker, journal: Journal, recorder: Recorder, memory: int) -> None:
        self._broker = broker
        self._journal = journal
        self._contents = recorder.contents
        self._memory = memory
        self._facts: dict[bytes, PropertyFacts] = {}
        self._envelopes: dict[tuple[int, bytes, PropertyFacts, bool], Envelope] = {}

    def budget(self) -> int:
        """See `Pager`: equal shares."""
        deep = sum(
            queue.tail is not None for vhost in self._broker.virtual_hosts.values() for queue in vhost.queues.values()
        )
        return self._memory // (deep + 1)

    def load(self, ids: Sequence[int]) -> list[Message]:
        """See `Pager`. Raises: NotInJournal, Damaged, OSError."""
        journal, lsn_of = self._journal, self._contents.lsn_of
        last = lsn_of(ids[-1])
        assert last is not None
        if last >= journal.written_lsn:
            journal.commit()
            journal.wait(last + 1)
        read, names = journal.contents.read_message, journal.names
        facts_of, envelopes = self._facts, self._envelopes
        messages: list[Message] = []
        for id_ in ids:
            lsn = lsn_of(id_)
            assert lsn is not None, f"message {id_} is in a tail but not in the journal"
            record, content = read(lsn)
            blob = content.content
            end = 4 + int.from_bytes(blob[:4], "big")
            properties = blob[16:end]
            facts = facts_of.get(properties)
            if facts is None:
                if len(facts_of) >= MEMORY_MAX:
                    facts_of.clear()
                facts = facts_of[properties] = scan_properties(properties)
            key = (record.address_id, content.routing_key, facts, content.cause_id > 0)
            envelope = envelopes.get(key)
            if envelope is None:
                if len(envelopes) >= MEMORY_MAX:
                    envelopes.clear()
                exchange = names.text(record.address_id)
                envelope = envelopes[key] = Envelope(exchange, content.routing_key.decode(), facts, PLAIN)
                envelope.cause_id = content.cause_id
            messages.append(Message(id_, blob, envelope))
        return messages
