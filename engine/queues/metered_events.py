"""The events of a queue whose octets are counted, because its address or the broker has limits.

Each change of the queue's contents is an event, so the meter is exact after each event.
Source: queues page E.1, E.2 ("Charge").
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ..delivery.consumer import Consumer
from ..flow.meter import Meter
from ..messages.message import Envelope, Message, octets_of
from ..stores.store import Freeable
from .events import QueueEvents

if TYPE_CHECKING:
    from ..clients.session import Session


class MeteredQueueEvents(QueueEvents):
    """Feeds the meter. Continues the counters of the `QueueEvents` that it replaces.

    `stores`: whether messages of an envelope survive a restart.
    """

    __slots__ = ("_meter", "_stores")

    def __init__(self, plain: QueueEvents, meter: Meter, stores: Callable[[Envelope], bool]) -> None:
        plain.copy_to(self)
        self._meter = meter
        self._stores: Callable[[Envelope], bool] | None = stores if meter.counts_stored else None

    @property
    def meter(self) -> Meter:
        return self._meter

    @property
    def octets(self) -> int:
        return self._meter.octets

    @property
    def has_listeners(self) -> bool:
        """Always true: the meter counts as a listener."""
        return True

    def recount(self, in_memory: Iterable[Message], paged: Iterable[tuple[int, int, bool]]) -> None:
        meter = self._meter
        meter.reset()
        messages = list(in_memory)
        meter.in_memory = len(messages)
        meter.in_memory_octets = sum(map(octets_of, messages))
        meter.stored = self._stored_of(messages)
        for count, octets, are_stored in paged:
            meter.paged += count
            meter.paged_octets += octets
            meter.paged_stored += octets if are_stored and self._stores is not None else 0
        meter.update_nodes()

    # -- changes ------------------------------------------------------------------------------------------------------

    def octets_changed(self, difference: int, envelope: Envelope | None = None) -> None:
        if difference:
            stores = self._stores
            is_stored = stores is not None and envelope is not None and stores(envelope)
            self._meter.came(0, difference, difference if is_stored else 0)

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        self._meter.paged_out(count, octets, octets_paged, are_stored=are_stored)

    def enqueued_run(self, first_id: int, envelope: Envelope, contents: Sequence[bytes], owner: int = 0) -> None:
        self._came(envelope, contents)
        super().enqueued_run(first_id, envelope, contents, owner)

    def enqueued_mixed(self, first_id: int, envelopes: Sequence[Envelope], contents: Sequence[bytes]) -> None:
        stores, pairs = self._stores, zip(envelopes, contents)
        stored = 0 if stores is None else sum(len(content) for envelope, content in pairs if stores(envelope))
        self._meter.came(len(contents), sum(map(len, contents)), stored)
        super().enqueued_mixed(first_id, envelopes, contents)

    def delivered_run(
        self,
        consumer: Consumer,
        session: "Session",
        ids: Sequence[int],
        run: Envelope | Sequence[Message],
        contents: Sequence[bytes],
    ) -> None:
        if consumer.no_ack:
            if isinstance(run, Envelope):
                self._went(run, contents)
            else:
                self._left(run)
        super().delivered_run(consumer, session, ids, run, contents)

    def acked(self, messages: Sequence[Message], *, kept: bool = False) -> None:
        if not kept:
            self._left(messages)
        super().acked(messages, kept=kept)

    def _came(self, envelope: Envelope, contents: Sequence[bytes]) -> None:
        octets = sum(map(len, contents))
        self._meter.came(len(contents), octets, octets if self._stores is not None and self._stores(envelope) else 0)

    def _went(self, envelope: Envelope, contents: Sequence[bytes]) -> None:
        octets = sum(map(len, contents))
        self._meter.left(len(contents), octets, octets if self._stores is not None and self._stores(envelope) else 0)

    def _left(self, messages: Collection[Message] | Freeable) -> None:
        if len(messages):
            self._meter.left(len(messages), sum(map(octets_of, messages)), self._stored_of(messages))

    def _left_paged(self, count: int, octets: int | None) -> None:
        if octets is None:
            self._meter.left_paged(self._meter.paged, self._meter.paged_octets, self._meter.paged_stored)
        else:
            self._meter.left_paged(count, octets, octets if self._stores is not None else 0)

    def _stored_of(self, messages: Collection[Message] | Freeable) -> int:
        stores = self._stores
        if stores is None:
            return 0
        return sum(message.octets for message in messages if stores(message.envelope))
