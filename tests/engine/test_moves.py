"""What an operator moves: nothing is lost, whatever the target does with it (docs/operating.md; management page 16).

A message leaves its queue when all queues have it that it goes to, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in_journal import StandInJournal

from leveret.engine import (
    MS,
    Choice,
    EngineError,
    Event,
    Field,
    FieldTable,
    FindTarget,
    Grant,
    Moving,
    Permissions,
    TopicPermission,
    User,
    to_origin,
    to_queue,
)
from leveret.engine.messages.content import headers_of
from leveret.engine.messages.message import Message
from leveret.engine.move_targets import MoveTarget, to_exchange
from leveret.engine.moving import QueueGone
from leveret.engine.publishing.publish_events import PublishedEvent
from leveret.engine.queues import reconfigure
from leveret.testing.harness import Harness, load

ALL = Choice(lambda message: True)
LENGTH: FieldTable = {"x-max-length": Field("l", 2)}
OCTETS: FieldTable = {"x-max-length-bytes": Field("l", 4)}
REJECTS: FieldTable = {"x-overflow": Field("S", b"reject-publish")}
#: Settings of the address `to`, where two messages are as many as it may hold.
FULL = '[[address-setting]]\nmatch = "to"\nmax-size-messages = 2\naddress-full-policy = "{}"\n'


class World(Harness):
    """A queue `from`, and two that the exchange `both` leads to: `to`, with these arguments, and `beside`."""

    checks = True
    properties = {"delivery_mode": 2}

    def __init__(self, arguments: FieldTable, toml: str = "", *, shared: bool = False) -> None:
        """`shared`: `beside` has the address of `to`."""
        super().__init__(load(toml).repository)
        self.vhost.exchanges.declare("both", "fanout")
        self.arguments: dict[str, FieldTable] = {"from": {}, "to": arguments, "beside": {}}
        if shared:
            self.arguments["beside"] = {"x-address": Field("S", b"to")}
        for name in self.arguments:
            self.declare(name)
        self.number = 0

    def declare(self, name: str) -> None:
        self.queue(name, **self.arguments[name])
        if name != "from":
            self.bind(name, "both")

    def fill(self, queue: str, count: int) -> list[bytes]:
        """Bodies of two octets, each another one."""
        bodies = [b"%02d" % (number % 100) for number in range(self.number, self.number + count)]
        self.number += count
        self.publish(*bodies, key=queue)
        return bodies

    def moving(self, to: str = "to") -> Moving:
        find_target = to_exchange(self.client, "both", "") if to == "both" else to_queue(self.client, to)
        return Moving(self.vhost.queues.named("from"), self.client, ALL, find_target, "moved")


@pytest.mark.parametrize(
    "arguments, toml, waits_for, there",
    [
        ({}, "", "", "0123"),
        (LENGTH, "", "room in queue 'to'", "01"),
        (LENGTH | REJECTS, "", "room in queue 'to'", "01"),
        (OCTETS, "", "room in queue 'to'", "01"),
        (OCTETS | REJECTS, "", "room in queue 'to'", "01"),
        ({}, FULL.format("FAIL"), "room in queue 'to'", "01"),
        ({}, FULL.format("DROP"), "room in queue 'to'", "01"),
        ({}, FULL.format("BLOCK"), "room in address 'to' in vhost '/'", "01"),
        ({"x-ring-size": Field("l", 2)}, "", "", "23"),
        ({"x-message-ttl": Field("l", 0)}, "", "", ""),
    ],
    ids=["any", "head", "length", "head octets", "octets", "FAIL", "DROP", "BLOCK", "ring", "ttl"],
)
@pytest.mark.parametrize("target", ["to", "both"])
def test_a_target_takes_what_it_has_room_for(
    target: str, arguments: FieldTable, toml: str, waits_for: str, there: str
) -> None:
    """The rest waits in its place, in order; only a ring and a time to live do what they are for.

    Of two queues the fuller one decides: none gets what the other can not have.
    """
    world = World(arguments, toml)
    bodies = world.fill("from", 4)
    moving = world.moving(target)
    for _ in range(2):
        moving.work()
        world.end_turn()
        count = 2 if waits_for else 4
        assert (moving.waits_for, moving.done, moving.kept, moving.looked_at) == (waits_for, count, {}, count)
        assert world.bodies("to") == [bodies[int(one)] for one in there]
        assert world.bodies("from") == bodies[count:]
        assert world.bodies("beside") == (bodies[:count] if target == "both" else [])


def test_what_is_read_again_counts_once() -> None:
    """While a move waits for room it reads the rest again, and what was published since."""
    world = World(LENGTH | REJECTS)
    world.fill("to", 1)
    world.fill("from", 3)
    takes_first, nowhere = to_queue(world.client, "to"), to_queue(world.client, "nowhere")
    last = world.vhost.queues.named("from").scan(0, 3).found[-1][1].id

    def find_target(message: Message) -> MoveTarget:
        return nowhere(message) if message.id == last else takes_first(message)

    moving = Moving(world.vhost.queues.named("from"), world.client, ALL, find_target, "moved")
    world.fill("from", 2)
    for _ in range(3):
        moving.work()
        world.end_turn()
        assert (moving.waits_for, moving.done, moving.looked_at) == ("room in queue 'to'", 1, 1)
        assert moving.kept == {}
    world.vhost.queues.purge("to", world.client)
    moving.work()
    world.end_turn()
    assert (moving.is_done, moving.done, moving.looked_at) == (True, 2, 3)
    assert moving.kept == {"there is no queue 'nowhere'": 1}


def test_a_message_stays_until_all_have_it() -> None:
    """Two queues share what their address may hold: there is room for one, and the message goes to both.

    It is where it was, and counted as refused; the next one waits for room.
    """
    world = World({}, FULL.format("FAIL").replace("= 2", "= 1"), shared=True)
    bodies = world.fill("from", 3)
    moving = world.moving("both")
    moving.work()
    world.end_turn()
    assert world.bodies("from") == bodies
    assert (moving.done, moving.kept) == (0, {"refused by a limit, on the way to exchange both, key ": 1})
    assert moving.waits_for and not moving.is_done


@pytest.mark.parametrize("target", ["to", "both"])
def test_the_journal_fails_in_the_middle_of_a_slice(target: str) -> None:
    """What it did not take any more is where it was."""
    world = World({})
    bodies = world.fill("from", 5)
    journal = StandInJournal()
    world.broker.context.storage.durability = journal
    published = 0

    def fail(event: Event) -> None:
        nonlocal published
        published += isinstance(event, PublishedEvent)
        journal.has_failed = published > 2

    world.broker.context.listeners.append(fail)
    moving = world.moving(target)
    moving.work()
    world.end_turn()
    assert (world.bodies("to"), world.bodies("from")) == (bodies[:2], bodies[2:])
    assert (moving.done, sum(moving.kept.values())) == (2, 3)
    moving.work()
    assert (moving.waits_for, moving.done) == ("the journal", 2)


# -- others are at work meanwhile -------------------------------------------------------------------------------------

KINDS: dict[str, tuple[FieldTable, str]] = {
    "any": ({}, ""),
    "length": (LENGTH, ""),
    "octets": (OCTETS | REJECTS, ""),
    "FAIL": ({}, FULL.format("FAIL")),
    "DROP": ({}, FULL.format("DROP")),
    "BLOCK": ({}, FULL.format("BLOCK")),
}
STEP = st.tuples(
    st.sampled_from(("move", "move", "move", "take", "take", "publish", "hold", "give back", "purge", "delete")),
    st.sampled_from(("from", "to", "beside")),
    st.integers(1, 4),
)


@pytest.mark.parametrize("target", ["to", "both"])
@settings(max_examples=40)
@given(kind=st.sampled_from(list(KINDS)), steps=st.lists(STEP, max_size=25))
def test_each_is_in_one_place(target: str, kind: str, steps: list[tuple[str, str, int]]) -> None:
    """Whoever takes, gives back, purges and deletes: for each target a message is there, or still where it was."""
    world = World(*KINDS[kind])
    targets = ["to", "beside"] if target == "both" else ["to"]
    started, gone = world.fill("from", 9), {name: list[bytes]() for name in world.arguments}
    moving = world.moving(target)
    for what, name, count in steps:
        if what == "move":
            moving.work(count)
        elif what == "publish" and name == "from":
            world.fill("from", 1)  # it came later: it stays
        elif what == "take":
            found = world.session.get(world.vhost.queues.named(name), no_ack=True)
            gone[name] += [] if found is None else [found[1].body]
        elif what == "hold" and name == "from":
            world.session.get(world.vhost.queues.named(name), no_ack=False)
        elif what == "give back":
            world.session.reject(0, multiple=True, requeue=True)
        elif what in ("purge", "delete") and name != "from":
            gone[name] += world.bodies(name)
            if what == "purge":
                world.vhost.queues.named(name).purge()
            else:
                world.vhost.queues.delete(name, world.client)
                world.declare(name)
        world.end_turn()
        _check(world, started, gone, targets, moving)
    while moving.waits_for or not moving.is_done:
        for name in targets:
            gone[name] += world.bodies(name)
            world.vhost.queues.named(name).purge()
        moving.work()
        world.end_turn()
        _check(world, started, gone, targets, moving)
    if "hold" not in [what for what, _, _ in steps]:  # what came back behind it stays
        assert not set(world.bodies("from")) & set(started)


def _check(world: World, started: list[bytes], gone: Any, targets: list[str], moving: Moving) -> None:
    """`gone`: bodies that were taken or purged, by queue."""
    source = world.bodies("from") + [message.body for message in world.session.unacked.values()]
    left = [body for body in started if body not in source and body not in gone["from"]]
    assert len(left) == moving.done and not moving.kept
    for name in targets:
        assert sorted(gone[name] + world.bodies(name)) == left


def test_nothing_is_moved_while_an_alarm_lasts() -> None:
    """It blocks publishers, and a move publishes; what is moved already stays moved."""
    world = World({})
    bodies = world.fill("from", 4)
    moving = world.moving()
    moving.work(1)
    world.broker.flow.raise_alarm("tea break")
    moving.work()
    assert (moving.waits_for, moving.done, moving.is_done) == ("the end of the alarm", 1, False)
    assert world.bodies("from") == bodies[1:]
    world.broker.flow.end_alarm()
    moving.work()
    world.end_turn()
    assert (moving.waits_for, world.bodies("to")) == ("", bodies)


def test_a_move_waits_while_messages_come_back() -> None:
    """Their places are not known yet; a job looks again later, and does not ask in each turn."""
    world = World({})
    bodies = world.fill("from", 2)
    queue = world.vhost.queues.named("from")
    moving = world.moving()
    queue.freeze()
    moving.work()
    assert (moving.waits_for, moving.done) == ("the end of returns or of expiry in queue 'from'", 0)
    queue.unfreeze()
    moving.work()
    assert (moving.waits_for, world.bodies("to")) == ("", bodies)


# -- which messages, and where to ------------------------------------------------------------------------------------


def test_what_has_expired_is_not_moved() -> None:
    """It stands behind a message that lives; a move would give it a new life."""
    world = World({})
    world.publish(b"a", key="from")
    world.publish(b"b", key="from", expiration=b"1000")
    world.clock.advance_ns(2000 * MS)
    moving = world.moving()
    moving.work()
    assert (moving.is_done, moving.done, world.bodies("to")) == (True, 1, [b"a"])


def test_no_more_are_moved_than_asked_for() -> None:
    """The last slice is smaller than the others."""
    world = World({})
    bodies = world.fill("from", 70)
    queue = world.vhost.queues.named("from")
    moving = Moving(queue, world.client, Choice(lambda message: True, limit=60), to_queue(world.client, "to"), "moved")
    while not moving.is_done:
        moving.work()
    assert (world.bodies("to"), world.bodies("from")) == (bodies[:60], bodies[60:])


def test_nothing_is_moved_that_a_consumer_has_room_for() -> None:
    """What it may have now goes to it first."""
    world = World({})
    for body in "abc":
        world.publish(body, key="from")
    world.consume("from", prefetch=1)
    world.ends_turns = False
    world.session.ack(1)
    moving = world.moving()
    moving.work()
    world.finish_turns()
    assert (world.taken(), world.bodies("to"), moving.done) == ("ab", [b"c"], 1)


def test_a_move_out_of_a_queue_that_is_deleted_fails() -> None:
    """It does not look like one that is done."""
    world = World({})
    world.fill("from", 3)
    moving = Moving(
        world.vhost.queues.named("from"), world.client, Choice(lambda message: True), to_queue(world.client, "to"), "m"
    )
    moving.work(1)
    world.vhost.queues.delete("from", world.client)
    with pytest.raises(QueueGone):
        moving.work(1)
    assert len(world.bodies("to")) == 1 and not moving.is_done


def _name_of(error: EngineError) -> str:
    return type(error).__name__


class Graveyard(Harness):
    """Messages that were published to the topic exchange `t` with the key `a`, and `b` in CC, died in the queue `life`.

    They are in `from`. `life` is bound with `a`, `beside` with `b`.
    """

    def __init__(self, write: str = ".*", topics: Mapping[str, TopicPermission] = MappingProxyType({})) -> None:
        """`write`, `topics`: what the user who replays them may do."""
        super().__init__()
        self.vhost.exchanges.declare("t", "topic")
        self.queue("from")
        self.queue("life", x_dead_letter_exchange="", x_dead_letter_routing_key="from")
        self.queue("beside")
        self.bind("life", "t", "a")
        self.bind("beside", "t", "b")
        self.publish("m", key="a", exchange="t", headers={"CC": ["b"]})
        self.session.reject(self.session.get(self.named("life"), no_ack=False)[0], requeue=False)  # type: ignore[index]
        self.end_turn()
        assert self.all("beside") == "m"
        self.may(write, topics)

    def may(self, write: str, topics: Mapping[str, TopicPermission]) -> None:
        """Another user's client is the one that replays."""
        granted = Permissions(Grant(write=write, topics=topics), user="u", vhost="/")
        self.user = User("u", permissions=MappingProxyType({"/": granted}))
        self.broker.users.add(self.user)
        self.client = self.connect("other").client

    def replay(self, find_target: FindTarget) -> dict[str, int]:
        """Why messages stay."""
        moving = Moving(self.named("from"), self.client, ALL, find_target, "replayed", _name_of)
        moving.work()
        self.end_turn()
        assert moving.is_done
        return moving.kept


def test_a_replay_goes_to_each_key_that_the_message_had() -> None:
    """Also to those of CC."""
    world = Graveyard()
    assert world.replay(to_origin(world.client, into_queue=False, without_history=True)) == {}
    assert (world.all("life"), world.all("beside"), world.all("from")) == ("m", "m", "")


def test_a_replay_needs_the_permission_for_each_topic() -> None:
    """The user may write to `a`, and not to the key of CC."""
    world = Graveyard(topics={"t": TopicPermission("^a$", ".*")})
    (reason,) = world.replay(to_origin(world.client, into_queue=False, without_history=False))
    assert reason == "refused: TopicRefused"
    assert (world.all("life"), world.all("from")) == ("", "m")


def test_a_replay_into_a_queue_needs_the_permission_to_write_there() -> None:
    """Also straight into the queue that the message died in."""
    world = Graveyard(write="^from$")
    (reason,) = world.replay(to_origin(world.client, into_queue=True, without_history=False))
    assert reason == "refused: PermissionRefused"
    assert (world.all("life"), world.all("from")) == ("", "m")


def test_a_move_publishes_to_no_internal_exchange() -> None:
    """Clients may not; nor may an operator by a move."""
    world = Graveyard()
    world.vhost.exchanges.declare("inner", "fanout", internal=True)
    world.bind("life", "inner")
    (reason,) = world.replay(to_exchange(world.client, "inner", None))
    assert reason == "refused: InternalExchangeRefused"
    assert (world.all("life"), world.all("from")) == ("", "m")


def test_a_move_leaves_a_disabled_queue_alone() -> None:
    """It takes no messages until an operator enables it."""
    world = Graveyard()
    reconfigure.enable(world.named("life"), False)
    assert world.replay(to_queue(world.client, "life")) == {"queue 'life' takes no messages now": 1}
    assert world.all("from") == "m"


@pytest.mark.parametrize("place", ["queue", "exchange"])
def test_a_moved_message_has_no_attempts(place: str) -> None:
    """Not those that a header tells of either."""
    world = Graveyard()
    world.all("from")
    world.publish("n", key="from", headers={"x-delivery-count": 3, "kept": 1})
    to = to_queue(world.client, "life") if place == "queue" else to_exchange(world.client, "t", "a")
    assert world.replay(to) == {}
    got = world.get("life")
    assert got is not None
    assert list(headers_of(got[1].header)) == ["kept"]
