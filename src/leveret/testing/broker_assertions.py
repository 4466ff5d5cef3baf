"""Assertions of tests about one virtual host. A failure shows the actual state, and possible causes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..engine import Event, EventKind, Queue, VirtualHost
from .assertions import _UNSAID, Contents, Expected, publish_failure, queue_failure, unexpected_failure
from .blocked import BlockedSnapshot, blocked_failure, blocked_of
from .history import HistoryEvent, PublishedMessage, Record
from .host import Host
from .leases import LeaseSnapshot, check_leased, end_failure, lease_failure, leases_in
from .lost_messages import reasons_for_missing
from .matching import Body, Wanted
from .nearest_names import nearest_names
from .snapshots import QueueSnapshot, snapshot_of
from .typos import check_lease_end, check_limit, check_open_name, missing
from .wire_values import known_properties

#: Arguments of `assert_published` beside the names of properties.
_KEYWORDS = ("exchange", "routing_key", "body", "headers", "count", "within", "vhost")


class QueueMissing(AssertionError, LookupError):
    """There is no such queue. The text lists the existing queues, and where the queue's messages may have gone."""


@nearest_names
class VirtualHostAssertions:
    """The assertions of `VirtualHostView`."""

    def __init__(self, broker: Host, name: str) -> None:
        self._broker = broker
        self.name = name

    def assert_published(
        self,
        exchange: Wanted = None,
        routing_key: Wanted = None,
        body: Body = _UNSAID,
        *,
        headers: Wanted = None,
        count: int | None = None,
        within: float = 0,
        **properties: Any,
    ) -> PublishedMessage | None:
        """Assert that a message like this was published. Omitted arguments match any value.

        `count`: exact number of such messages. `body`: bytes, text, or the value of its JSON. Each value may also be a
        `Partial`, a condition, or an object that compares with `==`: see `matching`. `properties`: by name, as in
        `Properties`. `within`: real seconds to wait for the message. Returns: the newest such message; None with
        `count=0`.
        Raises: AssertionError; LookupError, with `count=0`, when the exchange's name is misspelled.
        """
        __tracebackhide__ = True
        expected = _expected(exchange, routing_key, body, headers, properties)

        def is_enough(every: Sequence[PublishedMessage]) -> bool:
            like = expected.among(every)
            return len(like) == count if count is not None else bool(like)

        every = self._published_until(is_enough, within)
        like = expected.among(every)
        if not like and count == 0:
            self._check_exchange_of(exchange, every)
        if not is_enough(every):
            raise AssertionError(publish_failure(expected, count, every, len(like), every.dropped))
        return like[-1] if like else None

    def assert_not_published(
        self,
        exchange: Wanted = None,
        routing_key: Wanted = None,
        body: Body = _UNSAID,
        *,
        headers: Wanted = None,
        within: float = 0,
        **properties: Any,
    ) -> None:
        """Assert that no message like this was published, or is published `within` these real seconds; see
        `assert_published`.

        Raises: AssertionError; LookupError when the exchange's name is misspelled.
        """
        __tracebackhide__ = True
        expected = _expected(exchange, routing_key, body, headers, properties)

        every = self._published_until(lambda found: bool(expected.among(found)), within)
        like = expected.among(every)
        if like:
            raise AssertionError(unexpected_failure(expected, every, like))
        self._check_exchange_of(exchange, every)

    def assert_queue(
        self,
        name: str,
        *,
        ready: Contents = None,
        unacked: Contents = None,
        scheduled: Contents = None,
        consumers: int | None = None,
        within: float = 0,
    ) -> QueueSnapshot:
        """Assert the messages of a queue: their number, their bodies in order, or a condition on the list of bodies.

        `within`: real seconds to wait until the assertion is true. Raises: AssertionError; QueueMissing, which is also
        a LookupError, when there is no such queue.
        """
        __tracebackhide__ = True
        expected = {"ready": ready, "unacked": unacked, "scheduled": scheduled}
        edge, recorder = self._broker.edge, self._broker.recorder

        def look() -> tuple[QueueSnapshot | None, str]:
            try:
                queue = find_queue(edge.broker.virtual_hosts.get(self.name), name)
            except LookupError as error:
                return None, str(error)
            snapshot = snapshot_of(queue, edge.clock)
            return snapshot, queue_failure(snapshot, expected, consumers)

        def explain(lines: Sequence[str]) -> str:
            return "\n".join([*lines, *self._broker.ask(lambda: reasons_for_missing(edge, recorder, self.name, name))])

        snapshot, failure = self._broker.ask_until(look, lambda found: not found[1], within)
        if snapshot is None:
            raise QueueMissing(explain([failure]))
        if failure:
            raise AssertionError(explain([failure]) if _has_too_few(snapshot, expected) else failure)
        return snapshot

    def assert_blocked(
        self,
        destination: str = "",
        *,
        connection: str = "",
        limit: str | None = None,
        count: int | None = None,
        within: float = 0,
    ) -> tuple[BlockedSnapshot, ...]:
        """Assert that publishes of a connection are blocked. `count`: exact number of such connections; 0: none.

        `destination`, `connection`: part of the name. `limit`: as in `BlockedSnapshot`. `within`: real seconds to wait
        for it. Returns: the blocked connections. Raises: AssertionError; ValueError for an unknown limit.
        """
        __tracebackhide__ = True
        check_limit(limit)
        edge = self._broker.edge

        def look() -> tuple[bool, tuple[BlockedSnapshot, ...], str]:
            every = blocked_of(edge, self.name)
            like = tuple(one for one in every if one.is_like(destination, connection, limit))
            if len(like) == count if count is not None else like:
                return True, like, ""
            wanted = f"{'a connection' if count is None else f'{count} connections'} to be blocked"
            parts = (("by", destination), ("called", connection), ("for the limit", limit or ""))
            wanted += "".join(f" {word} {value!r}" for word, value in parts if value)
            return False, like, blocked_failure(every, wanted, edge)

        is_right, like, failure = self._broker.ask_until(look, lambda found: found[0], within)
        if not is_right:
            raise AssertionError(failure)
        return like

    def assert_leased(
        self,
        queue: str,
        body: Body = _UNSAID,
        *,
        consumer: str | None = None,
        connection: str = "",
        count: int | None = None,
        within: float = 0,
    ) -> tuple[LeaseSnapshot, ...]:
        """Assert that a message of a leased queue is leased. `count`: exact number of such leases; 0: none.

        `body`: as in `assert_published`. `consumer`: its tag, "" for a get. `connection`: part of its name. `within`:
        real seconds to wait for it. Returns: the leases, in the order of their deadlines.
        Raises: AssertionError; LookupError: no such queue; ValueError: the queue is not leased.
        """
        __tracebackhide__ = True
        edge = self._broker.edge

        def look() -> tuple[tuple[LeaseSnapshot, ...], str]:
            there = find_queue(edge.broker.virtual_hosts.get(self.name), queue)
            check_leased(there)
            every = leases_in(there, edge)
            like = tuple(one for one in every if one.is_like(body, consumer, connection))
            if len(like) == count if count is not None else like:
                return like, ""
            return like, lease_failure(there, count, body, consumer, connection, every)

        like, failure = self._broker.ask_until(look, lambda found: not found[1], within)
        if failure:
            raise AssertionError(failure)
        return like

    def assert_lease_ended(
        self,
        queue: str,
        why: str | None = None,
        *,
        message: int | None = None,
        count: int | None = None,
        within: float = 0,
    ) -> tuple[HistoryEvent, ...]:
        """Assert that leases of a queue ended, but not by an acknowledgement. `count`: exact number of such leases.

        `why`: deadline, unsubscribed, taken_over, lifetime; nacked, rejected, recovered; closed, lost. `message`: its
        id. `within`: real seconds to wait for it. Returns: the events, oldest first.
        Raises: AssertionError; LookupError: no such queue; ValueError: the queue is not leased, or `why` is unknown.
        """
        __tracebackhide__ = True
        check_lease_end(why)
        edge, recorder = self._broker.edge, self._broker.recorder

        def is_meant(event: Event) -> bool:
            return (event.kind, event.vhost, event.subject) == (EventKind.LEASE_ENDED, self.name, queue)

        def look() -> tuple[tuple[HistoryEvent, ...], str]:
            there = find_queue(edge.broker.virtual_hosts.get(self.name), queue)
            check_leased(there)
            every = recorder.events(is_meant, message)
            like = tuple(event for event in every if why in (None, event.detail["why"]))
            if len(like) == count if count is not None else like:
                return like, ""
            return like, end_failure(queue, why, count, every, leases_in(there, edge))

        like, failure = self._broker.ask_until(look, lambda found: not found[1], within)
        if failure:
            raise AssertionError(failure)
        return like

    def _published_until(
        self, is_enough: Callable[[Record[PublishedMessage]], bool], within: float
    ) -> Record[PublishedMessage]:
        return self._broker.ask_until(
            lambda: self._broker.recorder.published(self.name, copies=False), is_enough, within
        )

    def _check_exchange_of(self, name: Wanted, every: Sequence[PublishedMessage]) -> None:
        hosts = self._broker.edge.broker.virtual_hosts
        self._broker.ask(lambda: self.check_exchange(name, hosts[self.name], every))

    def check_exchange(self, name: Wanted, vhost: VirtualHost, every: Sequence[PublishedMessage]) -> None:
        """Refuse the name of an exchange to which nothing was published, if it seems misspelt. Raises: LookupError."""
        if isinstance(name, str):
            known = {message.exchange for message in every} | vhost.exchanges.keys()
            if name not in known and any(not each.exchange and each.routing_key == name for each in every):
                raise LookupError(f"no exchange {name!r}: it is a routing key of exchange '', so say ('', {name!r})")
            check_open_name("exchange", name, known)


def _expected(
    exchange: Wanted, routing_key: Wanted, body: Body, headers: Wanted, properties: Mapping[str, Any]
) -> Expected:
    if "json" in properties:
        raise TypeError("unknown property 'json': give body= what the JSON should be")
    known = known_properties(properties, beside=_KEYWORDS)
    return Expected(exchange, routing_key, body, {} if headers is None else headers, known)


def _has_too_few(queue: QueueSnapshot, expected: Mapping[str, Contents]) -> bool:
    """Whether fewer messages are in the queue than expected. False if no number was given."""
    counts = (len(wanted) if isinstance(wanted, list | tuple) else wanted for wanted in expected.values())
    return len(queue) < sum(count for count in counts if isinstance(count, int))


def find_queue(vhost: VirtualHost | None, name: str) -> Queue:
    """Raises: LookupError."""
    if vhost is None:
        raise LookupError("the virtual host is gone")
    queue = vhost.queues.get(name)
    if queue is None:
        raise missing("queue", name, vhost.queues, f" in virtual host {vhost.name!r}")
    return queue
