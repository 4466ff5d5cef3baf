"""Accounts that several objects keep of one thing: sizes of addresses, the usage of limits, attempts, duplicate ids."""

from functools import partial
from typing import Any

import pytest
from flow_bench import FlowBench
from simulated_files import SimulatedFiles
from stand_in_journal import StandInJournal

from leveret.engine import BrokerOptions, EventKind, reconfigure
from leveret.engine.clients.transaction import COMMIT_SLICE
from leveret.engine.messages.field_table import Field
from leveret.journal.recording.recorder import Recorder
from leveret.settings import Divert, Policies, SettingsRepository, SystemUsage, WholeLimits, entry, make_policy
from leveret.testing.harness import Harness, messages
from leveret.testing.memory_pager import MemoryTempStore

USAGE = SystemUsage(1 << 30, 1 << 30, 1 << 30)


def limited(kind: str = "classic", **settings: Any) -> Harness:
    """A broker with limits that are far away."""
    repository = SettingsRepository([entry("q", **settings)], usage=USAGE)
    return Harness(repository, options=BrokerOptions(system_usage=USAGE), kind=kind)


def stored(world: Harness) -> int:
    """The octets that the store limit counts."""
    return next(node.used for node in world.broker.flow.nodes() if node.limit_name == "store")


# -- the size of an address -------------------------------------------------------------------------------------------


def test_delayed_messages_fill_their_address() -> None:
    """Address-settings page 3.3: they are in its queues before they are ready."""
    world = Harness(SettingsRepository([entry("q", max_size_messages=2, address_full_policy="FAIL")]))
    world.queue()
    world.session.select_confirms()
    world.publish("a", "b", headers={"x-delay": 1000})
    world.publish("c")
    assert world.confirms() == "AAN"


def test_copies_do_not_fill_the_address_of_a_queue_that_keeps_its_messages() -> None:
    """Deliveries of it are copies, however many consumers have them."""
    settings = entry("q", default_non_destructive=True, max_size_messages=3, address_full_policy="FAIL")
    world = Harness(SettingsRepository([settings]))
    world.queue()
    world.session.select_confirms()
    world.publish("a", "b")
    for tag in "xy":
        world.consume(tag=tag)
    assert world.named().unacked == 4
    world.publish("c")
    world.publish("d")
    assert world.confirms() == "AAAN"


def test_a_queue_counts_at_its_own_address_alone() -> None:
    """Although its name is that of another address (address-settings page 1.3)."""
    world = Harness(SettingsRepository([entry("a", max_size_messages=1, address_full_policy="FAIL")]))
    world.queue("a", x_address="b")
    world.queue("c", x_address="a")
    world.session.select_confirms()
    world.publish("1", key="b")
    world.publish("2", key="c")
    assert (world.confirms(), world.all("a"), world.all("c")) == ("AA", "1", "2")


def test_a_limit_on_all_addresses_counts_what_came_in_the_same_turn() -> None:
    """At another address, whose messages may leave memory at the end of the turn."""
    world = Harness(
        SettingsRepository([entry("fails", address_full_policy="FAIL")]),
        options=BrokerOptions(whole_limits=WholeLimits(None, 3)),
        memory=1 << 20,
    )
    for name in ("pages", "fails"):
        world.queue(name)
    world.session.select_confirms()
    world.ends_turns = False
    world.publish("a", "b", key="pages")
    world.publish("c", key="fails")
    world.publish("d", key="fails")
    assert world.confirms() == "AAAN"


# -- usage of limits --------------------------------------------------------------------------------------------------


def test_the_store_counts_the_attempts_that_a_message_tells() -> None:
    """The header comes and goes with the message (queues page E.1)."""
    world = limited("quorum")
    world.queue()
    world.publish("a", delivery_mode=2)
    world.consume()
    world.session.reject(1, requeue=True)
    world.end_turn()
    assert "x-delivery-count" in world.deliveries[-1].headers
    world.session.ack(2)
    world.end_turn()
    assert stored(world) == 0


def test_a_mixed_run_counts_in_the_store() -> None:
    """What is persistent of it (queues page E.1)."""
    world = limited()
    queue = world.queue()
    envelopes, contents = [], []
    for body, mode in (("a", 2), ("b", 1)):
        summary, (content,) = messages([body], {"delivery_mode": mode})
        envelopes.append(world.envelope("", "q", summary))
        contents.append(content)
    world.session.publish_mixed([queue, queue], envelopes, contents)
    world.end_turn()
    assert stored(world) == len(contents[0])
    assert world.all() == "ab" and stored(world) == 0


def test_a_temp_limit_of_a_reload_counts_what_is_there() -> None:
    """Publishers wait for it at once (queues page E.1)."""
    world = Harness(memory=20_000)
    world.queue()
    world.publish(*["x" * 100] * 500)
    temp = world.broker.context.storage.temp
    usage = SystemUsage(1 << 30, 1 << 30, 1000)
    world.broker.reloading.replace_settings(SettingsRepository([], usage=usage), BrokerOptions(system_usage=usage))
    world.end_turn()
    node = next(node for node in world.broker.flow.nodes() if node.limit_name == "temp")
    assert (temp.limit, node.used, node.is_full) == (1000, temp.used, True)


def test_what_no_disk_took_is_counted_out_by_a_purge() -> None:
    """It stood behind what is in memory, as whole messages."""
    settings = entry("q", max_size_messages=2, address_full_policy="PAGE", max_size_bytes=1 << 20)
    world = Harness(SettingsRepository([settings]), memory=1 << 20)
    temp = MemoryTempStore(0)
    world.broker.context.storage.open_temp = lambda: temp
    queue = world.queue()
    world.publish(*"abcdef")
    assert temp.used == 0 and queue.meter is not None and queue.meter.in_memory == queue.paged_count == 6
    queue.purge()
    assert (queue.meter.in_memory, queue.meter.in_memory_octets) == (0, 0)


def test_rejected_copies_on_disk_leave_no_octets() -> None:
    """The copy tells its attempts, the message in the journal does not (rulings, "Events")."""
    settings = entry("q", default_non_destructive=True, max_size_bytes=1 << 20, address_full_policy="FAIL")
    world = Harness(SettingsRepository([settings]), kind="quorum", journal=SimulatedFiles(), memory=1 << 20)
    world.queue()
    world.publish("a", delivery_mode=2)
    world.restart()
    assert world.named().store.is_deep
    world.consume()
    world.session.reject(1, requeue=True)
    world.end_turn()
    assert "x-delivery-count" in world.deliveries[-1].headers
    world.session.reject(2, requeue=False)
    world.end_turn()
    assert (world.named().ready_count, world.named().events.octets) == (0, 0)


def test_a_queue_that_may_not_page_after_a_reload_does_not() -> None:
    """cursor = vm (queues page E.1); the broker's memory is full long before."""
    world = Harness(memory=50_000)
    queue = world.queue()
    world.reload(SettingsRepository([entry("q", memory_limit=1 << 20, cursor="vm")]))
    world.publish(*["x" * 100] * 1000, delivery_mode=2)
    assert (queue.paged_count, queue.ready_count) == (0, 1000)


def test_a_commit_does_not_wait_for_the_room_of_a_queue_that_takes_nothing() -> None:
    """It was switched off after the publish (queues page E.4, row 13)."""
    bench = FlowBench(max_size_messages=1, address_full_policy="BLOCK")
    session = bench.connect("another")
    session.select_transactions()
    bench.publish("a", by=session)
    bench.publish("b")
    bench.end_turn()
    assert session.full_limit_for_commit() is not None
    reconfigure.enable(bench.q, False)
    assert session.full_limit_for_commit() is None


# -- groups, attempts, duplicates -------------------------------------------------------------------------------------


def test_a_message_without_a_group_passes_a_group_that_waits() -> None:
    """Its consumer is busy, another is free (address-settings page 3.4)."""
    world = Harness()
    world.queue()
    world.consume(tag="busy", prefetch=1)
    world.publish("a", "b", headers={"JMSXGroupID": "g"})
    world.consume(tag="free", prefetch=1, by=world.connect())
    world.publish("c")
    assert (world.taken("busy"), world.taken("free")) == ("a", "c")


def test_a_new_message_does_not_overtake_what_a_filter_has_found() -> None:
    """Its consumer acknowledges in the same turn as it comes (queues page F.6)."""
    world = Harness()
    world.queue()
    world.consume(prefetch=1, x_selector="k = 1")
    world.publish("a", "b", headers={"k": 1})
    assert world.taken() == "a"
    world.ends_turns = False
    world.session.ack(1)
    world.publish("c", headers={"k": 1})
    world.end_turn()
    assert world.taken() == "b"


def test_what_consumers_of_a_channel_give_back_together_goes_to_them_again() -> None:
    """To each what it had, as in RabbitMQ, whoever would be the next (behaviour page 2.13)."""
    world = Harness()
    world.queue()
    world.consume(tag="z", prefetch=2)
    world.consume(tag="y", prefetch=1)
    for body in "abc":
        world.publish(body)
    assert (world.taken("z"), world.taken("y")) == ("ac", "b")
    world.session.reject(0, multiple=True, requeue=True)
    world.end_turn()
    assert (world.taken("z"), world.taken("y")) == ("ac", "b")


def test_a_lowered_limit_of_attempts_takes_nothing_that_waits_at_a_restart() -> None:
    """It holds from the next return on (address-settings page 5.4)."""
    settings = {"redelivery_delay_ms": 60_000}
    world = Harness(
        SettingsRepository([entry("q", max_delivery_attempts=5, **settings)]),
        kind="quorum",
        journal=SimulatedFiles(),
        recorder=partial(Recorder, persists_deliveries=True),
    )
    world.queue()
    world.publish("a", delivery_mode=2)
    got = world.get(no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=True)
    world.end_turn()
    assert len(world.named().scheduled) == 1
    world.settings = SettingsRepository([entry("q", max_delivery_attempts=1, **settings)])
    world.restart()
    assert len(world.named().scheduled) == 1
    world.advance(60_000)
    assert world.all() == "a"


def test_a_refused_message_is_no_duplicate_when_it_is_published_again() -> None:
    """Its id is remembered when a queue has it (address-settings page 3.7)."""
    world = Harness()
    world.queue(x_max_length=1, x_overflow="reject-publish")
    world.session.select_confirms()
    world.publish("a")
    found = []
    for _ in range(3):
        world.publish("b", headers={"_AMQ_DUPL_ID": "1"})
        found.append(world.all())
    assert (world.confirms(), found) == ("ANAA", ["a", "b", ""])


def test_each_refused_message_of_a_mixed_run_is_told() -> None:
    """In the order of the run, although each queue has its messages at once."""
    world = Harness()
    queues = [world.queue(name, x_max_length=0, x_overflow="reject-publish") for name in "ab"]
    world.session.select_confirms()
    envelopes, contents = [], []
    for body in "xyz":
        summary, (content,) = messages([body], {"message_id": body.encode()})
        envelopes.append(world.envelope("", "ab"["xyz".index(body) % 2], summary))
        contents.append(content)
    world.session.publish_mixed([queues[0], queues[1], queues[0]], envelopes, contents)
    assert world.confirms() == "NNN"


# -- arrival ----------------------------------------------------------------------------------------------------------


def test_a_diverted_message_waits_for_its_own_time() -> None:
    """The copy and the message are both delayed."""
    world = Harness()
    for name in ("q", "copy"):
        world.queue(name)
    world.broker.reloading.replace_diverts([Divert("d", "q", ("copy",))])
    world.publish("a", headers={"x-delay": 1000})
    assert (world.all(), len(world.named().scheduled)) == ("", 1)
    world.advance(1000)
    assert world.all() == "a"


def test_a_retained_message_tells_when_it_arrived() -> None:
    """As the one that was delivered at once does (address-settings page 3.6)."""
    settings = entry("news", retroactive_message_count=3, enable_ingress_timestamp=True)
    world = Harness(SettingsRepository([settings]))
    world.publish("a", key="news")
    world.queue("news")
    got = world.get("news")
    assert got is not None and "_AMQ_INGRESS_TIMESTAMP" in got[1].envelope.headers(got[1].content)


@pytest.mark.parametrize(("policy", "confirms"), [("DROP", "A"), ("FAIL", "N")])
def test_what_an_address_drops_while_the_disk_is_full_is_confirmed(policy: str, confirms: str) -> None:
    """It chose to lose it (address-settings page 3.3)."""
    world = Harness(SettingsRepository([entry("q", disk_full_policy=policy)]))
    world.queue()
    world.session.select_confirms()
    journal = StandInJournal()
    journal.has_failed = True
    world.broker.context.storage.durability = journal
    world.publish("a", delivery_mode=2)
    assert (world.confirms(), world.named().ready_count) == (confirms, 0)


# -- what has ended ---------------------------------------------------------------------------------------------------


def test_a_large_commit_begins_when_the_journal_can_write_again() -> None:
    """Before that it would lose its persistent messages."""
    world = Harness()
    world.queue()
    journal = StandInJournal()
    world.broker.context.storage.durability = journal
    world.session.select_transactions()
    world.publish(*["x"] * (COMMIT_SLICE + 1), delivery_mode=2)
    journal.has_failed = True
    commit = world.session.commit()
    world.end_turn()
    assert (commit.has_begun, world.named().ready_count) == (False, 0)
    journal.has_failed = False
    world.end_turn()
    assert (commit.is_done, world.named().ready_count) == (True, COMMIT_SLICE + 1)


def test_the_client_of_a_large_commit_is_flushed_when_it_is_done() -> None:
    """Its answer waits for nothing else."""
    world = Harness()
    world.queue()
    flushed: list[bool] = []
    session = world.connect("c", flush=lambda: flushed.append(commit.is_done))
    session.select_transactions()
    world.publish(*["x"] * (COMMIT_SLICE + 1), by=session)
    commit = session.commit()
    world.end_turn()
    assert flushed == [True]


def test_an_acknowledgement_of_a_deleted_queue_is_no_event() -> None:
    """Its messages were deleted with it."""
    world = Harness()
    world.queue()
    world.publish("a")
    world.consume()
    world.vhost.queues.delete("q", client=None)
    heard: list[EventKind] = []
    world.broker.context.listeners.append(lambda event: heard.append(event.kind))
    world.session.ack(1)
    world.end_turn()
    assert EventKind.ACKED not in heard


@pytest.mark.parametrize("kind", ["delayed", "got", "none"])
def test_an_auto_created_queue_is_unused_when_it_has_no_message_at_all(kind: str) -> None:
    """Also none that is delayed, or that a client has not acknowledged (address-settings page 3.5)."""
    world = Harness(SettingsRepository([entry("#", auto_create_queues=True)]))
    world.publish("a", key="made")
    world.take(1, "made")
    if kind == "delayed":
        world.publish("b", key="made", headers={"x-delay": 10_000_000})
    if kind == "got":
        world.publish("b", key="made")
        world.get("made", no_ack=False)
    world.advance(200_000)
    assert ("made" in world.vhost.queues) == (kind != "none")


def test_tracing_goes_on_in_other_virtual_hosts() -> None:
    """The firehose listens until the last one is switched off."""
    world = Harness()
    hosts = world.broker.virtual_hosts
    other = hosts.create("other")
    for vhost in (world.vhost, other):
        hosts.trace(vhost, on=True)
    hosts.trace(other, on=False)
    world.queue()
    world.queue("traced")
    world.bind("traced", "amq.rabbitmq.trace", "deliver.q")
    world.publish("a")
    assert (world.all(), world.all("traced")) == ("a", "a")


# -- what leaves memory -----------------------------------------------------------------------------------------------


def test_transient_messages_leave_memory_when_octets_are_not_counted_any_more() -> None:
    """While they are, the tail has to know their bodies, and keeps them whole (behaviour page 3.3)."""
    world = Harness(memory=20_000)
    world.queue()
    limit = make_policy("p", "/", "q", {"max-length-bytes": 1 << 30})
    world.broker.reloading.replace_policies(Policies([limit]))
    world.end_turn()
    world.publish(*["x" * 100] * 500)
    temp = world.broker.context.storage.temp
    assert temp.used == 0 and world.named().paged_count > 0
    world.broker.reloading.replace_policies(Policies())
    world.end_turn()
    pageable = world.named().pageable
    assert pageable is not None and pageable.in_memory and pageable.page_out(1 << 20) > 0
    assert (temp.used > 0, world.all()) == (True, "x" * 50_000)


@pytest.mark.parametrize("exchange", ["", "later"])
def test_delayed_messages_that_are_due_stay_within_the_memory_of_their_queue(exchange: str) -> None:
    """At the head, or of a delaying exchange at the end (address-settings page 3.3, PAGE)."""
    world = Harness(SettingsRepository([entry("q", max_size_messages=2, address_full_policy="PAGE")]), memory=1 << 20)
    world.vhost.exchanges.declare("later", "x-delayed-message", arguments={"x-delayed-type": Field("S", b"direct")})
    queue = world.queue()
    world.bind("q", "later", "q")
    for _ in range(2):
        for body in "abcdef":
            world.publish(body, exchange=exchange, headers={"x-delay": 1000}, delivery_mode=2)
        world.advance(1000)
        assert (queue.ready_count, queue.store.in_memory) == (6, 2)
        assert world.all() == "abcdef"


def test_messages_of_high_priority_stay_within_the_memory_of_their_queue() -> None:
    """They come before what is paged out, which gives them no room (address-settings page 3.3, PAGE)."""
    world = Harness(SettingsRepository([entry("q", max_size_messages=2, address_full_policy="PAGE")]), memory=1 << 20)
    queue = world.queue(x_max_priority=5)
    for body, priority in zip("abcdef", (0, 0, 0, 5, 5, 5)):
        world.publish(body, priority=priority, delivery_mode=2)
    assert queue.ready_count == 6 and queue.store.in_memory <= 2
    assert world.all() == "defabc"


def test_a_limit_of_a_reload_knows_what_leaves_memory_afterwards() -> None:
    """Each message counts where it is (queues page E.1)."""
    world = Harness(memory=20_000)
    queue = world.queue()
    world.publish(*["x" * 100] * 500, delivery_mode=2)
    world.reload(SettingsRepository([entry("q", memory_limit=1 << 20)]))
    world.publish(*["x" * 100] * 500, delivery_mode=2)
    assert queue.meter is not None and queue.meter.paged == queue.paged_count > 500


def test_a_value_stays_in_memory_while_the_journal_is_behind() -> None:
    """Its record may not be on the disk yet."""
    world = Harness(memory=4000)
    queue = world.queue(x_last_value_key="k")
    journal = StandInJournal()
    journal.is_behind = True
    world.broker.context.storage.durability = journal
    for key in ("a", "b", "c"):
        world.publish(key * 600, headers={"k": key}, delivery_mode=2)
    assert not queue.store.is_deep
    journal.is_behind = False
    world.publish("d" * 600, headers={"k": "d"}, delivery_mode=2)
    assert queue.store.is_deep


def test_a_dead_letter_that_comes_while_the_disk_is_full_is_there() -> None:
    """In memory, behind what was paged out before."""
    world = Harness(memory=20_000)
    world.queue("dead")
    world.queue(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    world.publish(*["x" * 100] * 200, key="dead", delivery_mode=2)
    assert world.named("dead").paged_count
    world.publish("letter", delivery_mode=2)
    journal = StandInJournal()
    journal.has_failed = True
    world.broker.context.storage.durability = journal
    world.broker.context.listeners.clear()  # of the stand-in's records
    got = world.get(no_ack=False)
    assert got is not None
    world.session.reject(got[0], requeue=False)
    world.end_turn()
    assert world.all("dead") == "x" * 20_000 + "letter"


# -- clusters and virtual hosts ---------------------------------------------------------------------------------------


def test_a_replay_waits_until_the_cluster_has_what_it_shows() -> None:
    """As other deliveries do (docs/decisions/0018-safe-offsets.md)."""
    world = Harness(kind="amps")
    world.queue()
    world.publish("a")
    journal = StandInJournal()
    journal.delays_deliveries = True
    journal.sync_lsn_of_all = lambda: 7  # type: ignore[method-assign]
    world.broker.context.storage.durability = journal
    sent: list[tuple[int, int]] = []
    world.client.on_send_after = lambda lsn, number: sent.append((lsn, number))
    world.consume(prefetch=5, x_bookmark="0")
    assert (world.taken(), sent) == ("a", [(7, 0)])


def test_a_large_commit_publishes_nothing_in_a_virtual_host_that_is_deleted() -> None:
    """It is over then, as if all queues were gone."""
    world = Harness()
    other = world.broker.virtual_hosts.create("other")
    queue = other.queues.declare("q", client=None, durable=True)
    client = world.broker.connections.open("other", world.user, name="c", flush=lambda: None)
    session = client.open_session()
    session.select_transactions()
    summary, contents = messages(["x"] * (COMMIT_SLICE + 1), {})
    route = other.router.route("", "q", world.user)
    session.publish(route, world.envelope("", "q", summary), contents, mandatory=False)
    commit = session.commit()
    other.context.is_being_deleted = True
    world.end_turn()
    assert commit.is_done and (queue.ready_count, session.published) == (0, 0)
