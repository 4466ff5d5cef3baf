"""Samples, rates and ranges, by the broker's own clock. Source: management page 5."""

from datetime import datetime
from typing import Any

import pytest

from leveret.console import steps
from leveret.console.counters import broker_values, vhost_values
from leveret.console.listing import sort_key
from leveret.console.node_facts import HostFacts
from leveret.console.ranges import Range
from leveret.console.resources import queues
from leveret.console.sampler import Sampler
from leveret.console.series import DAY, MINUTE, Series
from leveret.engine import Broker, Client, Envelope, ManualClock, User
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.operator.steps import finished
from leveret.testing.harness import Harness


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> Broker:
    return Broker(clock)


@pytest.fixture
def client(broker: Broker) -> Client:
    return broker.connections.open("/", User("guest"), name="127.0.0.1:1 -> 127.0.0.1:2", flush=lambda: None)


def _look(sampler: Sampler, clock: ManualClock, seconds: float = 1.0) -> None:
    clock.advance_ns(round(seconds * 1e9))
    for _ in sampler.sample_all():
        pass


def test_a_series_knows_what_changed_when() -> None:
    """The rate is that of the last two looks; what did not change is not noted."""
    series = Series(0, (0, 5), DAY)
    series.record(1000, (10, 5))
    assert (series.rate(0), series.rate(1)) == (10.0, 0.0)
    series.record(2000, (10, 5))
    assert series.rate(0) == 0.0 and series.changed_ms == 1000
    series.record(2500, (5, 5))
    assert series.rate(0) == -10.0
    assert [series.at(0, at_ms) for at_ms in (-1, 0, 999, 1000, 2400)] == [None, 0, 0, 10, 10]


def test_a_series_is_bounded() -> None:
    """However long it runs; what is older comes from the coarser levels."""
    series = Series(0, (0,), DAY)
    for second in range(1, 20_000):
        series.record(second * 1000, (second,))
    assert all(len(level.times) < level.count_max * 2 for level in series._resolutions)
    assert series.at(0, 19_990_000) == 19_990
    old = series.at(0, 1_000_000)
    assert old is not None and 940 <= old <= 1000
    short = Series(0, (0,), MINUTE)
    for second in range(1, 1000):
        short.record(second * 1000, (second,))
    assert short.at(0, 100_000) is None


def test_a_coarse_resolution_keeps_a_change_shortly_after_a_sample() -> None:
    """Two seconds after the first one, then nothing for a quarter of an hour: as long, the new value is shown."""
    series = Series(0, (0,), DAY)
    series.record(2_000, (100,))
    for second in range(3, 1_000):
        series.record(second * 1000, (100,))
    for second in range(1_000, 2_000):
        series.record(second * 1000, (second,))
    assert series._resolutions[0].times[0] > 500_000
    assert [series.at(0, at_ms) for at_ms in (0, 10_000, 500_000, 999_000)] == [0, 100, 100, 100]


def test_another_broker_has_samples_of_its_own(clock: ManualClock) -> None:
    """After a takeover a node shows nothing of the broker that led before, and no rate below zero."""
    brokers = [Broker(clock), Broker(clock)]
    client = brokers[0].connections.open("/", User("guest"), name="a", flush=lambda: None)
    client.vhost.queues.declare("q", client=client)
    route = client.vhost.router.route("", "q", client.user)
    session = client.open_session(1)
    sampler = Sampler(lambda: brokers[0])
    for _ in range(2):
        session.publish(route, Envelope("", "q"), [b"x"] * 10, mandatory=False)
        _look(sampler, clock)
    assert sampler.totals_at_last_sample()["message_stats"]["publish_details"]["rate"] == 10.0
    del brokers[0]
    _look(sampler, clock)
    assert sampler.totals_at_last_sample()["queue_totals"]["messages_details"]["rate"] == 0.0
    assert sampler.since_ms() == clock.wall_ms()


def test_past_channels_count_in_their_virtual_host_alone(broker: Broker, client: Client) -> None:
    """What was published there stays in its sums when the channel is closed."""
    other = broker.virtual_hosts.create("other")
    client.vhost.queues.declare("q", client=client)
    session = client.open_session(1)
    route = client.vhost.router.route("", "q", client.user)
    session.publish(route, Envelope("", "q"), [b"x"] * 3, mandatory=False)
    session.close()
    sums = [finished(vhost_values(vhost, [client], (0, 0)))[0] for vhost in (client.vhost, other)]
    assert sums == [3, 0]


def test_when_samples_begin(broker: Broker, client: Client, clock: ManualClock) -> None:
    """With the first activity of a queue; of the broker with the first look. Until then it is not known."""
    sampler = Sampler(lambda: broker)
    queue = client.vhost.queues.declare("q", client=client)
    assert (sampler.since_ms(), sampler.since_ms(queue)) == (None, None)
    _look(sampler, clock)
    began_ms = clock.wall_ms()
    assert (sampler.since_ms(), sampler.since_ms(queue)) == (began_ms, None)
    route = client.vhost.router.route("", "q", client.user)
    client.open_session(1).publish(route, Envelope("", "q"), [b"x"], mandatory=False)
    _look(sampler, clock, 7.0)
    _look(sampler, clock, 2.0)
    assert (sampler.since_ms(), sampler.since_ms(queue)) == (began_ms, began_ms + 7000)


def test_the_rate_by_which_a_list_is_sorted(broker: Broker, client: Client, clock: ManualClock) -> None:
    """It is that of the row, for each field of a rate that a row can have."""
    sampler = Sampler(lambda: broker)
    queue = client.vhost.queues.declare("q", client=client)
    assert [sampler.rate(queue, name) for name in queues._RATES.values()] == [0.0] * len(queues._RATES)
    session = client.open_session(1)
    session.consume(queue, "t", no_ack=False, exclusive=False, arguments={})
    route = client.vhost.router.route("", "q", client.user)
    session.publish(route, Envelope("", "q"), [b"x"], mandatory=False)
    _look(sampler, clock)
    session.publish(route, Envelope("", "q"), [b"x"] * 6, mandatory=False)
    broker.end_turn()
    _look(sampler, clock, 2.0)
    row = sampler.queue(queue)
    by_row = {field: sort_key(field)(row)[1] for field in queues._RATES}
    assert by_row == {field: sampler.rate(queue, name) for field, name in queues._RATES.items()}
    assert by_row["message_stats.publish_details.rate"] == by_row["messages_details.rate"] == 3.0


def test_rates_of_a_queue(broker: Broker, client: Client, clock: ManualClock) -> None:
    """Families appear with their first event; counts are of the moment, rates of the last two looks."""
    sampler = Sampler(lambda: broker)
    queue = client.vhost.queues.declare("q", client=client)
    _look(sampler, clock)
    assert "message_stats" not in sampler.queue(queue)
    session = client.open_session(1)
    route = client.vhost.router.route("", "q", client.user)
    session.publish(route, Envelope("", "q"), [b"x"] * 4, mandatory=False)
    _look(sampler, clock)
    session.publish(route, Envelope("", "q"), [b"x"] * 6, mandatory=False)
    _look(sampler, clock, 2.0)
    found = sampler.queue(queue)
    assert found["message_stats"] == {"publish": 10, "publish_details": {"rate": 3.0}}
    assert found["messages_details"] == {"rate": 3.0} and "idle_since" not in found
    session.get(queue, no_ack=True)
    session.get(queue, no_ack=False)
    stats = sampler.queue(queue)["message_stats"]
    names = ("get", "get_no_ack", "deliver", "deliver_no_ack", "deliver_get", "ack", "redeliver")
    assert [stats[name] for name in names] == [1, 1, 0, 0, 2, 0, 0]
    session.ack(2)
    assert sampler.queue(queue)["message_stats"]["ack"] == 1


def test_the_share_of_time_in_which_nothing_waits_for_consumers(
    broker: Broker, client: Client, clock: ManualClock
) -> None:
    """Who has all that there is has room enough, however full its prefetch; else a share of the last looks."""
    sampler = Sampler(lambda: broker)
    queue = client.vhost.queues.declare("q", client=client)
    assert sampler.queue(queue)["consumer_utilisation"] == 0  # nobody is there
    session = client.open_session(1)
    session.set_prefetch(1, total=False)
    session.consume(queue, "c", no_ack=False, exclusive=False, arguments={})
    route = client.vhost.router.route("", "q", client.user)

    def publish() -> None:
        session.publish(route, Envelope("", "q"), [NATIVE.join(encode_header(1), b"x")], mandatory=False)
        broker.end_turn()

    publish()
    _look(sampler, clock)
    assert queue.unacked == 1 and sampler.queue(queue)["consumer_utilisation"] == 1
    publish()
    shares = []
    for _ in range(4):
        session.get(client.vhost.queues.declare("other", client=client), no_ack=True)  # something happens
        _look(sampler, clock)
        shares.append(sampler.queue(queue)["consumer_utilisation"])
    assert shares == sorted(shares, reverse=True) and 0 < shares[-1] < shares[0] < 1
    assert sampler.queue(queue)["consumer_capacity"] == shares[-1]


def test_idle_since(broker: Broker, client: Client, clock: ManualClock) -> None:
    """Absent while something happens, then the time when it stopped (management page 4)."""
    sampler = Sampler(lambda: broker)
    queue = client.vhost.queues.declare("q", client=client)
    session = client.open_session(1)
    session.publish(client.vhost.router.route("", "q", client.user), Envelope("", "q"), [b"x"], mandatory=False)
    _look(sampler, clock)
    assert "idle_since" not in sampler.queue(queue)
    stopped_ms = clock.wall_ms()
    for _ in range(5):
        _look(sampler, clock)
    assert datetime.fromisoformat(sampler.queue(queue)["idle_since"]).timestamp() * 1000 == stopped_ms


def test_while_nothing_happens_little_is_looked_at(broker: Broker, client: Client, clock: ManualClock) -> None:
    """Rates are 0 with the first quiet look; then most looks end at once, until something happens."""
    sampler = Sampler(lambda: broker)
    queue = client.vhost.queues.declare("q", client=client)
    session = client.open_session(1)
    route = client.vhost.router.route("", "q", client.user)

    def steps() -> int:
        clock.advance_ns(1_000_000_000)
        return sum(1 for _ in sampler.sample_all())

    def rate() -> float:
        details: dict[str, float] = sampler.queue(queue)["message_stats"]["publish_details"]
        return details["rate"]

    steps()
    session.publish(route, Envelope("", "q"), [b"x"] * 2, mandatory=False)
    steps()
    session.publish(route, Envelope("", "q"), [b"x"] * 2, mandatory=False)
    assert steps() and rate() == 2.0
    assert steps() and rate() == 0.0
    assert [bool(steps()) for _ in range(8)] == [False, False, False, True, False, False, False, False]
    session.publish(route, Envelope("", "q"), [b"x"], mandatory=False)
    assert steps() and rate() == pytest.approx(0.2, abs=0.1)


def test_the_whole_never_falls(broker: Broker, client: Client, clock: ManualClock) -> None:
    """Closed channels, deleted queues and virtual hosts leave what they counted."""
    sampler = Sampler(lambda: broker)
    vhost = broker.virtual_hosts.create("other")
    other = broker.connections.open("other", User("guest"), name="o", flush=lambda: None)
    vhost.queues.declare("q", client=other)
    session = other.open_session(1)
    session.select_confirms()
    session.publish(vhost.router.route("", "q", other.user), Envelope("", "q"), [b"x"] * 3, mandatory=False)
    assert session.confirms is not None
    session.confirms.take()
    before = finished(sampler.totals())
    assert (before["message_stats"]["publish"], before["message_stats"]["confirm"]) == (3, 3)
    session.close()
    assert finished(sampler.totals())["message_stats"] == before["message_stats"]
    assert finished(sampler.vhost(vhost))["message_stats"]["publish"] == 3
    broker.virtual_hosts.delete("other")
    while broker.end_turn():
        pass
    assert finished(sampler.totals())["message_stats"] == before["message_stats"]
    assert finished(sampler.totals())["churn_rates"]["connection_closed"] == 1


def test_totals_of_some_virtual_hosts(broker: Broker, client: Client, clock: ManualClock) -> None:
    """Messages, rates and samples are sums of theirs; churn is the broker's."""
    sampler = Sampler(lambda: broker)
    some = []
    for name, count in (("one", 1), ("two", 2), ("hidden", 4)):
        vhost = broker.virtual_hosts.create(name)
        other = broker.connections.open(name, User("guest"), name=name, flush=lambda: None)
        vhost.queues.declare("q", client=other)
        some.append((vhost, other.open_session(1), vhost.router.route("", "q", other.user), count))
    clock.advance_ns(-clock.wall_ms() % 60_000 * 1_000_000)
    for _ in range(10):
        for _, session, route, count in some:
            session.publish(route, Envelope("", "q"), [b"x"] * count, mandatory=False)
        _look(sampler, clock)
    ranges = {"lengths": Range(10, 5), "msg_rates": Range(10, 10)}
    found = finished(sampler.totals(ranges, [vhost for vhost, *_ in some[:2]]))
    details = found["queue_totals"]["messages_details"]
    assert (found["queue_totals"]["messages"], details["rate"]) == (30, 3.0)
    assert [one["sample"] for one in details["samples"]] == [30, 15, 0]
    stats = found["message_stats"]
    assert (stats["publish"], stats["publish_details"]["rate"], stats["disk_reads"]) == (30, 3.0, 0)
    assert [one["sample"] for one in stats["publish_details"]["samples"]] == [30, 0]
    assert found["churn_rates"] == finished(sampler.totals(ranges))["churn_rates"]
    nothing = finished(sampler.totals(ranges, []))
    assert nothing["queue_totals"]["messages"] == 0 and nothing["message_stats"].keys() == {
        *("disk_reads", "disk_reads_details", "disk_writes", "disk_writes_details")
    }


def test_exchanges_count_what_goes_in_and_out(broker: Broker, client: Client, clock: ManualClock) -> None:
    """Out is counted once for each queue; nobody to take it: in alone."""
    sampler = Sampler(lambda: broker)
    vhost = client.vhost
    for name in ("a", "b"):
        vhost.queues.declare(name, client=client)
        vhost.bindings.add("queue", name, "amq.fanout", "", {}, client)
    session = client.open_session(1)
    session.publish(
        vhost.router.route("amq.fanout", "", client.user), Envelope("amq.fanout", ""), [b"x"] * 2, mandatory=False
    )
    session.publish(vhost.router.route("", "nobody", client.user), Envelope("", "nobody"), [b"x"], mandatory=False)
    stats = sampler.exchange(vhost.exchanges["amq.fanout"])["message_stats"]
    assert (stats["publish_in"], stats["publish_out"]) == (2, 4)
    stats = sampler.exchange(vhost.exchanges[""])["message_stats"]
    assert (stats["publish_in"], stats["publish_out"]) == (1, 0)
    assert sampler.exchange(vhost.exchanges["amq.topic"]) == {}
    stats = sampler.session(session)["message_stats"]
    assert (stats["publish"], stats["drop_unroutable"], stats["return_unroutable"]) == (3, 1, 0)


def test_ranges(broker: Broker, client: Client, clock: ManualClock) -> None:
    """age 20, incr 5: five samples, the newest first (management page 5.3)."""
    sampler = Sampler(lambda: broker)
    queue = client.vhost.queues.declare("q", client=client)
    session = client.open_session(1)
    route = client.vhost.router.route("", "q", client.user)
    clock.advance_ns(-clock.wall_ms() % 60_000 * 1_000_000)
    for _ in range(20):
        session.publish(route, Envelope("", "q"), [b"x"], mandatory=False)
        _look(sampler, clock)
    found = sampler.queue(queue, {"lengths": Range(20, 5), "msg_rates": Range(10, 10)})
    details = found["messages_details"]
    assert [one["sample"] for one in details["samples"]] == [20, 15, 10, 5, 0]
    assert details["avg_rate"] == 1.0 and details["avg"] == 10.0
    times = [one["timestamp"] for one in details["samples"]]
    assert times == [clock.wall_ms() - seconds * 1000 for seconds in (0, 5, 10, 15, 20)]
    assert [one["sample"] for one in found["message_stats"]["publish_details"]["samples"]] == [20, 10]


def test_what_is_gone_is_forgotten(broker: Broker, client: Client, clock: ManualClock) -> None:
    """With the next look."""
    sampler = Sampler(lambda: broker)
    queue = client.vhost.queues.declare("q", client=client)
    session = client.open_session(1)
    session.publish(client.vhost.router.route("", "q", client.user), Envelope("", "q"), [b"x"], mandatory=False)
    _look(sampler, clock)
    assert queue in sampler._series and client in sampler._series
    client.vhost.queues.delete("q", client)
    client.close()
    _look(sampler, clock)
    assert queue not in sampler._series and client not in sampler._series and session not in sampler._series


def test_a_mixed_run_is_counted_by_its_exchanges(broker: Broker, client: Client, clock: ManualClock) -> None:
    """One addition for a run of one exchange; otherwise each gets its own."""
    sampler = Sampler(lambda: broker)
    vhost = client.vhost
    queue = vhost.queues.declare("q", client=client)
    session = client.open_session(1)
    one, other = Envelope("", "q"), Envelope("amq.direct", "q")
    session.publish_mixed([queue] * 3, [one] * 3, [b"x"] * 3)
    session.publish_mixed([queue] * 3, [one, other, one], [b"x"] * 3)
    assert sampler.exchange(vhost.exchanges[""])["message_stats"]["publish_in"] == 5
    assert sampler.exchange(vhost.exchanges["amq.direct"])["message_stats"]["publish_out"] == 1
    assert sampler.session(session)["message_stats"]["publish"] == 6


def test_sums_do_not_fall_when_a_channel_closes() -> None:
    """Each count of its sessions: publishes of each fate, confirms, deliveries of each kind, acknowledgements."""
    world = Harness()
    world.queue("q")
    session = world.client.open_session()
    session.select_confirms()
    world.publish("a", "b", "c", "d", key="q", by=session)
    world.publish("nobody's", key="nowhere", by=session)
    assert session.confirms is not None and session.confirms.take()
    for no_ack in (True, False):
        session.get(world.vhost.queues["q"], no_ack=no_ack)
    world.consume(world.vhost.queues["q"], "t", by=session)
    session.ack(session.next_tag - 1, multiple=True)
    before = finished(vhost_values(world.vhost, [world.client], (0, 0)))[:12]
    assert before[:2] == (5, 5) and sum(before[2:6]) > 2
    session.close()
    assert finished(vhost_values(world.vhost, [world.client], (0, 0)))[:12] == before
    assert finished(broker_values(world.broker, (0, 0)))[:12] == before


def test_a_channel_that_closes_while_they_are_summed_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the sum would rise by its counts and fall with the next sample: a rate below zero."""
    monkeypatch.setattr(steps, "STEP_S", -1.0)
    for values in (
        lambda world: vhost_values(world.vhost, [world.client], (0, 0)),
        lambda world: broker_values(world.broker, (0, 0)),
    ):
        world = Harness()
        world.queue("q")
        session = world.client.open_session()
        world.publish("a", "b", key="q", by=session)
        before = finished(values(world))
        summing = values(world)
        next(summing)
        session.close()
        assert finished(summing)[:12] == before[:12]


def test_samples_of_the_broker_are_of_all_virtual_hosts(broker: Broker, client: Client, clock: ManualClock) -> None:
    """Ready and unacknowledged messages of each."""
    sampler = Sampler(lambda: broker)
    broker.virtual_hosts.create("other")
    queue = client.vhost.queues.declare("q", client=client)
    session = client.open_session(1)
    session.publish(client.vhost.router.route("", "q", client.user), Envelope("", "q"), [b"x"] * 3, mandatory=False)
    session.get(queue, no_ack=False)
    _look(sampler, clock)
    totals = sampler.totals_at_last_sample()["queue_totals"]
    assert (totals["messages_ready"], totals["messages_unacknowledged"], totals["messages"]) == (2, 1, 3)


def test_ten_minutes_of_a_connection_a_channel_and_an_exchange(
    broker: Broker, client: Client, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first ones; others have a minute, and say so: nothing is drawn before their oldest sample."""
    monkeypatch.setattr("leveret.console.sampler.TEN_MINUTES_MAX", 1)
    sampler = Sampler(lambda: broker)
    vhost, session, other = client.vhost, client.open_session(1), client.open_session(2)
    exchange = vhost.exchanges["amq.topic"]
    vhost.queues.declare("q", client=client)
    vhost.bindings.add("queue", "q", "amq.topic", "q", {})
    route = vhost.router.route("amq.topic", "q", client.user)
    began_ms = clock.wall_ms() + 1000
    for _ in range(600):
        for one in (session, other):
            one.publish(route, Envelope("amq.topic", "q"), [b"x"], mandatory=False)
        client.connection_info.octets_in += 100
        _look(sampler, clock)
    ten_minutes = {kind: Range(590, 10) for kind in ("msg_rates", "data_rates")}

    def middle(details: dict[str, Any]) -> int:
        sample: int = next(one["sample"] for one in details["samples"] if one["timestamp"] <= began_ms + 300_000)
        return sample

    exchange_stats = sampler.exchange(exchange, ten_minutes)["message_stats"]
    assert 560 <= middle(exchange_stats["publish_in_details"]) <= 602
    assert 280 <= middle(sampler.session(session, ten_minutes)["message_stats"]["publish_details"]) <= 301
    assert 28_000 <= middle(sampler.client(client, ten_minutes)["recv_oct_details"]) <= 30_100
    assert sampler.since_ms(session) == sampler.since_ms(exchange) == sampler.since_ms(client) == began_ms
    assert middle(sampler.session(other, ten_minutes)["message_stats"]["publish_details"]) == 0
    since_ms = sampler.since_ms(other)
    assert since_ms is not None and began_ms + 470_000 <= since_ms <= clock.wall_ms() - 60_000


def test_samples_of_the_node_and_of_what_is_opened_and_closed(broker: Broker, clock: ManualClock) -> None:
    """A day of memory, descriptors, sockets and disk, each five seconds at most; rates of connections and queues."""
    asked = 0

    def node() -> tuple[HostFacts, int]:
        nonlocal asked
        asked += 1
        return HostFacts(1, 10 + asked, 100, 1_000_000 * asked, 0, 5_000_000, 2, 1), 3

    sampler = Sampler(lambda: broker, node)
    client = broker.connections.open("/", User("guest"), name="c", flush=lambda: None)
    for number in range(60):
        client.vhost.queues.declare(f"q{number}", client=client)
        _look(sampler, clock)
    assert asked == 12
    view = {"mem_used": 99, "fd_used": 30, "sockets_used": 4, "disk_free": 5_000_000}
    rated = {**view, **{f"{name}_details": {"rate": 0.5} for name in view}}
    assert sampler.of_node(rated, {}) == {}
    found = sampler.of_node(rated, {"node_stats": Range(30, 10)})
    memory = found["mem_used_details"]
    assert memory["rate"] == 0.5 and [one["sample"] for one in memory["samples"]][1:] == [
        10_000_000,
        8_000_000,
        6_000_000,
    ]
    assert [one["sample"] for one in found["sockets_used_details"]["samples"]] == [4] * 4
    assert found["leveret"]["sampled_since_ms"] == clock.wall_ms() - 59_000
    churn = finished(sampler.totals({"msg_rates": Range(30, 10)}))["churn_rates"]
    assert [one["sample"] for one in churn["queue_declared_details"]["samples"]] == [60, 50, 40, 30]
    assert churn["queue_declared_details"]["rate"] == 1.0
