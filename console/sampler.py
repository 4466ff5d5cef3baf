"""Samples of counters, once a second, and their rates. Source: management page 5, 14.

Counts are always shown as they are now; only rates and ranges come from here. An object is sampled from its first
activity on. With more than `FOLLOWED_MAX` queues, only their rates are known, and no ranges.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..engine import Broker, Client, Exchange, Queue, Session, VirtualHost
from .counters import (
    BROKER_NAMES,
    CHURN,
    CLIENT_NAMES,
    DELIVERIES,
    DISK,
    EXCHANGE_NAMES,
    LENGTHS,
    OCTETS,
    PUBLISHES,
    QUEUE_NAMES,
    SESSION_NAMES,
    VHOST_NAMES,
    broker_values,
    churn_values,
    lengths_of,
    queue_values,
    session_values,
    vhost_values,
)
from .node_facts import HostFacts
from .ranges import Range
from .series import LONG, MEDIUM, OF_NODE, SHORT, Series
from .steps import Steps

PERIOD_S = 1.0
#: Objects sampled in one step, about a millisecond.
SAMPLED_A_STEP = 250
FOLLOWED_MAX = 2_000
#: Connections, channels, and exchanges of a virtual host with ranges of ten minutes; others have a minute.
FOLLOWED_LONGER_MAX = 300
#: Milliseconds between two samples of the node, and its figures.
NODE_PERIOD_MS = 5_000
NODE_NAMES = ("mem_used", "fd_used", "sockets_used", "disk_free")
#: Samples over which the room of consumers is averaged, roughly.
SAMPLES_OF_ROOM = 5
CONSUMERS_ASKED = 50
#: While nothing happens only one of this many samples is taken.
SAMPLES_SKIPPED = 5
#: Fields of `Broker.activity` that change with any activity.
_SIGNS = ("connections_closed", "channels_opened", "channels_closed", "queues_declared", "queues_deleted", "own")
_MESSAGES = QUEUE_NAMES.index("messages")
NO_RANGES: Mapping[str, Range] = {}
MS = 1_000_000

#: The parameters that ask for ranges, by kind.
_KIND_OF = {
    **dict.fromkeys((*PUBLISHES, *DELIVERIES, *DISK, "publish_in", "publish_out"), "msg_rates"),
    **dict.fromkeys(LENGTHS, "lengths"),
    **dict.fromkeys(OCTETS, "data_rates"),
    **dict.fromkeys(CHURN, "msg_rates"),
    **dict.fromkeys(NODE_NAMES, "node_stats"),
}
#: Figures that go up and down.
_GAUGES = frozenset({*LENGTHS, *NODE_NAMES})

#: The averages that RabbitMQ's queues show, and the rates that replace them here.
_AVERAGES = {
    "avg_ingress_rate": "publish",
    "avg_egress_rate": "deliver_get",
    "avg_ack_ingress_rate": "deliver",
    "avg_ack_egress_rate": "ack",
}


def _has_room(queue: Queue) -> float:
    """1 if no message waits for a consumer now, else 0."""
    return float(not queue.has_ready or any(one.credit() > 0 for one in queue.served_consumers[:CONSUMERS_ASKED]))


class Sampler:
    """Samples the objects of one broker, or of the one that replaces it."""

    def __init__(self, broker: Callable[[], Broker], node: Callable[[], tuple[HostFacts, int]] | None = None) -> None:
        """`node`: the facts of its process, and its listeners."""
        self._broker = broker
        self._node = node
        self.forget()

    def forget(self) -> None:
        self._of: Broker | None = None
        self._whole: Series | None = None
        self._of_node: tuple[int, Series] | None = None  # with the time of its last sample
        self._signs: tuple[int, ...] = ()
        self._same = 0  # samples without any activity
        self._series: dict[Any, Series] = {}
        self._room: dict[Queue, float] = {}
        self._fresh: dict[Any, Series] = {}  # of the current round, which leaves out objects that are gone

    def _now_ms(self) -> int:
        return self._broker().context.clock.monotonic_ns() // MS

    # -- looking ------------------------------------------------------------------------------------------------------

    def sample_all(self) -> Iterator[None]:
        """Sample all objects, in steps; less often while nothing happens."""
        broker = self._broker()
        if broker is not self._of:
            self.forget()
            self._of = broker
        if self._is_quiet(broker):
            return
        self._fresh = {}
        room: dict[Queue, float] = {}
        clients = list(broker.connections)
        all_ready = all_unacked = channels = 0
        for vhost in list(broker.virtual_hosts.values()):
            ready = unacked = 0
            used = [exchange for exchange in vhost.exchanges.values() if exchange.published_in]
            for number, exchange in enumerate(used):
                self._sample(exchange, (exchange.published_in, exchange.published_out), _levels(number))
            queues = list(vhost.queues.values())
            for start in range(0, len(queues), SAMPLED_A_STEP):
                some = queues[start : start + SAMPLED_A_STEP]
                lengths = yield from lengths_of(some)
                ready += lengths[0]
                unacked += lengths[1]
                for queue in some:
                    counters = queue.counters
                    if counters.enqueued or counters.get_empty:
                        self._sample(queue, queue_values(queue), LONG[:2])
                    if queue.consumers:
                        before = self._room.get(queue, _has_room(queue))
                        room[queue] = before + (_has_room(queue) - before) / SAMPLES_OF_ROOM
                yield
            self._sample(vhost, (yield from vhost_values(vhost, clients, (ready, unacked))), LONG)
            all_ready += ready
            all_unacked += unacked
            yield
        self._sample_whole((yield from broker_values(broker, (all_ready, all_unacked))))
        yield
        for start in range(0, len(clients), SAMPLED_A_STEP):
            for number, client in enumerate(clients[start : start + SAMPLED_A_STEP], start):
                info = client.connection_info
                self._sample(client, (info.octets_in, info.octets_out), _levels(number))
                for session in client.sessions:
                    self._sample(session, session_values(session), _levels(channels))
                    channels += 1
            yield
        self._series, self._room = self._fresh, room
        self._sample_node(len(clients))

    def _is_quiet(self, broker: Broker) -> bool:
        """Whether nothing was published, delivered, acknowledged or declared since the last two samples.

        Events without clients (expiry, purges) are seen by the next sample, at most `SAMPLES_SKIPPED` later.
        """
        signs = (
            broker.context.next_id,
            len(broker.connections),
            *(getattr(broker.context.activity, name) for name in _SIGNS),
            sum(
                session.next_tag + session.acked + session.get_empty + session.published
                for client in broker.connections
                for session in client.sessions
            ),
            sum(client.connection_info.reads for client in broker.connections),
        )
        self._same = self._same + 1 if signs == self._signs else 0
        self._signs = signs
        return self._same >= 2 and self._same % SAMPLES_SKIPPED != 0

    def _sample_node(self, clients: int) -> None:
        now_ms = self._now_ms()
        if self._node is None or (self._of_node is not None and now_ms - self._of_node[0] < NODE_PERIOD_MS):
            return
        host, listeners = self._node()
        values = (host.memory, host.descriptors, clients + listeners, host.disk_free)
        if self._of_node is None:
            self._of_node = (now_ms, Series(now_ms, values, OF_NODE))
        else:
            self._of_node[1].record(now_ms, values)
            self._of_node = (now_ms, self._of_node[1])

    def _sample_whole(self, values: tuple[int, ...]) -> None:
        if self._whole is None:
            self._whole = Series(self._now_ms(), values, LONG)
        else:
            self._whole.record(self._now_ms(), values)

    def _sample(self, one: Any, values: Sequence[int], levels: Sequence[tuple[int, int]]) -> None:
        series = self._series.get(one)
        if series is not None:
            series.record(self._now_ms(), values)
        else:
            if isinstance(one, Queue) and len(self._fresh) >= FOLLOWED_MAX:
                levels = ()
            series = Series(self._now_ms(), values, levels)
        self._fresh[one] = series

    # -- reading -----------------------------------------------------------------------------------------------------

    def queue(self, queue: Queue, ranges: Mapping[str, Range] = NO_RANGES) -> dict[str, Any]:
        """Rates of a queue, its `message_stats` and `idle_since`, if they are known."""
        values = queue_values(queue)
        shown = self._shown(QUEUE_NAMES, values, self._series.get(queue), ranges)
        series = self._series.get(queue)
        stats = _families(shown, [("publish",), DELIVERIES], values, QUEUE_NAMES)
        found = {f"{name}_details": shown[f"{name}_details"] for name in LENGTHS}
        found["reductions_details"] = {"rate": 0.0}
        if queue.type != "stream":
            found |= dict.fromkeys(("consumer_capacity", "consumer_utilisation"), self._capacity(queue))
        if queue.type == "classic":
            found["backing_queue_status"] = {
                shown_as: shown[f"{name}_details"]["rate"] for shown_as, name in _AVERAGES.items()
            }
        if stats:
            found["message_stats"] = stats
        if series is None or values == series.latest:
            found |= self._idle_since(queue.last_used_ns // MS if series is None else series.changed_ms)
        return found

    def _idle_since(self, changed_ms: int) -> dict[str, str]:
        """`idle_since` of an object that last changed at this monotonic time; empty if that was just now."""
        idle_ms = self._now_ms() - changed_ms
        if idle_ms < PERIOD_S * 1000:
            return {}
        since_s = (self._broker().context.clock.wall_ms() - idle_ms) / 1000
        return {"idle_since": datetime.fromtimestamp(since_s, UTC).isoformat(timespec="milliseconds")}

    def since_ms(self, one: Any = None) -> int | None:
        """Wall time of the oldest sample of an object, or of the broker; what ranges show before it is not known,
        though RabbitMQ's tools read 0. None: there is none.
        """
        return self._wall_ms(self._whole if one is None else self._series.get(one))

    def _wall_ms(self, series: Series | None) -> int | None:
        return None if series is None else self._broker().context.clock.wall_ms() - self._now_ms() + series.since_ms

    def of_node(self, view: Mapping[str, Any], ranges: Mapping[str, Range]) -> dict[str, Any]:
        """What a range adds to the view of this node: the samples of its figures, and the time of the oldest one."""
        if "node_stats" not in ranges:
            return {}
        series = None if self._of_node is None else self._of_node[1]
        shown = self._shown(NODE_NAMES, [view[name] for name in NODE_NAMES], series, ranges)
        details = {name: shown[f"{name}_details"] for name in NODE_NAMES}
        return {
            **{f"{name}_details": {**found, **view[f"{name}_details"]} for name, found in details.items() if found},
            "leveret": {"sampled_since_ms": self._wall_ms(series)},
        }

    def rate(self, queue: Queue, name: str) -> float:
        """The rate of one of `QUEUE_NAMES`."""
        series = self._series.get(queue)
        return 0.0 if series is None else series.rate(QUEUE_NAMES.index(name))

    def growth(self, queue: Queue) -> int | None:
        """The messages by which a queue is longer than a minute ago, if it grew in both halves of the minute, else 0.
        None: it is not followed, or has been for less than a minute.
        """
        series, now_ms = self._series.get(queue), self._now_ms()
        if series is None:
            return 0
        before, middle = (series.at(_MESSAGES, now_ms - seconds * 1000) for seconds in (60, 30))
        if before is None or middle is None:
            return None
        now = series.latest[_MESSAGES]
        return now - before if before < middle < now else 0

    def _capacity(self, queue: Queue) -> float:
        """The share of the last samples at which no message waited for consumers; 0 without consumers."""
        if not queue.consumers:
            return 0.0
        known = self._room.get(queue)
        return round(_has_room(queue) if known is None else known, 3)

    def exchange(self, exchange: Exchange, ranges: Mapping[str, Range] = NO_RANGES) -> dict[str, Any]:
        """`message_stats` of an exchange that was published to."""
        if not exchange.published_in:
            return {}
        values = (exchange.published_in, exchange.published_out)
        return {"message_stats": self._shown(EXCHANGE_NAMES, values, self._series.get(exchange), ranges)}

    def client(self, client: Client, ranges: Mapping[str, Range] = NO_RANGES) -> dict[str, Any]:
        """Rates of a connection."""
        series = self._series.get(client)
        values = (client.connection_info.octets_in, client.connection_info.octets_out)
        return {**self._shown(CLIENT_NAMES, values, series, ranges), "reductions_details": {"rate": 0.0}}

    def session(self, session: Session, ranges: Mapping[str, Range] = NO_RANGES) -> dict[str, Any]:
        """`message_stats` of a channel, and `idle_since`."""
        series, values = self._series.get(session), session_values(session)
        stats = _families(
            self._shown(SESSION_NAMES, values, series, ranges), [PUBLISHES, DELIVERIES], values, SESSION_NAMES
        )
        found: dict[str, Any] = {"message_stats": stats} if stats else {}
        if series is not None and values == series.latest:
            found |= self._idle_since(series.changed_ms)
        return {**found, "reductions_details": {"rate": 0.0}}

    def vhost(self, vhost: VirtualHost, ranges: Mapping[str, Range] = NO_RANGES) -> Steps:
        """The steps to rates and `message_stats` of a virtual host."""
        lengths = yield from lengths_of(vhost.queues.values())
        values = yield from vhost_values(vhost, list(self._broker().connections), lengths)
        shown = self._shown(VHOST_NAMES, values, self._series.get(vhost), ranges)
        stats = _families(shown, [PUBLISHES, DELIVERIES], values, VHOST_NAMES)
        found = {name: value for name, value in shown.items() if name.removesuffix("_details") in (*LENGTHS, *OCTETS)}
        return {**found, "message_stats": stats} if stats else found

    def whole(self, ranges: Mapping[str, Range] = NO_RANGES) -> Steps:
        """The steps to `message_stats`, `queue_totals` and `churn_rates` of the broker."""
        broker = self._broker()
        return self._whole_of(
            (yield from broker_values(broker, (yield from lengths_of(broker.virtual_hosts.queues())))), ranges
        )

    def whole_at_last_sample(self) -> dict[str, Any]:
        """The same without steps, up to a second old."""
        return self._whole_of((0,) * len(BROKER_NAMES) if self._whole is None else self._whole.latest, NO_RANGES)

    def _whole_of(self, values: Sequence[int], ranges: Mapping[str, Range]) -> dict[str, Any]:
        shown = self._shown(BROKER_NAMES, values, self._whole, ranges)
        stats = _families(shown, [PUBLISHES, DELIVERIES], values, BROKER_NAMES)
        return {
            "message_stats": {**stats, **_some(shown, DISK)},
            "queue_totals": _some(shown, LENGTHS),
            "churn_rates": _some(shown, CHURN),
        }

    def churn(self) -> dict[str, Any]:
        """`churn_rates` alone, for the node."""
        before = (0,) * BROKER_NAMES.index(CHURN[0])
        shown = self._shown(BROKER_NAMES, (*before, *churn_values(self._broker()), 0, 0), self._whole, NO_RANGES)
        return _some(shown, CHURN)

    def _shown(
        self, names: Sequence[str], values: Sequence[int], series: Series | None, ranges: Mapping[str, Range]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index, (name, value) in enumerate(zip(names, values)):
            found[name] = value
            details: dict[str, Any] = {"rate": 0.0 if series is None else series.rate(index)}
            wanted = ranges.get(_KIND_OF.get(name, ""))
            if wanted is not None:
                details |= self._samples(index, value, series, wanted, is_length=name in _GAUGES)
            found[f"{name}_details"] = details
        return found

    def _samples(
        self, index: int, value: int, series: Series | None, wanted: Range, *, is_length: bool
    ) -> dict[str, Any]:
        """The samples, newest first. Lengths end at the next multiple of the step, rates at the last one."""
        clock = self._broker().context.clock
        wall_ms, step_ms = clock.wall_ms(), wanted.step * 1000
        end_ms = wall_ms // step_ms * step_ms + (step_ms if is_length and wall_ms % step_ms else 0)
        behind_ms = wall_ms - self._now_ms()
        samples = []
        for at_ms in range(end_ms, end_ms - wanted.age * 1000 - 1, -step_ms):
            if at_ms >= wall_ms:
                known: int | None = value
            else:
                known = None if series is None else series.at(index, at_ms - behind_ms)
            samples.append({"sample": 0 if known is None else known, "timestamp": at_ms})
        first, last = samples[-1]["sample"], samples[0]["sample"]
        average = sum(one["sample"] for one in samples) / len(samples)
        return {"samples": samples, "avg": average, "avg_rate": (last - first) / wanted.age}


def _levels(number: int) -> tuple[tuple[int, int], ...]:
    """The levels of a connection, channel or exchange by its place in the list."""
    return MEDIUM if number < FOLLOWED_LONGER_MAX else SHORT


def _some(shown: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {key: shown[key] for name in names for key in (name, f"{name}_details")}


def _families(
    shown: Mapping[str, Any],
    families: Sequence[Sequence[str]],
    values: Sequence[int],
    names: Sequence[str],
) -> dict[str, Any]:
    """Counters that belong together appear together, with the first event of any of them (management page 5.2)."""
    by_name = dict(zip(names, values))
    found: dict[str, Any] = {}
    for family in families:
        if any(by_name[name] for name in family):
            found |= _some(shown, family)
    return found
