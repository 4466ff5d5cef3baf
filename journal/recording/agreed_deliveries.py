"""Deliveries of quorum and leased queues wait until other nodes of a cluster have the messages. (Streams: decision 18.)

A client must not see a message that the next leader may not have. Source: docs/decisions/0027-agreed-deliveries.md.
"""

from collections import deque

from ...engine import Broker, DeliveredEvent, Durability, Envelope
from ..appending.journal import Journal


class AgreedDeliveries:
    """Tells sessions the LSN for which their deliveries wait.

    Ids rise in the order of publishing, and a message is recorded in the turn in which it is published, in one block.
    So the LSN behind all records so far covers all messages so far. `_notes`: pairs (LSN, id), both rising: messages
    with lower ids are agreed when the LSN is. `_noted_below`: the id of the last note. `_agreed_below`: messages with
    lower ids are agreed. A new leader treats recovered messages like new ones.
    """

    def __init__(self, broker: Broker, journal: Journal, durability: Durability) -> None:
        self._durability = durability
        self._context = broker.context
        self._virtual_hosts = broker.virtual_hosts
        self._journal = journal
        self._notes: deque[tuple[int, int]] = deque()
        self._noted_below = self._agreed_below = 0

    def __call__(self, event: DeliveredEvent) -> None:
        """Hold the deliveries of an event back, if their messages are not agreed."""
        ids = event.messages
        last_id = ids[-1] if isinstance(event.run, Envelope) else max(ids)
        if last_id < self._agreed_below or not self._must_wait(event):
            return
        notes, agreed_lsn = self._notes, self._durability.safe_lsn
        while notes and notes[0][0] <= agreed_lsn:
            self._agreed_below = notes.popleft()[1]
        if last_id >= self._agreed_below:
            lsn = self._note() if last_id >= self._noted_below else self._noted_lsn(last_id)
            event.session.client.send_after(lsn, event.session.number)

    def _must_wait(self, event: DeliveredEvent) -> bool:
        queue = self._virtual_hosts.find_queue(event.vhost, event.subject)
        return queue is not None and queue.stores_all and queue.first_offset is None

    def _note(self) -> int:
        """Note the LSN behind all messages so far."""
        turns = self._journal.turns
        turns.is_awaited = True
        lsn, self._noted_below = turns.next_lsn, self._context.next_id
        self._notes.append((lsn, self._noted_below))
        return lsn

    def _noted_lsn(self, id_: int) -> int:
        """The LSN of the first note that covers a message."""
        found = 0
        for lsn, below in reversed(self._notes):
            if below <= id_:
                break
            found = lsn
        return found
