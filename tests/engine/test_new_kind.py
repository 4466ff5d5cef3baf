"""A package adds a kind of queue with one registration; no other file of the broker has a word of it.

Here it is a queue that delivers its newest message first: a dispatch of its own, and the parts of classic queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from desk import Refused, VirtualDesk, load
from durable_desk import PATH, DurableDesk
from queue_world import QueueWorld
from simulated_files import SimulatedFiles

from leveret.console.cluster import replicas_of
from leveret.console.views.queues import queue_view
from leveret.engine import (
    NATIVE,
    QUEUE_TYPES,
    Broker,
    Client,
    EngineError,
    Envelope,
    Field,
    FieldTable,
    ManualClock,
    Message,
    Queue,
    User,
    encode_header,
    scan_properties,
)
from leveret.engine.errors import InequivalentArgument, InvalidArgument, UnsupportedArgument
from leveret.engine.invariants import check_broker
from leveret.engine.queues.classic import ClassicDispatch
from leveret.engine.queues.kinds import CLASSIC, KINDS, OPTIONAL_KINDS, register
from leveret.engine.queues.parts import Parts
from leveret.engine.stores.tailed_store import TailedStore
from leveret.journal import JournalError
from leveret.journal.recording.checkpoint import checkpoint
from leveret.serving.composition import Data, DataUnusable, build_broker
from leveret.settings import Policies, make_policy

TYPE = "newest-first"
ARGUMENTS = {"x-queue-type": Field("S", TYPE.encode())}


class NewestFirstDispatch(ClassicDispatch):
    """The newest message goes first, also one that is paged out. No priorities, no groups, no filters."""

    def dispatch(self, queue: Queue) -> None:
        turn = queue.context.broker.turn
        while not queue.freeze_count and (newest := _newest(queue)) and (eligible := queue.consumer_list.eligible(1)):
            (consumer,) = eligible
            consumer.session.deliver_ready(consumer, queue.consumable.take_at(newest).messages)
            if turn.is_long:
                queue.mark()
                break

    def pop(self, queue: Queue) -> Message | None:
        queue.note_use()
        found = queue.consumable.take_at(_newest(queue)).messages
        return found[0] if found else None

    def wants_load(self, queue: Queue) -> bool:
        return False  # nothing is read before it is taken: that would be the oldest


def _newest(queue: Queue) -> list[int]:
    """Its position; empty where nothing is ready."""
    assert isinstance(queue.store, TailedStore)
    return queue.store.positions(0, len(queue.store))[-1:]


def _parts(queue: Queue) -> Parts:
    return CLASSIC.make_parts(queue)._replace(dispatch=NewestFirstDispatch())


NEWEST_FIRST = replace(CLASSIC, name=TYPE, make_parts=_parts)


@pytest.fixture
def registered() -> Iterator[None]:
    """The package is there; afterwards the broker does not know the type any more."""
    kinds, types = dict(KINDS), dict(QUEUE_TYPES)
    register(TYPE, NEWEST_FIRST)
    yield
    del KINDS[TYPE], QUEUE_TYPES[TYPE]
    assert (kinds, types) == (KINDS, QUEUE_TYPES)


def bodies(desk: VirtualDesk) -> str:
    """Of what consumers got since the last look; the broker does not contradict itself."""
    desk.pair.settle()
    check_broker(desk.pair.broker)
    return "".join(got.body for got in desk.taken())


# -- through its verbs ------------------------------------------------------------------------------------------------


def client_of(broker: Broker) -> Client:
    client = broker.connections.open("/", User("guest"), name="test", flush=lambda: None)
    client.flush = lambda: (client.take_outbox(), client.drained())  # type: ignore[func-returns-value]
    return client


def test_a_queue_of_the_new_kind(registered: None) -> None:
    """Declare, publish, get, requeue, consume, purge and delete, in the engine alone."""
    broker = Broker(ManualClock())
    client = client_of(broker)
    vhost, session = client.vhost, client.open_session()
    queue = vhost.queues.declare("q", client=client, durable=True, arguments=ARGUMENTS)
    assert (queue.kind, queue.type) == (NEWEST_FIRST, TYPE)
    assert vhost.queues.declare("q", client=client, durable=True, arguments=ARGUMENTS) is queue
    with pytest.raises(InequivalentArgument):
        vhost.queues.declare("q", client=client, durable=True)
    header = encode_header(1, {})
    envelope = Envelope("", "q", scan_properties(header[12:]))

    def publish(count: int) -> None:
        route = vhost.router.route("", "q", client.user)
        session.publish(route, envelope, [NATIVE.join(header, b"x")] * count, mandatory=False)
        settle()

    def settle() -> None:
        while broker.end_turn():
            pass
        check_broker(broker)

    publish(5)
    oldest = queue.first_messages(1)[0].id
    tag, message, _, left = session.get(queue, no_ack=False)
    assert (message.id, left) == (oldest + 4, 4)
    session.reject(tag, requeue=True)
    settle()
    assert queue.ready_count == 5
    session.set_prefetch(2, total=False)
    consumer = session.consume(queue, "c", no_ack=False, exclusive=False, arguments={})
    settle()
    assert [one.id for one in queue.store] == [oldest, oldest + 1, oldest + 2]
    assert vhost.queues.purge("q", client) == 3
    session.cancel("c")
    assert consumer not in queue.consumers
    publish(1)
    assert len(queue.store) == 1 and queue.unacked == 2
    assert vhost.queues.delete("q", client) == 1
    settle()
    assert "q" not in vhost.queues


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"x-queue-type": Field("S", b"newest")}, InvalidArgument),
        ({**ARGUMENTS, "x-max-age": Field("S", b"1D")}, UnsupportedArgument),  # of streams
        ({**ARGUMENTS, "x-max-length": Field("S", b"2")}, InvalidArgument),
    ],
)
def test_arguments_are_checked(registered: None, arguments: FieldTable, error: type[EngineError]) -> None:
    """Other unknown types are refused still; the new one takes what classic queues take."""
    client = client_of(Broker(ManualClock()))
    with pytest.raises(error):
        client.vhost.queues.declare("q", client=client, durable=True, arguments=arguments)


def test_a_new_policy_reaches_its_queues(registered: None) -> None:
    """Those that are there, as it reaches the next ones: a policy of classic queues is one of this type."""
    broker = Broker(ManualClock())
    client = client_of(broker)
    queue = client.vhost.queues.declare("q", client=client, durable=True, arguments=ARGUMENTS)
    policy = make_policy("p", "/", "^q", {"max-length": 2}, apply_to="classic_queues")
    broker.reloading.replace_policies(Policies([policy]))
    assert queue.rules.max_length == 2
    broker.reloading.replace_policies(Policies())
    assert queue.rules.max_length is None


def test_the_type_is_refused_where_no_package_registers_it() -> None:
    client = client_of(Broker(ManualClock()))
    with pytest.raises(InvalidArgument) as refused:
        client.vhost.queues.declare("q", client=client, durable=True, arguments=ARGUMENTS)
    assert vars(refused.value)["reason"].word == f"unsupported queue type '{TYPE}'"


def test_types_are_those_of_the_registry() -> None:
    """What may be declared has a kind, or a package that registers one."""
    assert QUEUE_TYPES.keys() == KINDS.keys() | OPTIONAL_KINDS.keys()


# -- through the rest of the broker -----------------------------------------------------------------------------------


def test_over_amqp(registered: None) -> None:
    """In octets: consumers get the newest first, also of what comes back, and of what one of two has no room for."""
    desk = VirtualDesk()
    with pytest.raises(Refused, match="unsupported queue type 'newest'"):
        desk.declare(x_queue_type="newest")
    desk.declare(x_queue_type=TYPE)
    desk.publish(*"ABCDE")
    desk.consume(prefetch=2)
    assert bodies(desk) == "ED"
    desk.publish("F")
    desk.nack(0, multiple=True)
    assert bodies(desk) == "FE"
    desk.ack(4)
    assert bodies(desk) == "D"
    desk.cancel()
    desk.recover()
    assert desk.all() == "FDCBA"
    desk.publish("G")
    assert desk.purge() == 1
    assert desk.delete() == 0


def test_what_is_paged_out_goes_newest_first(registered: None) -> None:
    """Messages that have no room in memory are the newest ones: each is read when it is taken."""
    world = QueueWorld(ARGUMENTS, {}, memory=1 << 20)
    bodies = [b"%02d" % number for number in range(40)]
    world.write(bodies, {"delivery_mode": 2})
    world.end_turn()
    world.q.pageable.page_out(1 << 20, count_max=10)
    assert world.q.paged_count == 10
    world.join("c", prefetch=3)
    world.end_turn()
    world.sessions[0].reject(0, multiple=True, requeue=True)
    world.end_turn()
    while world.sessions[0].unacked:
        world.sessions[0].ack(0, multiple=True)
        world.end_turn()
        world.check()
    assert [content[0] for _, content in world.seen["c"]] == [*bodies[:-4:-1], *bodies[::-1]]


def test_it_survives_a_restart(registered: None) -> None:
    """With its type, its messages and their order; what was out is back."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare(x_queue_type=TYPE)
    desk.publish(*"ABCD")
    desk.settle()
    assert desk.confirms() == ["Ack"]
    desk.consume(prefetch=1)
    assert bodies(desk) == "D"
    after = DurableDesk(files.power_cut(), wall_ms=desk.wall_ms)
    assert after.vhost.queues["q"].kind is NEWEST_FIRST
    assert after.declare(x_queue_type=TYPE) == 4
    after.consume(prefetch=4)
    assert bodies(after) == "DCBA"


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_without_its_package_the_journal_is_refused(registered: None, is_checkpointed: bool) -> None:
    """The broker names the queue and its type and changes nothing; with the package all is there again."""
    files = SimulatedFiles()
    desk = DurableDesk(files)
    desk.declare("other")
    desk.declare(x_queue_type=TYPE)
    desk.publish(*"AB")
    desk.settle()
    if is_checkpointed:
        list(checkpoint(desk.pair.broker, desk.journal, desk.recorder))
        desk.settle()
        assert desk.journal.statistics().checkpoint_lsn
    found = files.power_cut()
    before = {name: found.content(name) for name in found.names_now}
    kind = KINDS.pop(TYPE), QUEUE_TYPES.pop(TYPE)
    with pytest.raises(JournalError, match="queue 'q' in virtual host '/' is of type 'newest-first'") as refused:
        DurableDesk(found, wall_ms=desk.wall_ms)
    assert "install that package again" in str(refused.value)
    assert {name: found.content(name) for name in found.names_now} == before
    with pytest.raises(DataUnusable, match="data directory data: queue 'q' in virtual host '/' is of type"):
        build_broker(load(""), ManualClock(), lambda: 0.5, Data(PATH, files=found))
    KINDS[TYPE], QUEUE_TYPES[TYPE] = kind
    after = DurableDesk(found, wall_ms=desk.wall_ms)
    assert after.vhost.queues["q"].kind is NEWEST_FIRST
    after.consume(prefetch=4)
    assert bodies(after) == "BA"


def test_settings_policies_and_views(registered: None) -> None:
    """A file may declare it, policies of queues apply to it, the console shows it, a virtual host has it by default."""
    desk = VirtualDesk(
        f"""
        [[queue]]
        name = "q"
        type = "{TYPE}"
        [[policy]]
        name = "short"
        pattern = "^q$"
        apply-to = "queues"
        definition = {{ max-length = 2 }}
        """
    )
    queue = desk.vhost.queues["q"]
    assert queue.kind is NEWEST_FIRST
    desk.publish(*"ABC")
    assert desk.all() == "CB"  # the oldest was dropped
    view = queue_view(queue, replicas_of("here", None))
    assert (view["type"], view["policy"]) == (TYPE, "short")
    desk.command("vhosts", action="default-queue-type", name="/", type=TYPE)
    document = desk.command("definitions", action="export")
    desk.command("vhosts", action="default-queue-type", name="/")
    desk.command("definitions", action="import", definitions=document)
    desk.declare("other")
    assert desk.vhost.queues["other"].kind is NEWEST_FIRST
