"""The sampler: it samples the counters of all objects once a second, and makes rates and ranges of the samples.

Samples are only for rates and ranges: counts are always read from the objects. An object is sampled from its first
activity on. Source: management page 5, 14.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import add
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
    Lengths,
    broker_values,
    churn_values,
    lengths_of,
    queue_values,
    session_values,
    vhost_values,
)
from .node_facts import HostFacts
from .ranges import Range
from .series import DAY, HOUR, MINUTE, NO_RANGE, TEN_MINUTES, Resolutions, Series, SumOfSeries
from .steps import Steps

PERIOD_S = 1.0
#: Objects sampled in one step, which takes about a millisecond.
SAMPLED_A_STEP = 250
#: A queue has ranges if fewer objects than this come before it in a sample. Other queues have only rates.
WITH_RANGES_MAX = 2_000
#: Maximum connections, channels, and exchanges of a virtual host that have ranges of ten minutes. Others have a minute.
TEN_MINUTES_MAX = 300
#: Minimum milliseconds between two samples of the node. The names of its figures.
NODE_PERIOD_MS = 5_000
NODE_NAMES = ("mem_used", "fd_used", "sockets_used", "disk_free")
#: A queue's consumer capacity is a moving average over about this many samples.
CAPACITY_SAMPLES = 5
#: Maximum consumers of a queue whose credit a sample reads.
CONSUMERS_ASKED = 50
#: While nothing happens, one sample in this many periods is taken.
QUIET_PERIODS = 5
#: Fields of `BrokerContext.activity` that change when something happens.
_ACTIVITY = ("connections_closed", "channels_opened", "channels_closed", "queues_declared", "queues_deleted", "own")
_MESSAGES = QUEUE_NAMES.index("messages")
NO_RANGES: Mapping[str, Range] = {}
MS = 1_000_000

#: Name of a figure -> the kind of range for its samples.
_RANGE_KINDS = {
    **dict.fromkeys((*PUBLISHES, *DELIVERIES, *DISK, "publish_in", "publish_out"), "msg_rates"),
    **dict.fromkeys(LENGTHS, "lengths"),
    **dict.fromkeys(OCTETS, "data_rates"),
    **dict.fromkeys(CHURN, "msg_rates"),
    **dict.fromkeys(NODE_NAMES, "node_stats"),
}
#: Figures that may decrease.
_GAUGES = frozenset({*LENGTHS, *NODE_NAMES})

#: Averages in RabbitMQ's `backing_queue_status` -> the figures whose rates we show there.
_AVERAGES = {
    "avg_ingress_rate": "publish",
    "avg_egress_rate": "deliver_get",
    "avg_ack_ingress_rate": "deliver",
    "avg_ack_egress_rate": "ack",
}


def _capacity_now(queue: Queue) -> float:
    """1 if a message would be delivered at once now, else 0."""
    return float(not queue.has_ready or any(one.credit() > 0 for one in queue.consumer_list.served[:CONSUMERS_ASKED]))


class Sampler:
    """Takes samples of a broker's objects, and shows them. They are dropped when another broker replaces this one."""

    def __init__(self, broker: Callable[[], Broker], node: Callable[[], tuple[HostFacts, int]] | None = None) -> None:
        """`node`: returns facts about the node's process, and the number of its listeners."""
        self._broker = broker
        self._node = node
        self.forget()

    def forget(self) -> None:
        """Drop all samples."""
        self._sampled_broker: Broker | None = None
        self._broker_series: Series | None = None
        self._node_series: Series | None = None
        self._activity: tuple[int, ...] = ()
        self._quiet_samples = 0
        self._series: dict[Any, Series] = {}
        self._capacities: dict[Queue, float] = {}
        # Those of the sample under way, which has no deleted objects. When it is complete, they replace the two above.
        self._next_series: dict[Any, Series] = {}
        self._next_capacities: dict[Queue, float] = {}

    def _now_ms(self) -> int:
        return self._broker().context.clock.monotonic_ns() // MS

    # -- samples ------------------------------------------------------------------------------------------------------

    def sample_all(self) -> Iterator[None]:
        """Sample all objects in steps. Does nothing in most periods while nothing happens."""
        broker = self._broker()
        if broker is not self._sampled_broker:
            self.forget()
            self._sampled_broker = broker
        if self._is_quiet(broker):
            return
        self._next_series, self._next_capacities = {}, {}
        clients = list(broker.connections)
        all_ready = all_unacked = 0
        for vhost in list(broker.virtual_hosts.values()):
            used = [exchange for exchange in vhost.exchanges.values() if exchange.published_in]
            for number, exchange in enumerate(used):
                self._sample(exchange, (exchange.published_in, exchange.published_out), _resolutions(number))
            ready, unacked = yield from self._sample_queues(list(vhost.queues.values()))
            self._sample(vhost, (yield from vhost_values(vhost, clients, (ready, unacked))), DAY)
            all_ready += ready
            all_unacked += unacked
            yield
        values = yield from broker_values(broker, (all_ready, all_unacked))
        self._broker_series = self._recorded(self._broker_series, values, DAY)
        yield
        yield from self._sample_clients(clients)
        self._series, self._capacities = self._next_series, self._next_capacities
        self._sample_node(len(clients))

    def _sample_queues(self, queues: list[Queue]) -> Generator[None, None, Lengths]:
        """Sample the queues of a virtual host. Returns the numbers of their messages, in sum."""
        ready = unacked = 0
        for start in range(0, len(queues), SAMPLED_A_STEP):
            some = queues[start : start + SAMPLED_A_STEP]
            lengths = yield from lengths_of(some)
            ready += lengths[0]
            unacked += lengths[1]
            for queue in some:
                if queue.counters.enqueued or queue.counters.get_empty:
                    has_ranges = len(self._next_series) < WITH_RANGES_MAX
                    self._sample(queue, queue_values(queue), HOUR if has_ranges else NO_RANGE)
                if queue.consumers:
                    now = _capacity_now(queue)
                    before = self._capacities.get(queue, now)
                    self._next_capacities[queue] = before + (now - before) / CAPACITY_SAMPLES
            yield
        return ready, unacked

    def _sample_clients(self, clients: list[Client]) -> Iterator[None]:
        """Sample connections and their channels."""
        channels = 0
        for start in range(0, len(clients), SAMPLED_A_STEP):
            for number, client in enumerate(clients[start : start + SAMPLED_A_STEP], start):
                info = client.connection_info
                self._sample(client, (info.octets_in, info.octets_out), _resolutions(number))
                for session in client.sessions:
                    self._sample(session, session_values(session), _resolutions(channels))
                    channels += 1
            yield

    def _is_quiet(self, broker: Broker) -> bool:
        """Whether to skip this sample: nothing was published, delivered, acknowledged or declared in the last two.

        So what happens without clients, such as expiry, is sampled up to `QUIET_PERIODS` seconds late.
        """
        activity = (
            broker.context.next_id,
            len(broker.connections),
            *(getattr(broker.context.activity, name) for name in _ACTIVITY),
            sum(
                session.next_tag + session.acked + session.get_empty + session.published
                for client in broker.connections
                for session in client.sessions
            ),
            sum(client.connection_info.reads for client in broker.connections),
        )
        self._quiet_samples = self._quiet_samples + 1 if activity == self._activity else 0
        self._activity = activity
        return self._quiet_samples >= 2 and self._quiet_samples % QUIET_PERIODS != 0

    def _sample_node(self, clients: int) -> None:
        now_ms = self._now_ms()
        series = self._node_series
        if self._node is None or (series is not None and now_ms - series.recorded_ms < NODE_PERIOD_MS):
            return
        host, listeners = self._node()
        values = (host.memory, host.descriptors, clients + listeners, host.disk_free)
        self._node_series = self._recorded(series, values, DAY[1:])

    def _sample(self, one: Any, values: Sequence[int], resolutions: Resolutions) -> None:
        self._next_series[one] = self._recorded(self._series.get(one), values, resolutions)

    def _recorded(self, series: Series | None, values: Sequence[int], resolutions: Resolutions) -> Series:
        """The series with a sample of now. `series`: None: begin one with this sample."""
        if series is None:
            return Series(self._now_ms(), values, resolutions)
        series.record(self._now_ms(), values)
        return series

    # -- rates and ranges ---------------------------------------------------------------------------------------------

    def queue(self, queue: Queue, ranges: Mapping[str, Range] = NO_RANGES) -> dict[str, Any]:
        """Fields of a queue: its rates, and `message_stats` and `idle_since` if they are known."""
        values, series = queue_values(queue), self._series.get(queue)
        shown = self._with_rates(QUEUE_NAMES, values, series, ranges)
        stats = _stats(shown, [("publish",), DELIVERIES], values, QUEUE_NAMES)
        found = {f"{name}_details": shown[f"{name}_details"] for name in LENGTHS}
        found["reductions_details"] = {"rate": 0.0}
        if queue.type != "stream":
            found |= dict.fromkeys(("consumer_capacity", "consumer_utilisation"), self._capacity(queue))
        if queue.type == "classic":
            found["backing_queue_status"] = {
                average: shown[f"{name}_details"]["rate"] for average, name in _AVERAGES.items()
            }
        if stats:
            found["message_stats"] = stats
        if series is None or values == series.latest:
            found |= self._idle_since(queue.last_used_ns // MS if series is None else series.changed_ms)
        return found

    def _idle_since(self, changed_ms: int) -> dict[str, str]:
        """The field `idle_since` of an object that last changed at this monotonic time; {}: it is not idle yet."""
        idle_ms = self._now_ms() - changed_ms
        if idle_ms < PERIOD_S * 1000:
            return {}
        since_s = (self._broker().context.clock.wall_ms() - idle_ms) / 1000
        return {"idle_since": datetime.fromtimestamp(since_s, UTC).isoformat(timespec="milliseconds")}

    def since_ms(self, one: Any = None) -> int | None:
        """The wall time (ms) of an object's oldest sample; None: there is none. `one`: None: the broker.

        Ranges show 0 for earlier times, as RabbitMQ's tools expect, although the values are unknown.
        """
        return self._oldest_ms(self._broker_series if one is None else self._series.get(one))

    def _oldest_ms(self, series: Series | None) -> int | None:
        return None if series is None else self._broker().context.clock.wall_ms() - self._now_ms() + series.since_ms

    def of_node(self, view: Mapping[str, Any], ranges: Mapping[str, Range]) -> dict[str, Any]:
        """Fields with the samples of this node's figures, and the oldest one's time; {}: no range asks for them."""
        if "node_stats" not in ranges:
            return {}
        series = self._node_series
        shown = self._with_rates(NODE_NAMES, [view[name] for name in NODE_NAMES], series, ranges)
        details = {key: {**shown[key], **view[key]} for key in (f"{name}_details" for name in NODE_NAMES)}
        return {**details, "leveret": {"sampled_since_ms": self._oldest_ms(series)}}

    def rate(self, queue: Queue, name: str) -> float:
        """The rate of a queue's counter per second. `name`: one of `QUEUE_NAMES`."""
        series = self._series.get(queue)
        return 0.0 if series is None else series.rate(QUEUE_NAMES.index(name))

    def growth(self, queue: Queue) -> int | None:
        """By how many messages a queue grew in the last minute; 0: not in both halves, or it only went up and down.

        None: it has been sampled for less than a minute, or has no ranges.
        """
        series, now_ms = self._series.get(queue), self._now_ms()
        if series is None:
            return 0
        before, middle = (series.at(_MESSAGES, now_ms - seconds * 1000) for seconds in (60, 30))
        if before is None or middle is None:
            return None
        now = series.latest[_MESSAGES]
        if not before < middle < now:
            return 0
        lowest = [series.lowest(_MESSAGES, now_ms - age * 1000, now_ms - (age - 30) * 1000) or 0 for age in (60, 30)]
        return now - before if lowest[0] < lowest[1] else 0

    def _capacity(self, queue: Queue) -> float:
        """The part of the last samples in which a message would have been delivered at once; 0 without consumers."""
        if not queue.consumers:
            return 0.0
        known = self._capacities.get(queue)
        return round(_capacity_now(queue) if known is None else known, 3)

    def exchange(self, exchange: Exchange, ranges: Mapping[str, Range] = NO_RANGES) -> dict[str, Any]:
        """Fields of an exchange: `message_stats`; {}: nothing was published to it."""
        if not exchange.published_in:
            return {}
        values = (exchange.published_in, exchange.published_out)
        return {"message_stats": self._with_rates(EXCHANGE_NAMES, values, self._series.get(exchange), ranges)}

    def client(self, client: Client, ranges: Mapping[str, Range] = NO_RANGES) -> dict[str, Any]:
        """Fields of a connection: its rates."""
        series = self._series.get(client)
        values = (client.connection_info.octets_in, client.connection_info.octets_out)
        return {**self._with_rates(CLIENT_NAMES, values, series, ranges), "reductions_details": {"rate": 0.0}}

    def session(self, session: Session, ranges: Mapping[str, Range] = NO_RANGES) -> dict[str, Any]:
        """Fields of a channel: `message_stats` and `idle_since`, if they are known."""
        series, values = self._series.get(session), session_values(session)
        shown = self._with_rates(SESSION_NAMES, values, series, ranges)
        stats = _stats(shown, [PUBLISHES, DELIVERIES], values, SESSION_NAMES)
        found: dict[str, Any] = {"message_stats": stats} if stats else {}
        if series is not None and values == series.latest:
            found |= self._idle_since(series.changed_ms)
        return {**found, "reductions_details": {"rate": 0.0}}

    def vhost(self, vhost: VirtualHost, ranges: Mapping[str, Range] = NO_RANGES) -> Steps:
        """Steps that return fields of a virtual host: its rates and `message_stats`."""
        lengths = yield from lengths_of(vhost.queues.values())
        values = yield from vhost_values(vhost, list(self._broker().connections), lengths)
        shown = self._with_rates(VHOST_NAMES, values, self._series.get(vhost), ranges)
        stats = _stats(shown, [PUBLISHES, DELIVERIES], values, VHOST_NAMES)
        found = {name: value for name, value in shown.items() if name.removesuffix("_details") in (*LENGTHS, *OCTETS)}
        return {**found, "message_stats": stats} if stats else found

    def totals(self, ranges: Mapping[str, Range] = NO_RANGES, only: Sequence[VirtualHost] | None = None) -> Steps:
        """Steps that return fields of the broker: `message_stats`, `queue_totals`, `churn_rates`.

        `only`: messages are those of these virtual hosts, as RabbitMQ counts them for a user who is no monitor.
        """
        broker = self._broker()
        if only is None:
            lengths = yield from lengths_of(broker.virtual_hosts.queues())
            return self._totals_of((yield from broker_values(broker, lengths)), ranges)
        sums = [0] * len(VHOST_NAMES)
        for vhost in only:
            lengths = yield from lengths_of(vhost.queues.values())
            values = yield from vhost_values(vhost, list(broker.connections), lengths)
            sums = list(map(add, sums, values))
        series = SumOfSeries([found for vhost in only if (found := self._series.get(vhost)) is not None])
        shown = self._with_rates(VHOST_NAMES, sums, series, ranges)
        stats = _stats(shown, [PUBLISHES, DELIVERIES], sums, VHOST_NAMES)
        churn = dict.fromkeys(BROKER_NAMES, 0) | dict(zip(CHURN, churn_values(broker)))
        whole = self._totals_of(list(churn.values()), ranges)
        messages = {**stats, **whole["message_stats"]}
        return {**whole, "message_stats": messages, "queue_totals": _with_details(shown, LENGTHS)}

    def totals_at_last_sample(self) -> dict[str, Any]:
        """As `totals`, but from the last sample, and so without steps."""
        series = self._broker_series
        return self._totals_of((0,) * len(BROKER_NAMES) if series is None else series.latest, NO_RANGES)

    def _totals_of(self, values: Sequence[int], ranges: Mapping[str, Range]) -> dict[str, Any]:
        shown = self._with_rates(BROKER_NAMES, values, self._broker_series, ranges)
        stats = _stats(shown, [PUBLISHES, DELIVERIES], values, BROKER_NAMES)
        return {
            "message_stats": {**stats, **_with_details(shown, DISK)},
            "queue_totals": _with_details(shown, LENGTHS),
            "churn_rates": _with_details(shown, CHURN),
        }

    def churn(self) -> dict[str, Any]:
        """As the field `churn_rates` of `totals`, for the node."""
        values = dict.fromkeys(BROKER_NAMES, 0) | dict(zip(CHURN, churn_values(self._broker())))
        shown = self._with_rates(BROKER_NAMES, list(values.values()), self._broker_series, NO_RANGES)
        return _with_details(shown, CHURN)

    def _with_rates(
        self,
        names: Sequence[str],
        values: Sequence[int],
        series: Series | SumOfSeries | None,
        ranges: Mapping[str, Range],
    ) -> dict[str, Any]:
        """Each value under its name, and its rate under `NAME_details`, with samples if a range asks for them."""
        found: dict[str, Any] = {}
        for index, (name, value) in enumerate(zip(names, values)):
            found[name] = value
            details: dict[str, Any] = {"rate": 0.0 if series is None else series.rate(index)}
            wanted = ranges.get(_RANGE_KINDS.get(name, ""))
            if wanted is not None:
                details |= self._samples(index, value, series, wanted, is_gauge=name in _GAUGES)
            found[f"{name}_details"] = details
        return found

    def _samples(
        self, index: int, value: int, series: Series | SumOfSeries | None, wanted: Range, *, is_gauge: bool
    ) -> dict[str, Any]:
        """The samples of a range, newest first. Their times are multiples of the step.

        The newest sample of a gauge has a time in the future, and the present value.
        """
        clock = self._broker().context.clock
        wall_ms, step_ms = clock.wall_ms(), wanted.step * 1000
        end_ms = wall_ms // step_ms * step_ms + (step_ms if is_gauge and wall_ms % step_ms else 0)
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


def _resolutions(number: int) -> Resolutions:
    """The resolutions of a connection, channel or exchange, by its index in the list."""
    return TEN_MINUTES if number < TEN_MINUTES_MAX else MINUTE


def _with_details(shown: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The fields of these names, and those with their rates."""
    return {key: shown[key] for name in names for key in (name, f"{name}_details")}


def _stats(
    shown: Mapping[str, Any], families: Sequence[Sequence[str]], values: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    """The field `message_stats`. A family is left out while all its counters are 0 (management page 5.2)."""
    by_name = dict(zip(names, values))
    found: dict[str, Any] = {}
    for family in families:
        if any(by_name[name] for name in family):
            found |= _with_details(shown, family)
    return found
