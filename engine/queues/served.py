"""Consumers of a queue come and go, and what follows from that.

Source: behaviour page 2.12, 3.2; address-settings page 3.4 (consumers-before-dispatch, purge-on-no-consumers).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..clock import due_after
from ..delivery.consumer import Consumer, Receiver
from ..errors import ConsumerTagInUse
from ..messages.field_table import FieldTable
from ..rules.arguments import QUORUM
from .core import QueueCore

if TYPE_CHECKING:
    from ...expressions.language import Expression
    from .selection import Selection


class ServedQueue(QueueCore):
    """A queue with consumers."""

    __slots__ = ()

    def add_consumer(self, consumer: Consumer) -> None:
        """Join the rota. Raises: ExclusiveConsumerRefused, ConsumersMaxReached."""
        rota, rules = self.rota, self.rules
        if self.type == QUORUM:
            consumer.exclusive = False  # accepted and passed over, as in RabbitMQ
        rota.check_join(consumer, queue=self.name, vhost=self.surroundings.vhost)
        rota.join(consumer)
        self._select(consumer)
        self.touch()
        self.ledger.consumer_added(consumer)
        if rules.consumers_before_dispatch > 0:
            self._gather()
        rota.regroup()
        if rules.purge_on_no_consumers and len(rota.consumers) == 1:
            self.surroundings.forget_routes_to(self)  # it takes messages from now on
        if self.has_ready:
            self.mark()
        if rules.slow is not None:
            self.surroundings.watch_consumers(self)
        if self.pending is not None:
            self.surroundings.trim_later(self)

    def replace_consumer(
        self, consumer: Consumer, arguments: FieldTable, filter_: "Expression | None", *, no_ack: bool, exclusive: bool
    ) -> None:
        """A consumer subscribed again under its tag: what it has stays its. Raises: ConsumerTagInUse."""
        raise ConsumerTagInUse(tag=consumer.tag)

    def remove_consumers(self, leaving: Sequence[Consumer]) -> None:
        """They leave the rota; what they have unacked stays theirs. An auto-delete queue goes with the last one."""
        is_another = self.rota.leave(leaving)
        if self.selection is not None:
            self._select_less(self.selection, leaving)
        self.ledger.consumers_removed(leaving)
        if self.rota.consumers:
            if (is_another or self.rota.groups is not None) and self.has_ready:
                self.mark()  # what waited for them is for others
        elif not self.deleted:
            if self.auto_delete:
                self.surroundings.remove(self)
            else:
                self.last_used_ns = self.surroundings.clock.monotonic_ns()
                if self.rules.purge_on_no_consumers:
                    self.purge()
                    self.surroundings.forget_routes_to(self)
        self.touch()

    def _select(self, consumer: Consumer) -> None:
        """A consumer joined: while any has a filter, messages are selected for each."""
        if self.selection is not None:
            self.selection.join(consumer, is_empty=not self.has_ready)
        elif consumer.filter is not None and not self.keeps:
            from .selection import Selection  # see `Consumer`

            self.selection = Selection(self.surroundings.effort)
            for one in self.rota.in_turn:
                self.selection.join(one, is_empty=not self.has_ready)
            self.takes_plainly = False

    def _select_less(self, selection: "Selection", leaving: Sequence[Consumer]) -> None:
        selection.leave(leaving)
        if not selection.groups.has_filters:
            self.selection = None
            self.takes_plainly = self._takes_plainly()
            self.mark()

    def may_be_out_at(self, session: Receiver) -> None:
        """Deliveries of it may be out at this session from now on."""
        self.sessions[session] = None

    def left_by(self, session: Receiver) -> None:
        """Nothing of it is out there any more."""
        del self.sessions[session]

    def _gather(self) -> None:
        """A consumer joined a queue that waits for several: enough of them now, or the first one starts the clock.

        Dispatch that has started goes on until there are no consumers and nothing is out.
        """
        rules, rota = self.rules, self.rota
        if len(rota.consumers) == 1 and not self.ledger.unacked:
            rota.wait(True)
            delay_ms = rules.delay_before_dispatch_ms
            due_ns = None if delay_ms is None else due_after(self.surroundings.clock, delay_ms)
            self.timers.arm_start(due_ns, self._start)
        if rota.waits and len(rota.consumers) >= rules.consumers_before_dispatch:
            self._start()

    def _start(self) -> None:
        self.timers.arm_start(None, self._start)
        self.rota.wait(False)
        if self.has_ready and not self.deleted:
            self.mark()
