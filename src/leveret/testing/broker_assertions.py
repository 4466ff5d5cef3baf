"""Assertions of tests about a virtual host. A failure shows the actual state, and possible causes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..engine import Event, EventKind, Queue, VirtualHost
from .assertions import OMITTED, Contents, Expected, publish_failure, queue_failure, unexpected_failure
from .blocked import BlockedSnapshot, blocked_failure, blocked_of
from .history import HistoryEvent, PublishedMessage, Record
from .host import Host
from .leases import LeaseSnapshot, check_leased, end_failure, lease_failure, leases_in
from .lost_messages import reasons_for_missing
from .matching import Body, Wanted
from .nearest_names import nearest_names
from .snapshots import QueueSnapshot, snapshot_of
from .typos import LEASE_ENDS, LIMIT_NAMES, check_open_name, check_word, missing
from .wire_values import known_properties

T = TypeVar("T")
#: Arguments of `assert_published` besides the names of properties.
_KEYWORDS = ("exchange", "routing_key", "body", "headers", "count", "within", "vhost")


class QueueMissing(AssertionError, LookupError):
    """There is no such queue. The text lists the existing queues, and where the queue's messages may have gone."""


@nearest_names
class BrokerAssertions:
    """The assertions of `RunningBroker`. `vhost`: about this virtual host; None: about the default one.

    `default_vhost`: the virtual host of methods that name none; the pytest plugin sets it to the running test's.
    """

    def __init__(self, host: Host, default_vhost: str = "/") -> None:
        self.host = host
        self.default_vhost = default_vhost

    def known_vhost(self, name: str | None) -> str:
        """The name of an existing virtual host; None: the default one. Raises: LookupError."""
        hosts = self.host.runtime.broker.virtual_hosts
        if name is not None and name not in hosts:
            raise missing("virtual host", name, hosts)
        return self.default_vhost if name is None else name

    def assert_published(
        self,
        exchange: Wanted = None,
        routing_key: Wanted = None,
        body: Body = OMITTED,
        *,
        headers: Wanted = None,
        count: int | None = None,
        within: float = 0,
        vhost: str | None = None,
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
        expected, name = _expected(exchange, routing_key, body, headers, properties), self.known_vhost(vhost)

        every = self._published_until(name, lambda found: _is_enough(expected.among(found), count), within)
        like = expected.among(every)
        if not like and count == 0:
            self._check_exchange_of(name, exchange, every)
        if not _is_enough(like, count):
            raise AssertionError(publish_failure(expected, count, every, len(like), every.dropped))
        return like[-1] if like else None

    def assert_not_published(
        self,
        exchange: Wanted = None,
        routing_key: Wanted = None,
        body: Body = OMITTED,
        *,
        headers: Wanted = None,
        within: float = 0,
        vhost: str | None = None,
        **properties: Any,
    ) -> None:
        """Assert that no message like this was published, or is published `within` these real seconds; see
        `assert_published`.

        Raises: AssertionError; LookupError when the exchange's name is misspelled.
        """
        __tracebackhide__ = True
        expected, name = _expected(exchange, routing_key, body, headers, properties), self.known_vhost(vhost)

        every = self._published_until(name, lambda found: bool(expected.among(found)), within)
        like = expected.among(every)
        if like:
            raise AssertionError(unexpected_failure(expected, every, like))
        self._check_exchange_of(name, exchange, every)

    def assert_queue(
        self,
        name: str,
        *,
        ready: Contents = None,
        unacked: Contents = None,
        scheduled: Contents = None,
        consumers: int | None = None,
        within: float = 0,
        vhost: str | None = None,
    ) -> QueueSnapshot:
        """Assert the messages of a queue: their number, their bodies in order, or a condition on the list of bodies.

        `within`: real seconds to wait until the assertion is true. Raises: AssertionError; QueueMissing, which is also
        a LookupError, when there is no such queue.
        """
        __tracebackhide__ = True
        expected = {"ready": ready, "unacked": unacked, "scheduled": scheduled}
        host, where = self.host, self.known_vhost(vhost)

        def look() -> tuple[QueueSnapshot | None, str]:
            try:
                queue = self._queue(where, name)
            except LookupError as error:
                return None, str(error)
            snapshot = snapshot_of(queue)
            return snapshot, queue_failure(snapshot, expected, consumers)

        def explain(lines: Sequence[str]) -> str:
            return "\n".join([*lines, *host.ask(lambda: reasons_for_missing(host.runtime, host.recorder, where, name))])

        snapshot, failure = host.ask_until(look, lambda found: not found[1], within)
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
        vhost: str | None = None,
    ) -> tuple[BlockedSnapshot, ...]:
        """Assert that publishes of a connection are blocked. `count`: exact number of such connections; 0: none.

        `destination`, `connection`: part of the name. `limit`: as in `BlockedSnapshot`. `within`: real seconds to wait
        for it. Returns: the blocked connections. Raises: AssertionError; ValueError for an unknown limit.
        """
        __tracebackhide__ = True
        if limit is not None:
            check_word("limit", limit, LIMIT_NAMES)
        runtime, name = self.host.runtime, self.known_vhost(vhost)

        def look() -> tuple[tuple[BlockedSnapshot, ...], str]:
            every = blocked_of(runtime, name)
            like = tuple(one for one in every if one.is_like(destination, connection, limit))
            if _is_enough(like, count):
                return like, ""
            wanted = f"{'a connection' if count is None else f'{count} connections'} to be blocked"
            parts = (("by", destination), ("called", connection), ("for the limit", limit or ""))
            wanted += "".join(f" {word} {value!r}" for word, value in parts if value)
            return like, blocked_failure(every, wanted, runtime)

        return self._until_right(look, within)

    def assert_leased(
        self,
        queue: str,
        body: Body = OMITTED,
        *,
        consumer: str | None = None,
        connection: str = "",
        count: int | None = None,
        within: float = 0,
        vhost: str | None = None,
    ) -> tuple[LeaseSnapshot, ...]:
        """Assert that a message of a leased queue is leased. `count`: exact number of such leases; 0: none.

        `body`: as in `assert_published`. `consumer`: its tag, "" for a get. `connection`: part of its name. `within`:
        real seconds to wait for it. Returns: the leases, in the order of their deadlines.
        Raises: AssertionError; LookupError: no such queue; ValueError: the queue is not leased.
        """
        __tracebackhide__ = True
        runtime, name = self.host.runtime, self.known_vhost(vhost)

        def look() -> tuple[tuple[LeaseSnapshot, ...], str]:
            leased = self._leased(name, queue)
            every = leases_in(leased, runtime)
            like = tuple(one for one in every if one.is_like(body, consumer, connection))
            if _is_enough(like, count):
                return like, ""
            return like, lease_failure(leased, count, body, consumer, connection, every)

        return self._until_right(look, within)

    def assert_lease_ended(
        self,
        queue: str,
        why: str | None = None,
        *,
        message: int | None = None,
        count: int | None = None,
        within: float = 0,
        vhost: str | None = None,
    ) -> tuple[HistoryEvent, ...]:
        """Assert that leases of a queue ended, but not by an acknowledgement. `count`: exact number of such leases.

        `why`: deadline, unsubscribed, taken_over, lifetime; nacked, rejected, recovered; closed, lost. `message`: its
        id. `within`: real seconds to wait for it. Returns: the events, oldest first.
        Raises: AssertionError; LookupError: no such queue; ValueError: the queue is not leased, or `why` is unknown.
        """
        __tracebackhide__ = True
        if why is not None:
            check_word("why", why, LEASE_ENDS)
        host, name = self.host, self.known_vhost(vhost)

        def is_meant(event: Event) -> bool:
            return (event.kind, event.vhost, event.subject) == (EventKind.LEASE_ENDED, name, queue)

        def look() -> tuple[tuple[HistoryEvent, ...], str]:
            leased = self._leased(name, queue)
            every = host.recorder.events(is_meant, message)
            like = tuple(event for event in every if why in (None, event.detail["why"]))
            if _is_enough(like, count):
                return like, ""
            return like, end_failure(queue, why, count, every, leases_in(leased, host.runtime))

        return self._until_right(look, within)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _published_until(
        self, vhost: str, is_enough: Callable[[Record[PublishedMessage]], bool], within: float
    ) -> Record[PublishedMessage]:
        host = self.host
        return host.ask_until(lambda: host.recorder.published(vhost, copies=False), is_enough, within)

    def _check_exchange_of(self, vhost: str, name: Wanted, every: Sequence[PublishedMessage]) -> None:
        hosts = self.host.runtime.broker.virtual_hosts
        self.host.ask(lambda: check_exchange(name, hosts[vhost], every))

    def _until_right(self, look: Callable[[], tuple[tuple[T, ...], str]], within: float) -> tuple[T, ...]:
        """Call `look` until it returns no failure text. Raises: AssertionError with the last text."""
        __tracebackhide__ = True
        like, failure = self.host.ask_until(look, lambda found: not found[1], within)
        if failure:
            raise AssertionError(failure)
        return like

    def _queue(self, vhost: str, name: str) -> Queue:
        """Raises: LookupError."""
        return find_queue(self.host.runtime.broker.virtual_hosts.get(vhost), name)

    def _leased(self, vhost: str, name: str) -> Queue:
        """Raises: LookupError; ValueError: the queue is not leased."""
        queue = self._queue(vhost, name)
        check_leased(queue)
        return queue


def _is_enough(like: Sequence[object], count: int | None) -> bool:
    """Whether there are exactly `count` of them; None: at least one."""
    return len(like) == count if count is not None else bool(like)


def check_exchange(name: Wanted, vhost: VirtualHost, every: Sequence[PublishedMessage]) -> None:
    """Refuse the name of an exchange to which nothing was published, if it seems misspelt. Raises: LookupError."""
    if isinstance(name, str):
        known = {message.exchange for message in every} | vhost.exchanges.keys()
        if name not in known and any(not each.exchange and each.routing_key == name for each in every):
            raise LookupError(f"no exchange {name!r}: it is a routing key of exchange '', expected ('', {name!r})")
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
        raise LookupError("the virtual host was deleted")
    queue = vhost.queues.get(name)
    if queue is None:
        raise missing("queue", name, vhost.queues, f" in virtual host {vhost.name!r}")
    return queue
