"""The usage tree: what charges it, what blocks publishers, and in which order they go on. Queues page E.1, E.4, E.5."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flow_bench import MIB, FlowBench, Publisher, make_content, saying

from leveret.engine import Envelope, PropertySummary
from leveret.engine.events import EventKind
from leveret.engine.flow.control import BlockedEvent
from leveret.engine.flow.control import _fitting as fitting
from leveret.engine.users.access import INTERNAL_LINK
from leveret.settings import Flow, SettingsRepository, SystemUsage, WholeLimits, entry
from leveret.testing.harness import GUEST, Harness, arguments_of, messages
from leveret.testing.memory_pager import MemoryPager


def test_the_numeric_trace() -> None:
    """Queues page E.5.1, step by step."""
    bench = FlowBench(memory_limit=MIB, cursor="vm")
    a, b = Publisher(bench, "A"), Publisher(bench, "B")
    a.publish(*[make_content(1100)] * 953)
    node = bench.broker.flow.nodes()[-1]
    assert (node.used, node.is_full, node.low) == (1_048_300, False, 983_040)
    a.publish(make_content(1100))
    assert (node.used, node.is_full, a.published) == (1_049_400, True, 954)
    a.publish(*[make_content(1100)] * 3)
    b.publish(*[make_content(1100)] * 3)
    assert (a.published, b.published, node.used) == (954, 0, 1_049_400)
    assert [blocked.client.name for blocked in bench.broker.flow.blocked()] == ["A", "B"]
    bench.take(30)
    assert (node.used, node.is_full, a.published, b.published) == (1_016_400, True, 954, 0)
    bench.take(31)
    assert (node.used, node.is_full, a.published, b.published) == (988_900, False, 957, 3)
    assert bench.broker.flow.blocked() == []


@pytest.mark.parametrize("settings", [{"memory_limit": 10_000, "cursor": "vm"}, {"max_size_bytes": 10_000}])
def test_what_is_full_holds_and_its_room_is_shared_in_turn(settings: dict[str, object]) -> None:
    """Each blocked connection gets a quantum in its turn, however much it holds (queues page G.E, row E11)."""
    if "max_size_bytes" in settings:
        settings["address_full_policy"] = "BLOCK"
    bench = FlowBench(minimum_message_size=0, **settings)
    filler = Publisher(bench, "filler")
    filler.publish(make_content(20_000))
    many, few = Publisher(bench, "many"), Publisher(bench, "few")
    many.publish(*[make_content(30_000)] * 20)
    few.publish(*[make_content(30_000)] * 4)
    assert many.published == few.published == 0
    for _ in range(8):
        bench.take(bench.q.ready_count)
        assert abs(many.published - few.published) <= 3  # a quantum, and the message that goes over it
    assert few.published == 4


@pytest.mark.parametrize(("limit", "freed", "rounds"), [(2000, 100, 20), (20, 1, 200)])
def test_who_is_cut_short_by_the_limit_goes_on_first(limit: int, freed: int, rounds: int) -> None:
    """What is freed at once is no multiple of a quantum: nobody gets less for that (E.5, the starvation bound)."""
    bench = FlowBench(max_size_messages=limit, address_full_policy="BLOCK")
    Publisher(bench, "filler").publish(*[make_content(100)] * limit)
    publishers = [Publisher(bench, name) for name in "ab"]
    for one in publishers:
        one.publish(*[make_content(100)] * 1500)
    for _ in range(rounds):
        bench.take(freed)
        published = [one.published for one in publishers]
        assert max(published) - min(published) <= 64
    assert sum(published) == freed * rounds


def test_a_large_message_waits_for_as_many_quanta_as_it_takes() -> None:
    bench = FlowBench(memory_limit=MIB, cursor="vm")
    first, large = Publisher(bench, "first"), Publisher(bench, "large")
    first.publish(make_content(2 * MIB))
    large.publish(make_content(3 * MIB), make_content(100))
    bench.take(1)
    assert (large.published, bench.q.ready_count) == (1, 1)
    bench.take(1)
    assert large.published == 2


def test_messages_are_counted_where_the_limit_is_in_messages() -> None:
    """What is out counts (address-settings page 3.3); below 5 % less, and at least one, publishers go on."""
    bench = FlowBench(max_size_messages=40, address_full_policy="BLOCK")
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(100)] * 100)
    assert publisher.published == 40
    tags = [bench.consumer.get(bench.q, no_ack=False) for _ in range(10)]
    bench.end_turn()
    assert publisher.published == 40
    for tag in tags[:2]:
        assert tag is not None
        bench.consumer.ack(tag[0])
    bench.end_turn()
    assert publisher.published == 42


def test_a_publish_to_several_queues_waits_for_the_strictest() -> None:
    """All or nothing, before any queue has it (queues page E.2)."""
    bench = FlowBench(memory_limit=5_000, cursor="vm")
    bench.vhost.queues.declare("free", client=None, durable=True, arguments={})
    bench.vhost.bindings.add("queue", "q", "amq.fanout", "", {})
    bench.vhost.bindings.add("queue", "free", "amq.fanout", "", {})
    publisher = Publisher(bench, "p")
    route = bench.vhost.router.route("amq.fanout", "", GUEST)
    envelope = Envelope("amq.fanout", "")
    offer = publisher.session.publish_with_room(route, envelope, [make_content(2_000)] * 10, mandatory=False)
    assert (offer.taken, offer.full) == (3, None)
    offer = publisher.session.publish_with_room(route, envelope, [make_content(2_000)] * 7, mandatory=False)
    assert offer.taken == 0
    assert offer.full is not None
    assert offer.full.node.destination == "queue 'q' in vhost '/'"
    assert bench.vhost.queues["free"].ready_count == 3


@pytest.mark.parametrize("order", [("q", "other", "later"), ("later", "q", "other"), ("other", "later", "q")])
def test_of_several_full_queues_the_one_that_refuses_decides(order: tuple[str, ...]) -> None:
    """Whichever of them the route names first (queues page E.2)."""
    bench = FlowBench()
    bench.broker.reloading.replace_settings(
        SettingsRepository(
            [
                entry("q", memory_limit=1_000, cursor="vm"),
                entry("later", memory_limit=1_000, cursor="vm", send_fail_if_no_space_after_ms=500),
                entry("other", memory_limit=1_000, cursor="vm", send_fail_if_no_space=True),
            ]
        )
    )
    for name in ("later", "other"):
        bench.vhost.queues.declare(name, client=None, durable=True, arguments={})
    filler = Publisher(bench, "filler")
    publisher = Publisher(bench, "p")
    offered = []
    for count, name in enumerate(order, 1):
        filler.session.publish_with_room(bench.route(name), Envelope("", name), [make_content(2_000)], mandatory=False)
        bench.vhost.bindings.add("queue", name, "amq.fanout", "", {})
        route = bench.vhost.router.route("amq.fanout", "", GUEST)
        full = publisher.session.publish_with_room(
            route, Envelope("amq.fanout", ""), [make_content(100)], mandatory=False
        ).full
        assert full is not None
        offered.append((full.fails, full.fails_after_ms))
        expected = {"q": (False, 0), "later": (False, 500), "other": (True, 0)}
        rank = ["other", "later", "q"]
        assert offered[-1] == expected[min(order[:count], key=rank.index)]


def test_the_limits_of_the_broker_are_above_those_of_queues() -> None:
    system = SystemUsage(memory=10_000, store=0, temp=0)
    bench = FlowBench(system=system, memory_limit=MIB, cursor="vm")
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_500)] * 10)
    assert publisher.published == 7
    assert publisher.full is not None
    node = publisher.full.node
    assert (node.destination, node.limit_name, node.is_root) == ("broker", "memory", True)
    bench.take(7)
    assert publisher.published == 10


def test_a_full_broker_blocks_and_pages_nothing_out_unless_the_address_says_so() -> None:
    """Its memory is for what consumers get next, so publishers wait; only a queue's own limit pages by default."""
    bench = FlowBench(system=SystemUsage(memory=10_000, store=0, temp=0), pager=MemoryPager(MIB), memory_limit=MIB)
    publisher = Publisher(bench, "p")
    bench.summary = PropertySummary(persistent=True)
    for _ in range(10):
        publisher.publish(make_content(1_500))
        bench.end_turn()
    assert publisher.published == 7


def test_what_never_leaves_memory_does_not_wait_for_the_temp_store() -> None:
    """Transient messages of an address with the cursor vm."""
    bench = FlowBench(system=SystemUsage(memory=0, store=0, temp=5_000), pager=MemoryPager(MIB), cursor="vm")
    bench.broker.flow.temp_changed(5_000)
    publisher = Publisher(bench, "p")
    publisher.publish(make_content(1_500))
    assert publisher.published == 1


def test_a_queue_that_keeps_its_messages_holds_nobody() -> None:
    """What is acknowledged stays in it, so nothing would ever make room below a memory limit."""
    bench = FlowBench(memory_limit=2_000, cursor="vm", default_non_destructive=True)
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_500)] * 10)
    assert publisher.published == 10


def test_what_is_paged_out_leaves_room_under_a_limit_on_all_addresses() -> None:
    """An address that pages counts with what it has in memory."""
    bench = FlowBench(whole=WholeLimits(messages_max=4), pager=MemoryPager(MIB))
    bench.summary = PropertySummary(persistent=True)
    publisher = Publisher(bench, "p")
    for _ in range(10):
        publisher.publish(make_content(1_500))
        bench.end_turn()
    assert publisher.published == 10
    assert [node.used for node in bench.broker.flow.nodes()] == [4]


def test_a_limit_of_the_broker_that_is_gone_holds_nobody() -> None:
    """After a reload without it, also if no queue fed it: the temp store."""
    bench = FlowBench(system=SystemUsage(memory=0, store=0, temp=5_000), producer_flow_control=False)
    publisher = Publisher(bench, "p")
    bench.broker.flow.temp_changed(5_000)
    publisher.publish(make_content(1_500))
    assert publisher.published == 0
    bench.configure(producer_flow_control=False)
    assert publisher.published == 1
    assert bench.broker.flow.nodes() == [] and not bench.broker.flow.is_on


def test_a_store_limit_holds_what_is_stored_also_without_producer_flow_control() -> None:
    """Queues page E.4, row 10; queues page, row E17."""
    system = SystemUsage(memory=3_000, store=10_000, temp=0)
    bench = FlowBench(system=system, producer_flow_control=False)
    transient, stored = Publisher(bench, "t"), Publisher(bench, "s")
    transient.publish(*[make_content(1_500)] * 10)
    assert transient.published == 10
    bench.summary = PropertySummary(persistent=True)
    stored.publish(*[make_content(1_500)] * 10)
    assert stored.published == 7
    assert stored.full is not None
    assert stored.full.node.limit_name == "store"
    bench.summary = PropertySummary()
    transient.publish(make_content(1_500))
    assert transient.published == 11, "a full store concerns only what it takes"


def test_a_deleted_queue_holds_nobody() -> None:
    bench = FlowBench(memory_limit=2_000, cursor="vm")
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_500)] * 5)
    assert publisher.published == 2
    bench.vhost.queues.delete("q", None)
    bench.end_turn()
    assert publisher.published == 5
    assert bench.broker.flow.nodes() == []
    assert bench.broker.context.counters.unroutable == 3


@pytest.mark.parametrize(
    ("settings", "published"),
    [
        ({"memory_limit": 4_000, "cursor": "vm"}, 3),
        ({}, 10),
        ({"memory_limit": 4_000, "producer_flow_control": False}, 10),
        ({"memory_limit": 2_000, "producer_flow_control": False}, 10),
    ],
    ids=["more", "none", "switched off", "only switched off"],
)
def test_a_reload_lets_go_what_is_held(settings: dict[str, object], published: int) -> None:
    bench = FlowBench(memory_limit=2_000, cursor="vm")
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_500)] * 10)
    assert publisher.published == 2
    bench.broker.reloading.replace_settings(SettingsRepository([entry("q", **settings)]), bench.broker.context.options)
    bench.end_turn()
    assert publisher.published == published


def test_a_reload_reaches_all_who_wait_wherever() -> None:
    """Publishers of several full queues, all of which refuse now."""
    bench = FlowBench(memory_limit=1_000, cursor="vm")

    def settings(**more: object) -> SettingsRepository:
        return SettingsRepository([entry(name, memory_limit=1_000, cursor="vm", **more) for name in "qrs"])

    bench.broker.reloading.replace_settings(settings())
    publishers = [Publisher(bench, name) for name in "qrs"]
    for publisher, name in zip(publishers, "qrs"):
        bench.queue(name)
        publisher.publish(*[make_content(1_500)] * 2, to=name)
    assert [one.refused for one in publishers] == [0, 0, 0]
    bench.broker.reloading.replace_settings(settings(send_fail_if_no_space=True))
    bench.end_turn()
    assert [one.refused for one in publishers] == [1, 1, 1]


def test_a_reload_does_not_begin_a_wait_anew() -> None:
    """Who waits on is listed with the start of the wait, and one event tells of it. Who is refused waits no more."""
    bench = FlowBench(memory_limit=1_000, cursor="vm")
    publisher = Publisher(bench, "p")
    seen: list[tuple[EventKind, int]] = []
    bench.broker.context.listeners.append(
        lambda event: seen.append((event.kind, event.waited_ms)) if isinstance(event, BlockedEvent) else None
    )
    publisher.publish(*[make_content(1_500)] * 2)
    (began,) = bench.broker.flow.blocked()
    bench.advance(300)
    bench.configure(memory_limit=900, cursor="vm")
    assert bench.broker.flow.blocked() == [began] and seen == [(EventKind.BLOCKED, 0)]
    bench.advance(400)
    bench.configure(memory_limit=900, cursor="vm", send_fail_if_no_space=True)
    assert publisher.refused == 1 and bench.broker.flow.blocked() == []
    assert seen == [(EventKind.BLOCKED, 0), (EventKind.UNBLOCKED, 700)]


def test_of_several_full_limits_of_a_queue_the_one_that_refuses_decides() -> None:
    """Wherever it comes among them: a publish must not wait for room in memory, and then be refused."""
    bench = FlowBench(
        memory_limit=1_000, cursor="vm", address_full_policy="BLOCK", max_size_bytes_reject_threshold=1_000
    )
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_500)] * 2)
    assert (publisher.published, publisher.refused) == (1, 1)


def test_a_reload_keeps_the_order_of_those_who_wait() -> None:
    """Of clients with one waiter and with several; also of the waiters of one client."""
    bench = FlowBench(memory_limit=1_000, cursor="vm")
    publishers = [Publisher(bench, name) for name in "abcd"]
    publishers[2].join(publishers[1])
    publishers[0].publish(make_content(1_500))
    for publisher in publishers:
        publisher.publish(make_content(1_500))
    before = bench.broker.flow.blocked()
    node = bench.broker.flow.nodes()[-1]
    order = [(client.name, list(waiting.waiters)) for client, waiting in node.round_robin]
    bench.configure(memory_limit=900, cursor="vm")
    assert bench.broker.flow.blocked() == before
    assert [(client.name, list(waiting.waiters)) for client, waiting in node.round_robin] == order
    bench.take()
    assert [one.published for one in publishers] == [2, 0, 0, 0]
    bench.take()
    assert [one.published for one in publishers] == [2, 1, 0, 0]


def test_a_reload_of_one_queue_keeps_the_order_of_the_waiters_of_others() -> None:
    """Those of one client that wait for the limit of the whole broker, each for another queue. So does its deletion."""
    bench = FlowBench(whole=WholeLimits(messages_max=1))
    blocking = [entry(name, address_full_policy="BLOCK") for name in ("q", "r", "s", "full")]
    bench.broker.reloading.replace_settings(SettingsRepository(blocking))
    publishers = [Publisher(bench, name) for name in "qrs"]
    for publisher, name in zip(publishers, "qrs"):
        bench.queue(name)
        publisher.join(publishers[0])
    bench.queue("full")
    Publisher(bench, "filler").publish(make_content(100), to="full")
    for publisher, name in zip(publishers, "qrs"):
        publisher.publish(make_content(100), to=name)
    node = bench.broker.flow.nodes()[0]
    ((_, waiting),) = node.round_robin
    assert list(waiting.waiters) == publishers
    changed = entry("q", address_full_policy="BLOCK", send_fail_if_no_space_after_ms=500)
    bench.broker.reloading.replace_settings(SettingsRepository([changed, *blocking[1:]]))
    bench.end_turn()
    ((_, waiting),) = node.round_robin
    assert list(waiting.waiters) == publishers
    bench.broker.virtual_hosts["/"].queues.delete("q", client=None)
    bench.end_turn()
    ((_, waiting),) = node.round_robin
    assert list(waiting.waiters) == publishers


def test_a_reload_between_the_marks_lets_nobody_go() -> None:
    """What is full stays so until its low mark, also where another limit of the address changes."""
    limits = {"address_full_policy": "BLOCK", "max_size_messages": 100}
    bench = FlowBench(**limits)
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(100)] * 110)
    bench.take(4)
    assert publisher.published == 100 and bench.used == 96
    bench.configure(**limits, max_size_bytes=MIB)
    assert publisher.published == 100
    bench.take(1)
    assert publisher.published == 105


def test_a_reloaded_low_mark_is_that_of_each_limit() -> None:
    """Of addresses, too, whose own settings are the same."""
    limits = {"address_full_policy": "BLOCK", "max_size_messages": 100}
    bench = FlowBench(**limits)
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(100)] * 110)
    options = replace(bench.broker.context.options, flow=Flow(low_mark_percent=50))
    bench.broker.reloading.replace_settings(bench.broker.context.settings, options)
    bench.take(49)
    assert publisher.published == 100
    bench.take(1)
    assert publisher.published == 110


def test_a_client_is_blocked_until_its_last_publish_goes_on() -> None:
    """Its channels wait together: one event when the first waits, one when none does."""
    bench = FlowBench(memory_limit=2_000, cursor="vm")
    one, other = Publisher(bench, "one"), Publisher(bench, "other")
    other.client = one.client
    seen: list[tuple[EventKind, int]] = []
    bench.broker.context.listeners.append(
        lambda event: seen.append((event.kind, event.waited_ms)) if isinstance(event, BlockedEvent) else None
    )
    bench.advance(100)
    for publisher in (one, other):
        publisher.publish(*[make_content(1_500)] * 3)
    bench.advance(700)
    bench.broker.flow.leave(other)
    assert seen == [(EventKind.BLOCKED, 0)]
    bench.broker.flow.leave(one)
    assert seen == [(EventKind.BLOCKED, 0), (EventKind.UNBLOCKED, 700)]


def test_who_waits_elsewhere_leaves_the_limit_before() -> None:
    """A waiter that was in two places was resumed twice, and a change of rules ended the turn with a KeyError."""
    bench = FlowBench(memory_limit=1_000, cursor="vm")
    limits = [entry(name, memory_limit=1_000, cursor="vm") for name in "qr"]
    bench.broker.reloading.replace_settings(SettingsRepository(limits))
    bench.queue("r")
    mover, other = Publisher(bench, "mover"), Publisher(bench, "other")
    mover.publish(*[make_content(1_500)] * 2)
    other.publish(*[make_content(1_500)] * 2, to="r")
    assert other.full is not None
    bench.broker.flow.wait(other.full, mover.client, mover)
    waits = [(one.client.name, one.destination) for one in bench.broker.flow.blocked()]
    assert waits == [(name, other.full.node.destination) for name in ("other", "mover")]
    bench.named("q").purge()
    bench.end_turn()
    assert mover.published == 1
    bench.broker.reloading.replace_settings(SettingsRepository([]))
    bench.end_turn()
    assert (mover.published, other.published, bench.broker.flow.blocked()) == (2, 2, [])


def test_who_waits_longest_is_listed_first() -> None:
    """Wherever each waits."""
    bench = FlowBench(memory_limit=1_000, cursor="vm")
    limits = [entry(name, memory_limit=1_000, cursor="vm") for name in "qr"]
    bench.broker.reloading.replace_settings(SettingsRepository(limits))
    bench.queue("r")
    for name, queue in (("A", "q"), ("B", "r"), ("C", "q")):
        Publisher(bench, name).publish(*[make_content(1_500)] * 2, to=queue)
        bench.advance(100)
    assert [one.client.name for one in bench.broker.flow.blocked()] == ["A", "B", "C"]


def test_an_alarm_is_as_old_as_when_it_was_raised_first() -> None:
    """Another reason is not another alarm, until it has ended."""
    bench = FlowBench()
    flow, begun = bench.broker.flow, bench.broker.context.clock.wall_ms()
    flow.raise_alarm("one")
    bench.advance(1000)
    flow.raise_alarm("two")
    assert (flow.alarm.since_ms, flow.alarm_reason) == (begun, "two")
    flow.end_alarm()
    flow.raise_alarm("three")
    assert flow.alarm.since_ms == begun + 1000


@pytest.mark.parametrize("times", [(900, 500), (500, 900), (0, 500), (500, 0)])
def test_under_an_alarm_the_queue_that_refuses_first_decides(times: tuple[int, int]) -> None:
    """Of all on the route: as under a limit (queues page E.2)."""
    bench = FlowBench()
    names = ("one", "two")
    entries = [entry(name, send_fail_if_no_space_after_ms=time) for name, time in zip(names, times)]
    bench.broker.reloading.replace_settings(SettingsRepository(entries))
    queues = [bench.queue(name) for name in names]
    bench.broker.flow.raise_alarm("full")
    assert bench.broker.flow.alarm.full_limit_for(queues).fails_after_ms == 500


def test_a_link_waits_where_others_are_refused() -> None:
    """A full queue or an alarm blocks a link, whatever the address says: a refused message of a link would be lost."""
    bench = FlowBench(memory_limit=2_000, cursor="vm", send_fail_if_no_space=True)
    user = replace(GUEST, name="link", tags=(INTERNAL_LINK,))
    bench.broker.users.add(user)
    guest, link = Publisher(bench, "guest"), Publisher(bench, "link", user)
    guest.publish(make_content(2_000))
    for publisher in (guest, link):
        publisher.publish(make_content(100))
    assert (guest.refused, link.refused, link.published) == (1, 0, 0)
    bench.take()
    assert link.published == 1
    bench.broker.flow.raise_alarm("full")
    alarm = bench.broker.flow.alarm
    assert [alarm.full_limit_for([bench.q], one.client).fails for one in (guest, link)] == [True, False]


def test_what_is_out_without_a_consumer_may_make_room() -> None:
    """A client that got messages, or cancelled its consumer, frees the room for its own publishes by acknowledging."""
    bench = FlowBench(memory_limit=2_000, cursor="vm")
    Publisher(bench, "p").publish(make_content(2_000))
    (node,) = bench.broker.flow.nodes()
    client = bench.consumer.client
    assert not client.makes_room_in(node)
    got = bench.consumer.get(bench.q, no_ack=False)
    assert got is not None and client.makes_room_in(node)
    bench.consumer.ack(got[0])
    assert not client.makes_room_in(node)


def test_a_limit_that_comes_later_counts_what_is_there() -> None:
    bench = FlowBench()
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_500)] * 10)
    got = bench.consumer.get(bench.q, no_ack=False)
    bench.broker.reloading.replace_settings(
        SettingsRepository([entry("q", memory_limit=MIB, cursor="vm")]), bench.broker.context.options
    )
    assert got is not None
    assert bench.used == 15_000
    bench.consumer.ack(got[0])
    assert bench.used == 13_500


def test_refused_at_once() -> None:
    """Queues page E.4, row 5: the confirms are in order, and those that were refused are nacks."""
    bench = FlowBench(memory_limit=2_000, cursor="vm", send_fail_if_no_space=True)
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(1_500)] * 4)
    assert (publisher.published, publisher.refused) == (2, 2)
    assert publisher.session.confirms is not None
    assert publisher.session.confirms.take() == [(2, True, True), (3, False, False), (4, False, False)]


@pytest.mark.parametrize(
    "sizes",
    [[100] * 40, [1100, 1100, *[100] * 38], [*[100] * 9, *[1100] * 31]],
    ids=["small", "large first", "small first"],
)
@pytest.mark.parametrize("at_once", [1, 3, 40])
@pytest.mark.parametrize("whose", ["queue", "broker"])
def test_each_message_counts_at_least_the_minimum(sizes: list[int], at_once: int, whose: str) -> None:
    """Also of a run: what comes at once goes over the limit by one message, however small they are (E.2, E.5)."""
    if whose == "queue":
        bench = FlowBench(memory_limit=10_000, cursor="vm", minimum_message_size=1000)
    else:
        system = SystemUsage(memory=10_000, store=0, temp=0)
        bench = FlowBench(system=system, cursor="vm", minimum_message_size=1000)
    publisher = Publisher(bench, "p")
    for at in range(0, len(sizes), at_once):
        publisher.publish(*map(make_content, sizes[at : at + at_once]))
    assert (publisher.published, len(publisher.wants)) == (10, 30)


def _taken_by_all(bench: FlowBench, queues: int, contents: list[bytes]) -> int:
    """How many messages of runs like this one a fan-out exchange takes for so many queues until one is full."""
    for name in ("q", "r", "s")[:queues]:
        if name != "q":
            bench.queue(name)
        bench.vhost.bindings.add("queue", name, "amq.fanout", "", {})
    session = Publisher(bench, "p").session
    route, envelope = bench.vhost.router.route("amq.fanout", "", GUEST), Envelope("amq.fanout", "")
    published = 0
    while taken := session.publish_with_room(route, envelope, contents, mandatory=False).taken:
        published += taken
    return published


@pytest.mark.parametrize("queues", [1, 2, 3])
def test_small_messages_share_the_room_of_their_queues(queues: int) -> None:
    """Of the broker: a run to several of them counts in each (queues page E.2)."""
    bench = FlowBench(system=SystemUsage(memory=12_000, store=0, temp=0), cursor="vm", minimum_message_size=1000)
    assert _taken_by_all(bench, queues, [make_content(100)] * 40) == 12 // queues


def test_a_publish_that_waits_takes_no_turn() -> None:
    """Of the queues that share an address: when there is room it goes to the one whose turn it was when it came."""
    bench = FlowBench()
    limit = entry("a", max_size_messages=2, address_full_policy="BLOCK")
    bench.broker.reloading.replace_settings(SettingsRepository([limit]), bench.broker.context.options)
    queues = [bench.queue(name, x_address="a") for name in ("one", "two")]
    publisher = Publisher(bench, "p")
    publisher.publish(*[make_content(100)] * 4, to="a")
    for queue in queues:
        assert [one.ready_count for one in queues] == [1, 1]
        bench.take(1, queue)
    assert [one.ready_count for one in queues] == [1, 1] and publisher.published == 4


def test_a_commit_waits_as_one() -> None:
    """Queues page E.4, row 13."""
    bench = FlowBench(memory_limit=2_000, cursor="vm")
    filler, session = (
        Publisher(bench, "p"),
        bench.broker.connections.open("/", GUEST, name="t", flush=lambda: None).open_session(),
    )
    session.select_transactions()
    session.publish(bench.route("q"), Envelope("", "q"), [make_content(1_500)] * 5, mandatory=False)
    assert session.full_limit_for_commit() is None
    filler.publish(*[make_content(1_500)] * 2)
    full = session.full_limit_for_commit()
    assert full is not None
    assert full.node.limit_name == "memory"
    bench.take(2)
    assert session.full_limit_for_commit() is None


@pytest.mark.parametrize("has_journal", [True, False])
def test_the_temp_store_is_a_limit_of_the_broker(has_journal: bool) -> None:
    """Queues page E.4, row 11; queues page, row E16. Without a journal, all that leaves memory goes there."""
    pager = MemoryPager(MIB) if has_journal else None
    bench = FlowBench(system=SystemUsage(memory=0, store=0, temp=5_000), pager=pager, producer_flow_control=False)
    publisher, other = Publisher(bench, "p"), Publisher(bench, "o")
    bench.broker.flow.temp_changed(5_000)
    publisher.publish(make_content(1_500))
    assert publisher.published == 0
    assert publisher.full is not None
    assert (publisher.full.node.destination, publisher.full.node.limit_name) == ("broker", "temp")
    bench.summary = PropertySummary(persistent=True)
    other.publish(make_content(1_500))
    assert other.published == has_journal
    bench.broker.flow.temp_changed(2_000)
    bench.end_turn()
    assert publisher.published == 1


@pytest.mark.parametrize("after", ["no limits", "larger", "fails", "fails later"])
@pytest.mark.parametrize("what", ["memory", "store", "temp"])
def test_whoever_waits_for_the_broker_hears_of_another_limit(what: str, after: str) -> None:
    """A reload lets go, or refuses, who waits for any limit of the broker, also those that no queue fills."""
    limits = {"memory": 0, "store": 0, "temp": 0}
    bench = FlowBench(system=SystemUsage(**{**limits, what: 5_000}), pager=MemoryPager(MIB), cursor="vm")
    bench.summary = PropertySummary(persistent=what == "store")
    publisher, flow = Publisher(bench, "p"), bench.broker.flow
    if what == "temp":
        bench.configure(system=SystemUsage(memory=0, store=0, temp=5_000), cursor="store")
        flow.temp_changed(5_000)
        publisher.publish(*[make_content(2_500)] * 2)
    else:
        publisher.publish(*[make_content(2_500)] * 4)
    assert (len(publisher.wants), publisher.full and publisher.full.node.limit_name) == (2, what)
    cursor = {"cursor": "store" if what == "temp" else "vm"}
    system = SystemUsage(**{**limits, what: 50_000 if after == "larger" else 5_000})
    if after == "no limits":
        bench.configure(**cursor)
    elif after == "larger":
        bench.configure(system=system, **cursor)
    elif after == "fails":
        bench.configure(system=system, send_fail_if_no_space=True, **cursor)
    else:
        bench.configure(system=system, send_fail_if_no_space_after_ms=500, **cursor)
        assert publisher.full is not None and (len(publisher.wants), publisher.full.fails_after_ms) == (2, 500)
        return
    assert (len(publisher.wants), publisher.refused) == (0, 2 if after == "fails" else 0)
    assert flow.blocked() == []


@pytest.mark.parametrize(
    "limit", [{"memory_limit": 2_000, "cursor": "vm"}, {"max_size_bytes": 2_000}, {"max_size_messages": 2}]
)
@pytest.mark.parametrize("how", ["publish", "run", "fanout"])
def test_a_new_publish_waits_behind_those_that_are_held(limit: dict[str, object], how: str) -> None:
    """Also in the turn in which there is room again, before any of them was asked (queues page E.5)."""
    if "cursor" not in limit:
        limit = {**limit, "address_full_policy": "BLOCK"}
    bench = FlowBench(minimum_message_size=0, **limit)
    bench.vhost.bindings.add("queue", "q", "amq.fanout", "", {})
    first, held, new = (Publisher(bench, name) for name in ("first", "held", "new"))
    first.publish(*[saying("x" * 1_000)] * 2)
    held.publish(saying("held"))
    for _ in range(2):
        got = bench.consumer.get(bench.q, no_ack=True)
        assert got is not None
    if how == "fanout":
        route = bench.vhost.router.route("amq.fanout", "", GUEST)
        offer = new.session.publish_with_room(route, Envelope("amq.fanout", ""), [saying("new")], mandatory=False)
        assert offer.taken == 0 and offer.full is not None
        return
    new.publish(*[saying("new")] * (1 if how == "publish" else 3))
    assert new.published == 0
    bench.end_turn()
    assert bench.take(1)[0] == b"held" and new.published >= 1


@pytest.mark.parametrize("settings", [{"memory": 0}, {"memory": 1}])
@pytest.mark.parametrize("queues", [1, 2, 3])
def test_a_run_to_several_queues_goes_over_a_limit_once(settings: dict[str, int], queues: int) -> None:
    """Of the broker, or of all addresses together: each queue's copy counts (queues page E.2; decision 10)."""
    if settings["memory"]:
        bench = FlowBench(system=SystemUsage(memory=9_000, store=0, temp=0), cursor="vm", minimum_message_size=0)
    else:
        bench = FlowBench(whole=WholeLimits(octets_max=9_000), address_full_policy="BLOCK")
    entries = [entry(name, **({"cursor": "vm", "minimum_message_size": 0} if settings["memory"] else
                              {"address_full_policy": "BLOCK"})) for name in ("q", "r", "s")]  # fmt: skip
    bench.broker.reloading.replace_settings(
        SettingsRepository(entries, usage=bench.broker.context.options.system_usage), bench.broker.context.options
    )
    assert _taken_by_all(bench, queues, [make_content(1_500)] * 20) == 6 // queues


def test_what_is_held_in_the_temp_store_makes_nobody_wait() -> None:
    """It would wait for itself; what queues have there counts."""
    bench = FlowBench(system=SystemUsage(memory=0, store=0, temp=5_000), producer_flow_control=False)
    publisher, flow = Publisher(bench, "p"), bench.broker.flow
    flow.parked.spooled = 6_000
    flow.temp_changed(6_500)
    publisher.publish(make_content(100))
    assert publisher.published == 1
    flow.temp_changed(11_000)
    publisher.publish(make_content(100))
    assert publisher.published == 1


def test_a_body_in_several_queues_counts_in_each() -> None:
    """Decision 10: also for the broker's memory, which holds it once."""
    bench = FlowBench(system=SystemUsage(memory=10_000, store=0, temp=0))
    bench.vhost.queues.declare("other", client=None, durable=True, arguments={})
    for name in ("q", "other"):
        bench.vhost.bindings.add("queue", name, "amq.fanout", "", {})
    publisher = Publisher(bench, "p")
    route = bench.vhost.router.route("amq.fanout", "", GUEST)
    publisher.session.publish_with_room(route, Envelope("amq.fanout", ""), [make_content(1_500)], mandatory=False)
    assert next(node for node in bench.broker.flow.nodes() if node.is_root).used == 3_000


@pytest.mark.parametrize(
    ("room", "width", "in_messages", "count"),
    [
        (3, 1, True, 3),
        (3, 2, True, 2),  # the last one may exceed it
        (4, 2, True, 2),
        (0, 2, True, 1),
        (100, 1, True, 5),
        (30, 1, False, 3),
        (31, 1, False, 4),
        (50, 1, False, 5),
        (51, 1, False, 5),
        (40, 2, False, 2),
        (41, 2, False, 3),
        (0, 1, False, 1),
    ],
)
def test_how_many_messages_use_up_the_room(room: int, width: int, in_messages: bool, count: int) -> None:
    """Of five with ten octets each, for so many queues that each of them goes to."""
    assert fitting(room, width, [b"0123456789"] * 5, in_messages=in_messages) == count


def test_those_who_wait_elsewhere_have_their_turn() -> None:
    """Although the queue with the first room has it all the time: its many publishes do not keep up others."""
    bench = FlowBench(memory_limit=20 * MIB, cursor="vm")
    limits = [entry("q", memory_limit=20 * MIB, cursor="vm"), entry("r", memory_limit=2_000, cursor="vm")]
    bench.broker.reloading.replace_settings(SettingsRepository(limits))
    bench.queue("r")
    many, few = Publisher(bench, "many"), Publisher(bench, "few")
    Publisher(bench, "filler").publish(make_content(20 * MIB))
    few.publish(*[make_content(2_000)] * 2, to="r")
    many.publish(*[make_content(100)] * 10_000)
    for name in "qr":
        Harness.take(bench, 1, name)
    bench.broker.end_turn()
    assert few.published == 2 and 0 < many.published < 10_000


@pytest.mark.parametrize("order", ["qr", "rq"])
def test_of_several_full_limits_of_a_commit_the_one_that_refuses_decides(order: str) -> None:
    """It is published as a whole (queues page E.4, row 13), so it does not wait for room and is refused then."""
    bench = FlowBench()
    limits = [
        entry("q", memory_limit=1_000, cursor="vm"),
        entry("r", memory_limit=1_000, cursor="vm", send_fail_if_no_space=True),
    ]
    bench.broker.reloading.replace_settings(SettingsRepository(limits))
    bench.queue("r")
    filler, publisher = Publisher(bench, "filler"), bench.connect("p")
    publisher.select_transactions()
    for name in order:
        filler.publish(make_content(1_500), to=name)
        publisher.publish(bench.route(name), Envelope("", name), [make_content(100)], mandatory=False)
    full = publisher.full_limit_for_commit()
    assert full is not None and full.fails and "'r'" in full.node.destination


def test_each_message_of_a_run_waits_at_its_commit_for_its_own_queues() -> None:
    """A run whose messages have different queues is kept message by message, and one with the same queues is one."""
    bench = FlowBench()
    bench.broker.reloading.replace_settings(SettingsRepository([entry("full", memory_limit=1_000, cursor="vm")]))
    for name in ("full", "free"):
        bench.queue(name)
        bench.vhost.bindings.add("queue", name, "amq.headers", "", arguments_of({"to": name}))
    Publisher(bench, "filler").publish(make_content(1_500), to="full")
    publisher = bench.connect("p")
    publisher.select_transactions()
    route = bench.vhost.router.route("amq.headers", "", GUEST)
    made = [messages("m", {"headers": {"to": name}}) for name in ("free", "full")]
    envelope, contents = Envelope("amq.headers", "", made[0][0]), [one for _, (one,) in made]
    publisher.publish(route, envelope, contents[:1], mandatory=False)
    assert publisher.full_limit_for_commit() is None
    publisher.publish(route, envelope, contents, mandatory=False)
    assert publisher.transaction is not None
    assert [run.names for run in publisher.transaction.publishes] == [["free"], ["free"], ["full"]]
    full = publisher.full_limit_for_commit()
    assert full is not None and "'full'" in full.node.destination
