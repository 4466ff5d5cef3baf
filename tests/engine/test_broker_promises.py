"""What a broker keeps to when virtual hosts, users, connections and settings come, change and go."""

from typing import Any

import pytest
from simulated_files import SimulatedFiles
from stand_in_journal import StandInJournal

from leveret.engine import (
    NATIVE,
    Choice,
    Envelope,
    Grant,
    Moving,
    Permissions,
    User,
    Users,
    VirtualHostLimits,
    encode_header,
    publish_by_name,
    reconfigure,
    to_queue,
)
from leveret.engine.clients.transaction import COMMIT_SLICE
from leveret.engine.errors import InUse, LoginRefused, PermissionRefused, ResourceLocked
from leveret.engine.options import BrokerOptions
from leveret.engine.users.login_throttle import FREE_FAILURES, LoginThrottle
from leveret.settings import Divert, LoggedTopic, Policies, SettingsRepository, SystemUsage, entry, make_policy
from leveret.testing.harness import GUEST, Harness, arguments_of, load, messages


def granted(name: str, configure: str = ".*", write: str = ".*", read: str = ".*") -> User:
    """A user with these permissions in the default virtual host."""
    return User(name, permissions={"/": Permissions(Grant(configure, write, read), user=name, vhost="/")})


def client_of(world: Harness, user: User, name: str = "another") -> Any:
    """A client of this user, which reads what it is sent."""
    if user is not GUEST:
        world.broker.connections.replace_user(user)
    client = world.broker.connections.open("/", user, name=name, flush=lambda: world.read(client))
    return client


# -- virtual hosts ----------------------------------------------------------------------------------------------------


def test_limits_of_a_virtual_host_are_there_after_a_restart() -> None:
    """Also if nothing else of it has changed since it was made."""
    world = Harness(journal=SimulatedFiles())
    made = world.broker.virtual_hosts.create("v")
    world.end_turn()
    world.broker.virtual_hosts.limit(made, VirtualHostLimits(max_queues=7))
    world.end_turn()
    world.kill()
    assert world.broker.virtual_hosts["v"].context.limits.max_queues == 7


def test_a_virtual_host_that_is_made_again_at_once_is_there_after_a_restart() -> None:
    """The end of the old one is recorded before the begin of the new one."""
    world = Harness(journal=SimulatedFiles())
    world.broker.virtual_hosts.create("v").queues.declare("old", client=None, durable=True)
    world.end_turn()
    world.broker.virtual_hosts.delete("v")
    world.broker.virtual_hosts.create("v").queues.declare("new", client=None, durable=True)
    world.end_turn()
    assert list(world.broker.virtual_hosts["v"].queues) == ["new"]
    world.kill()
    assert list(world.broker.virtual_hosts["v"].queues) == ["new"]


# -- connections ------------------------------------------------------------------------------------------------------


def test_what_a_connection_has_sent_and_got_counts_when_it_is_gone() -> None:
    """Octets and calls, each on its own account."""
    world = Harness()
    info = world.client.connection_info
    info.octets_in, info.octets_out, info.reads, info.writes = 1, 2, 3, 4
    world.client.close()
    activity = world.broker.context.activity
    assert (activity.octets_in, activity.octets_out, activity.reads, activity.writes) == (1, 2, 3, 4)


def test_no_deadline_is_left_when_the_last_client_is_gone() -> None:
    """Nor for the timeout of its deliveries, which are ready again."""
    world = Harness()
    world.queue()
    world.publish("a")
    world.get(no_ack=False)
    assert world.broker.next_deadline_ns() is not None
    world.client.close()
    world.end_turn()
    assert world.broker.next_deadline_ns() is None


@pytest.mark.parametrize("kind", [{}, {"x_ring_size": 10}, {"x_queue_type": "quorum"}])
@pytest.mark.parametrize("channels", [1, 2])
def test_what_returns_at_an_end_is_not_delivered_to_what_ends(kind: dict[str, Any], channels: int) -> None:
    """A channel, or a connection with two: that would cost an attempt, and look like a redelivery."""
    world = Harness()
    queue = world.queue(**kind)
    for number in range(channels):
        session = world.client.open_session() if number else world.session
        for tag in ("b", "a"):
            world.consume(by=session, tag=f"{number}{tag}", prefetch=5)
    world.publish(*"abcdef")
    assert queue.counters.delivered == 6
    (world.client if channels > 1 else world.session).close()
    world.end_turn()
    assert queue.counters.delivered == 6
    assert [message.deliveries for message in queue.messages()] == [1] * 6


def test_an_auto_delete_queue_ends_before_its_deliveries_return() -> None:
    """A lost connection is a failed attempt, but nothing is left that could have failed: no dead letter."""
    world = Harness()
    world.queue("dead")
    world.queue(
        auto_delete=True, x_max_delivery_attempts=1, x_dead_letter_exchange="", x_dead_letter_routing_key="dead"
    )
    world.publish("a")
    world.consume()
    other = world.connect("other")
    world.client.close(failed=True)
    world.end_turn()
    assert "q" not in world.vhost.queues
    assert other.get(world.named("dead"), no_ack=True) is None


def test_a_virtual_host_counts_what_its_past_channels_delivered() -> None:
    """As the broker does over all."""
    world = Harness()
    world.queue()
    world.publish(*"abc")
    world.consume(no_ack=True)
    world.client.close()
    totals = [past.delivered for past in (world.broker.context.past_sessions, world.vhost.context.past_sessions)]
    assert totals == [3, 3]


# -- users ------------------------------------------------------------------------------------------------------------


def test_a_large_queue_is_deleted_by_those_alone_who_may() -> None:
    """A permission that a deletion at once asks for is asked for by one in slices."""
    world = Harness()
    world.queue()
    client = client_of(world, granted("reader", configure="^$"))
    for begin in (world.vhost.queues.delete, world.vhost.queues.begin_delete):
        with pytest.raises(PermissionRefused):
            begin("q", client)
    client = client_of(world, granted("writer", read="^$"))
    for begin in (world.vhost.queues.purge, world.vhost.queues.begin_purge):
        with pytest.raises(PermissionRefused):
            begin("q", client)


def test_an_alternate_exchange_needs_permissions_on_both() -> None:
    """To read from the exchange, and to write to its alternate."""
    world = Harness()
    arguments = arguments_of({"alternate_exchange": "other"})
    for user in (granted("a", write="^x$"), granted("b", read="^other$")):
        with pytest.raises(PermissionRefused):
            world.vhost.exchanges.declare("x", "fanout", arguments=arguments, client=client_of(world, user))
    both = granted("c", write="^other$", read="^x$")
    world.vhost.exchanges.declare("x", "fanout", arguments=arguments, client=client_of(world, both))


def test_a_binding_of_an_exclusive_queue_is_removed_by_its_owner_alone() -> None:
    """One that is not there is no error for anyone."""
    world = Harness()
    world.queue(client=world.client, durable=False, exclusive=True)
    world.bind("q", "amq.direct", "k")
    other = client_of(world, GUEST)
    world.vhost.bindings.remove("queue", "q", "amq.direct", "no such key", {}, other)
    with pytest.raises(ResourceLocked):
        world.vhost.bindings.remove("queue", "q", "amq.direct", "k", {}, other)
    assert len(world.vhost.exchanges["amq.direct"].bindings) == 1


def test_an_exclusive_queue_that_is_deleted_is_forgotten_by_its_owner() -> None:
    """Whose end then deletes the others alone, and not another queue of that name."""
    world = Harness()
    world.queue(client=world.client, durable=False, exclusive=True)
    world.vhost.queues.delete("q", world.client)
    assert not world.client.exclusive_queues
    world.queue()
    world.client.close()
    world.end_turn()
    assert list(world.vhost.queues) == ["q"]


def test_logins_that_are_refused_unheard_are_counted() -> None:
    """They failed, like those whose password was wrong."""
    users = Users([GUEST], LoginThrottle(lambda: 0))
    for _ in range(FREE_FAILURES + 3):
        with pytest.raises(LoginRefused):
            users.log_in("guest", "wrong", mechanism="PLAIN", is_loopback=True, origin="o")
    assert users.attempts["amqp091"] == [0, FREE_FAILURES + 3]


# -- settings ---------------------------------------------------------------------------------------------------------


def test_reloaded_diverts_act_on_routes_that_are_known() -> None:
    """They come and go, in each virtual host."""
    world = Harness()
    for name in ("q", "copy"):
        world.queue(name)
    for body, diverts in (("a", []), ("b", [Divert("d", "q", ("copy",))]), ("c", [])):
        route = world.route("q")
        world.broker.reloading.replace_diverts(diverts)
        assert route.is_stale
        world.publish(body)
    assert (world.all(), world.all("copy")) == ("abc", "b")


def test_a_virtual_host_that_is_made_again_has_its_diverts() -> None:
    """As its settings and logged topics: the files still name them. No other virtual host has them."""
    world = Harness()
    hosts = world.broker.context.virtual_hosts
    divert = Divert("d", "q", ("copy",), vhost="made")
    world.broker.reloading.replace_diverts([divert])
    for vhost in (hosts.create("made"), hosts["/"]):
        assert vhost.router.diverts.of("q") == ((divert,) if vhost.name == "made" else ())


def test_diverts_in_a_cycle_forward_a_message_once_each() -> None:
    """Two that lead back to their own address: each copy is forwarded by the other one alone."""
    world = Harness()
    world.queue("q")
    world.broker.reloading.replace_diverts([Divert(name, "q", ("q",)) for name in ("d0", "d1")])
    world.publish("a")
    assert world.all() == "aaaaa"  # of d0, and of d1 behind it; of d1, and of d0 behind it; the message


def test_a_diverted_copy_is_no_publish_of_a_client() -> None:
    """It is counted, and known as one of the broker's own."""
    world = Harness()
    for name in ("q", "copy"):
        world.queue(name)
    world.broker.reloading.replace_diverts([Divert("d", "q", ("copy",))])
    world.publish(*"abc")
    assert (world.broker.context.counters.published, world.broker.context.activity.own) == (6, 3)


def test_a_reloaded_period_of_scans_counts_from_now() -> None:
    """An unused queue is not kept for the rest of the old period."""
    toml = '[[address-setting]]\nmatch = "#"\nauto-delete-queues-skip-usage-check = true\n'
    world = Harness(toml, options=BrokerOptions(address_queue_scan_period_ms=1_000_000))
    world.vhost.queues.create("q", is_auto_created=True)
    settings = world.broker.context.settings
    world.broker.reloading.replace_settings(settings, BrokerOptions(address_queue_scan_period_ms=100))
    world.advance(300)
    assert "q" not in world.vhost.queues


def test_id_caches_get_their_new_sizes_address_by_address() -> None:
    """A reload does not hold clients up: a cache may have millions of ids."""
    sizes = '[[address-setting]]\nmatch = "#"\nid-cache-size = {}\n'
    world = Harness(sizes.format(5))
    for address in "abc":
        world.queue(address)
        for number in range(4):
            world.publish(address, key=address, headers={"_AMQ_DUPL_ID": f"{number}"})
    caches = world.vhost.context.id_caches

    def lengths() -> list[int]:
        return [len(caches[address]) if address in caches else 0 for address in "abc"]

    for size, expected in ((5, [4, 4, 4]), (2, [2, 2, 2]), (0, [0, 0, 0])):
        before = lengths()
        world.broker.reloading.replace_settings(load(sizes.format(size)).repository, world.broker.context.options)
        assert lengths() == [expected[0], *before[1:]]
        while world.broker.end_turn():
            pass
        assert lengths() == expected


def test_logged_topics_are_kept_for_the_longest_of_their_times() -> None:
    """The journal is told at each reload, also that nothing is to be kept any longer."""
    world = Harness(journal=SimulatedFiles())
    topics = [LoggedTopic(name, retain_ms=ms) for name, ms in (("a", 1000), ("b", 5000), ("c", 3000))]
    world.broker.reloading.replace_logged_topics(topics)
    assert world.journal.turns.log_ms == 5000
    world.broker.reloading.replace_logged_topics([])
    assert world.journal.turns.log_ms == 0


def test_an_exchange_that_a_policy_gives_an_alternate_hears_when_that_is_made() -> None:
    """A route that was looked up before leads there from then on."""
    world = Harness()
    world.queue()
    world.vhost.exchanges.declare("x", "direct")
    policy = make_policy("p", "/", "^x$", {"alternate-exchange": "other"}, apply_to="exchanges")
    world.broker.reloading.replace_policies(Policies([policy]))
    world.end_turn()
    route = world.route("k", "x")
    assert world.publish("a", exchange="x", key="k", mandatory=True) == [b"a"]
    world.vhost.exchanges.declare("other", "fanout")
    assert route.is_stale
    world.bind("q", "other")
    assert world.publish("b", exchange="x", key="k", mandatory=True) == []
    assert world.all() == "b"


def test_an_exchange_in_use_is_deleted_only_without_that_condition() -> None:
    """`if_unused`: a binding keeps it, and none does not."""
    world = Harness()
    world.queue()
    world.vhost.exchanges.declare("x", "direct")
    world.bind("q", "x")
    with pytest.raises(InUse):
        world.vhost.exchanges.delete("x", if_unused=True)
    world.vhost.bindings.remove("queue", "q", "x", "", {})
    world.vhost.exchanges.delete("x", if_unused=True)
    assert "x" not in world.vhost.exchanges


# -- transactions -----------------------------------------------------------------------------------------------------


def test_a_commit_with_very_many_rejections_is_done_in_slices() -> None:
    """They cost what publishes and acknowledgements cost."""
    world = Harness()
    world.queue()
    world.publish(*["x"] * (2 * COMMIT_SLICE))
    world.consume()
    world.session.select_transactions()
    for tag in range(1, 2 * COMMIT_SLICE + 1):
        world.session.reject(tag, requeue=False)
    commit = world.session.commit()
    assert not commit.is_done
    world.end_turn()
    assert commit.is_done and world.named().unacked == 0


def test_a_session_that_ends_after_a_large_commit_leaves_its_queues() -> None:
    """Its commit is not under way any more."""
    world = Harness()
    queue = world.queue()
    world.publish("a")
    world.session.select_transactions()
    world.session.get(queue, no_ack=False)
    world.publish(*["x"] * (2 * COMMIT_SLICE))
    commit = world.session.commit()
    world.end_turn()
    assert commit.is_done and world.session in queue.sessions
    world.session.close()
    world.end_turn()
    assert not queue.sessions and queue.ready_count == 2 * COMMIT_SLICE + 1


def test_a_session_that_ends_during_a_large_commit_leaves_its_queues_with_it() -> None:
    """Until then a deletion of the queue has to know what the commit settles."""
    world = Harness()
    queue = world.queue()
    world.publish("a")
    world.session.select_transactions()
    got = world.session.get(queue, no_ack=False)
    assert got is not None
    world.session.ack(got[0])
    world.publish(*["x"] * (2 * COMMIT_SLICE))
    commit = world.session.commit()
    world.session.close()
    assert not commit.is_done and world.session in queue.sessions
    world.end_turn()
    assert commit.is_done and not queue.sessions and queue.unacked == 0


@pytest.mark.parametrize("ends, left", [("commit", "defg"), ("roll_back", "abcdefg")])
def test_what_a_second_transaction_settles_is_known_as_unacknowledged(ends: str, left: str) -> None:
    """Though a first one, of which more was seen, is committed or rolled back."""
    world = Harness()
    queue = world.queue()
    world.publish(*"abcd")
    world.consume()
    world.session.select_transactions()
    for tag in (1, 2, 3):
        world.session.ack(tag)
    assert len(queue.unacked_messages()) == 4
    getattr(world.session, ends)()
    world.publish(*"efg", by=world.connect("another"))
    for tag in (5, 6, 7):
        world.session.ack(tag)
    assert sorted(message.body.decode() for message in queue.unacked_messages()) == list(left)


def test_a_queue_that_is_closed_before_the_commit_gets_nothing() -> None:
    """Its publish chose it while it was open; another queue of the run gets its copy."""
    world = Harness()
    for name in ("q", "open"):
        world.queue(name)
        world.bind(name, "amq.fanout")
    world.session.select_transactions()
    world.publish("a", exchange="amq.fanout")
    reconfigure.enable(world.named("q"), False)
    world.session.commit()
    world.end_turn()
    assert (world.named("q").ready_count, world.all("open")) == (0, "a")


class Behind(StandInJournal):
    """What came last has yet to be stated; nothing is safe."""

    is_behind = True

    def sync_lsn(self) -> int:
        return 7

    def keep_id(self, vhost: str, address: str, id_: str, first_id: int, size: int) -> bool:
        return True


def test_a_duplicate_waits_for_its_first_message_while_the_journal_is_behind() -> None:
    """Its confirm says that the message is safe."""
    world = Harness()
    world.queue()
    world.broker.context.storage.durability = Behind()
    for _ in range(2):
        session = world.client.open_session()
        session.select_confirms()
        world.publish("a", headers={"_AMQ_DUPL_ID": "one"}, by=session)
    assert session.confirms is not None
    assert (session.confirms.take(6), session.confirms.take(7)) == ([], [(1, False, True)])
    assert world.named("q").ready_count == 1


# -- slices -----------------------------------------------------------------------------------------------------------


def test_all_connections_of_a_deleted_user_end() -> None:
    """Also those that one slice does not reach."""
    world = Harness()
    user = granted("u")
    world.broker.connections.replace_user(user)
    clients = [world.broker.connections.open("/", user, name=f"u{n}", flush=lambda: None) for n in range(120)]
    world.broker.connections.delete_user("u")
    world.end_turn()
    assert [client.name for client in clients if not client.closed] == []


def test_a_policy_reaches_all_queues() -> None:
    """Also those that one slice does not reach, in each virtual host."""
    world = Harness()
    hosts = [world.vhost, world.broker.virtual_hosts.create("v")]
    queues = [host.queues.create(f"q{n}", is_auto_created=False) for host in hosts for n in range(120)]
    policies = [make_policy("p", host.name, "", {"max-length": 7}, apply_to="queues") for host in hosts]
    world.broker.reloading.replace_policies(Policies(policies))
    world.end_turn()
    assert [queue.name for queue in queues if queue.rules.max_length != 7] == []


def test_octets_that_are_not_sent_yet_count_when_a_connection_goes_on() -> None:
    """Its outbox has no more room than they leave."""
    world = Harness(unsent_max=1000)
    queue = world.queue()
    world.stalled.add(world.client)
    world.publish(*["x" * 100] * 40)
    world.consume(no_ack=True)
    assert world.client.paused and queue.ready_count > 20
    before = queue.ready_count
    world.client.drained(unsent=900)
    world.end_turn()
    assert 1 <= before - queue.ready_count <= 2


def test_the_limit_of_the_temp_store_holds_publishers() -> None:
    """Without a journal, what leaves memory is in the temp store."""
    system = SystemUsage(memory=0, store=0, temp=5_000)
    world = Harness(memory=0, options=BrokerOptions(system_usage=system))
    temp = world.broker.context.storage.temp
    assert temp.limit == 5_000 and world.broker.flow.is_calm
    temp.on_change(5_000)
    assert not world.broker.flow.is_calm


def test_what_is_paged_out_is_moved_as_well() -> None:
    """A slice that ends where messages are on the disk is not the last one."""
    world = Harness(memory=20_000)
    for name in ("q", "to"):
        world.queue(name)
    world.publish(*[f"{n:03}" + "x" * 1000 for n in range(300)], delivery_mode=2)
    moving = Moving(world.named("q"), world.client, Choice(lambda message: True), to_queue(world.client, "to"), "moved")
    for _ in range(400):
        moving.work()
        world.end_turn()
        if moving.is_done:
            break
    assert moving.is_done and (moving.done, world.named("q").ready_count) == (300, 0)


def test_a_divert_to_an_exchange_that_nothing_is_bound_to_reaches_no_queue_of_its_name() -> None:
    """An address names the exchange where there is one (address-settings page 1.3)."""
    world = Harness()
    world.vhost.exchanges.declare("D", "direct")
    for name in ("D", "q"):
        world.queue(name)
    world.broker.reloading.replace_diverts([Divert("one", "q", ("D",))])
    world.publish("a")
    assert (world.all("D"), world.all()) == ("", "a")


def test_a_queue_that_stores_nothing_has_no_say_while_the_disk_is_full() -> None:
    """Its policy is to block; that of the queue that stores the message is to refuse it."""
    block, fail = entry("brief", disk_full_policy="BLOCK"), entry("q", disk_full_policy="FAIL")
    world = Harness(SettingsRepository([block, fail]))
    world.queue("brief", durable=False)
    world.queue()
    for name in ("brief", "q"):
        world.bind(name, "amq.fanout")
    summary, _ = messages([], {"delivery_mode": 2})
    route = world.route("", "amq.fanout")
    assert not route.waits_for_disk(world.envelope("amq.fanout", "", summary), is_confirmed=True)


DELAYS = [(0, True), (2**32 - 1, False), (2**32, True), (-5, True), (" 100", False), ("9" * 5000, True)]


@pytest.mark.parametrize("delay, is_ready", DELAYS, ids=lambda value: str(value)[:12])
def test_a_delay_that_is_too_long_is_none(delay: int | str, is_ready: bool) -> None:
    """As in RabbitMQ's plugin: the message is delivered at once. Also if it is text, of any length."""
    world = Harness()
    world.vhost.exchanges.declare("d", "x-delayed-message", arguments=arguments_of({"x-delayed-type": "fanout"}))
    queue = world.queue()
    world.bind("q", "d")
    world.publish("a", exchange="d", headers={"x-delay": delay})
    assert queue.ready_count == is_ready


def test_an_exchange_without_bindings_of_its_own_is_unused() -> None:
    """Though another exchange is bound to it: if-unused deletes it, as in RabbitMQ."""
    world = Harness()
    world.vhost.exchanges.declare("x", "direct")
    world.vhost.bindings.add("exchange", "x", "amq.direct", "", {})
    world.vhost.exchanges.delete("x", if_unused=True)
    assert "x" not in world.vhost.exchanges and not world.vhost.exchanges["amq.direct"].bindings


def test_a_divert_acts_in_its_virtual_host_alone() -> None:
    """Queues of the same name in another one get no copies."""
    world = Harness()
    world.broker.virtual_hosts.create("v")
    for divert, copies in ((Divert("d", "q", ("copy",), vhost="v"), "b"), (Divert("d", "q", ("copy",)), "a")):
        world.broker.reloading.replace_diverts([divert])
        found = ""
        for vhost, body in ((world.vhost, "a"), (world.broker.virtual_hosts["v"], "b")):
            copy = vhost.queues.create("copy", is_auto_created=False)
            vhost.queues.create("q", is_auto_created=False)
            header = encode_header(1, {})
            publish_by_name(vhost.context, Envelope("", "q"), [NATIVE.join(header, body.encode())])
            found += "".join(message.body.decode() for message in copy.messages())
            copy.purge()
        assert found == copies


def test_reloaded_settings_reach_publishers_that_have_published_before() -> None:
    """Their routes, which have the rules of the address, are looked up again."""
    world = Harness()
    world.queue()
    route = world.route("q")
    world.reload(SettingsRepository([entry("q", enable_ingress_timestamp=True)]))
    assert route.is_stale
    world.publish("a")
    got = world.get()
    assert got is not None and "_AMQ_INGRESS_TIMESTAMP" in got[1].envelope.headers(got[1].content)


def test_reloaded_settings_delete_unused_queues_that_were_there_before() -> None:
    """Those that clients declared, with auto-delete-created-queues; without it they stay."""
    world = Harness(options=BrokerOptions(address_queue_scan_period_ms=1000))
    world.queue(client=world.client)
    world.publish("a")
    world.take()
    world.advance(10_000)
    assert "q" in world.vhost.queues
    world.reload(SettingsRepository([entry("#", auto_delete_created_queues=True)]))
    world.advance(10_000)
    assert "q" not in world.vhost.queues
