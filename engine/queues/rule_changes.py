"""What the terms of a queue do to it while it exists: reloaded settings, policies, an operator's word.

Source: behaviour page 3.12; address-settings page 3.8, 4.3.
"""

from collections.abc import Iterable
from itertools import chain

from ...settings import AddressSettings, ResolvedSettings
from ..messages.field_table import FieldTable
from ..messages.message import Message
from ..rules.pending_rules import PendingRules
from ..stores.kinds import converted
from ..stores.paged_run import Part
from . import limits
from .pending import Pending
from .served import ServedQueue
from .terms import Change


class GovernedQueue(ServedQueue):
    """A queue whose rules may change."""

    __slots__ = ()

    def resolved(self) -> ResolvedSettings:
        """Its own arguments, over its policy, over the settings of its address, as all of them are now."""
        return self.terms.resolved(self.surroundings)

    def settings_changed(self) -> None:
        """The settings were reloaded: what is live takes effect at the next return, death or arrival."""
        self._follow(self.terms.settings_changed(self.surroundings))

    def follow_topic(self, topic: str, layer: AddressSettings) -> None:
        """Messages of a topic are routed here, and it sets something for the queues of transient subscribers."""
        change = self.terms.topic_found(self.surroundings, topic, layer)
        if change is not None:
            self._follow(change)

    def redeclare(self, arguments: FieldTable, own: AddressSettings) -> None:
        """The configuration that declared the queue gives it other arguments, of those that act at once."""
        self.terms.redeclared(arguments, own)
        self.policy_changed(always=True)

    def policy_changed(self, *, always: bool = False) -> None:
        """Other policies may hold for the queue (`always`: there is more than that); what follows holds at once.

        Only a message-ttl is for messages that come from now on. Source: behaviour page 3.12.
        """
        change = self.terms.policy_changed(self.surroundings, always=always)
        if change is None:
            return
        self._follow(change)
        if change.own_expiry:
            self.touch()
        limits.enforce(self)

    def set_ring_size(self, size: int | None) -> None:
        """An operator resizes the ring, None: no ring. Nothing is deleted now (address-settings page 4.3, 3.8)."""
        self._follow(self.terms.ring_resized(size))

    def enable(self, enabled: bool) -> None:
        """Take new messages from now on, or no more."""
        was_open = self.is_open
        self.enabled = enabled
        if self.is_open is not was_open:
            self.surroundings.forget_routes_to(self)

    def keep(self) -> None:
        """The configuration declares it: if it was auto-created, it stays from now on."""
        self.is_auto_created = False

    def _follow(self, change: Change) -> None:
        """The rules changed: its parts follow."""
        was_open = self.is_open
        self.rules = change.now
        self.rota.rules_changed(change.now)
        if self.is_open is not was_open:
            self.surroundings.forget_routes_to(self)
        self.store = converted(self.store, self, counts_octets=self._counts_body_octets)
        self._follow_pending(change.now.pending)
        self.may_drop = self._may_drop()
        self.takes_plainly = self._takes_plainly()
        if change.now.slow is not None:
            self.surroundings.watch_consumers(self)
        if self._meter_anew():
            self.recount()
            self.surroundings.forget_routes_to(self)  # frontends ask for room, or need not ask any more

    def _follow_pending(self, rules: PendingRules | None) -> None:
        if rules is None or not self.is_transient_subscriber:
            self.pending = None
        elif self.pending is None or self.pending.rules != rules:
            self.pending = Pending(rules)
            self.surroundings.trim_later(self)

    def recount(self) -> None:
        """Have the meter count what is there: it is new, or all messages are back after a restart."""
        if self.ledger.meter is None:
            return
        parts = self.store.paged_parts()
        aside = (part for part in parts if isinstance(part, Message))
        out = () if self.keeps else self.unacked_messages()
        self.ledger.recount(chain(self.messages(), aside, out), self._paged_sizes(parts))

    def _paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int]]:
        """Messages that are paged out, and their octets: count and octets of each part."""
        return ((len(part.ids), sum(part.sizes)) for part in parts if not isinstance(part, Message))
