"""Each way into a queue meets each obstacle there: what is in the queue, what its publisher hears, what others get.

Source: behaviour page 2.14, 2.15, 3.3; address-settings page 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from stand_in_journal import StandInJournal

from leveret.engine import Envelope, Field
from leveret.engine.clients import transaction
from leveret.engine.errors import PartialCommit
from leveret.testing.harness import Harness, arguments_of, load, messages

SENT = [b"00", b"11", b"22", b"33", b"44"]


class World(Harness):
    """`q` has an obstacle; `other`, which is not durable, has none. `dead` gets what `q` makes dead letters of."""

    ends_turns = False
    checks = True
    properties = {"delivery_mode": 2}

    def __init__(self, arguments: dict[str, Any], toml: str, *, fails: bool) -> None:
        super().__init__(load(toml).repository)
        for name, more in (("dead", {}), ("q", arguments), ("other", {})):
            self.queue(name, durable=name == "q", **more)
        for name in ("q", "other"):
            self.bind(name, "amq.direct", name)
        for exchange, names in (("q first", ("q", "other")), ("q last", ("other", "q"))):
            for kind in ("fanout", "headers"):
                self.vhost.exchanges.declare(f"{kind}, {exchange}", kind)
                for name in names:
                    self.bind(name, f"{kind}, {exchange}")
        if fails:
            self.broker.context.storage.durability = journal = StandInJournal()
            journal.has_failed = True

    def message(self, exchange: str, key: str, body: bytes, **headers: Field) -> tuple[Envelope, bytes]:
        summary, (content,) = messages([body], {"delivery_mode": 2, **({"headers": headers} if headers else {})})
        return Envelope(exchange, key, summary), content

    def send(self, exchange: str, key: str, bodies: Sequence[bytes], **headers: Field) -> None:
        """A run."""
        more = {"headers": headers} if headers else {}
        assert self.publish(*bodies, key=key, exchange=exchange, mandatory=True, **more) == []


# -- the ways ---------------------------------------------------------------------------------------------------------


def _in_a_run(exchange: str, key: str = "") -> Callable[[World], None]:
    return lambda world: world.send(exchange, key, SENT)


def _one_by_one(world: World) -> None:
    for body in SENT:
        world.send("", "q", [body])


def _by_copies(world: World) -> None:
    for body in SENT:
        world.send("", "other", [body], CC=Field("A", [Field("S", b"q")]))


def _by_copies_of_an_exchange(world: World) -> None:
    for body in SENT:
        world.send("amq.direct", "other", [body], CC=Field("A", [Field("S", b"q")]))


def _with_ids(world: World) -> None:
    """Against duplicates."""
    for body in SENT:
        world.send("fanout, q first", "", [body], **{"_AMQ_DUPL_ID": Field("S", body)})


def _mixed(world: World) -> None:
    """In one run with messages that have other properties."""
    made = [world.message("", "q", body, **({"n": Field("l", 1)} if body > b"2" else {})) for body in SENT]
    queue = world.vhost.queues.named("q")
    world.session.publish_mixed([queue] * len(SENT), *map(list, zip(*made)))


def _mixed_among_others(world: World) -> None:
    """And with messages of the other queue."""
    made = [world.message("", name, body) for body in SENT for name in ("q", "other")]
    queues = [world.vhost.queues.named(name) for _ in SENT for name in ("q", "other")]
    world.session.publish_mixed(queues, *map(list, zip(*made)))


#: Name -> how, and whether the other queue gets the same messages.
WAYS: dict[str, tuple[Callable[[World], None], bool]] = {
    "in a run": (_in_a_run("", "q"), False),
    "one by one": (_one_by_one, False),
    "fanout, q first": (_in_a_run("fanout, q first"), True),
    "fanout, q last": (_in_a_run("fanout, q last"), True),
    "headers, q first": (_in_a_run("headers, q first"), True),
    "headers, q last": (_in_a_run("headers, q last"), True),
    "by copies": (_by_copies, True),
    "by copies of an exchange": (_by_copies_of_an_exchange, True),
    "with ids": (_with_ids, True),
    "mixed": (_mixed, False),
    "mixed among others": (_mixed_among_others, True),
}

SETTING = '[[address-setting]]\nmatch = "q"\n'
FULL = SETTING + 'max-size-messages = 2\naddress-full-policy = "{}"\n'
REJECTS = {"x_overflow": "reject-publish"}
DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
#: Name -> arguments and settings of `q`; what is in it then; what is heard of each; what becomes a dead letter.
OBSTACLES: dict[str, tuple[dict[str, Any], str, Sequence[bytes], str, Sequence[bytes]]] = {
    "none": ({}, "", SENT, "AAAAA", ()),
    "length": (dict(x_max_length=2, **REJECTS, **DEAD), "", SENT[:2], "AANNN", ()),
    "octets": (dict(x_max_length_bytes=5, **REJECTS, **DEAD), "", SENT[:2], "AANNN", ()),
    "length, dead letters": (
        dict(x_max_length=2, x_overflow="reject-publish-dlx", **DEAD), "", SENT[:2], "AANNN", SENT[2:],
    ),
    "oldest go": (dict(x_max_length=2, **DEAD), "", SENT[3:], "AAAAA", SENT[:3]),
    "ring": (dict(x_ring_size=2, **DEAD), "", SENT[3:], "AAAAA", ()),
    "FAIL": ({}, FULL.format("FAIL"), SENT[:2], "AANNN", ()),
    "DROP": ({}, FULL.format("DROP"), SENT[:2], "AAAAA", ()),
    "time is over": (dict(x_message_ttl=0, **DEAD), "", (), "AAAAA", SENT),
    "journal fails": ({}, "", (), "NNNNN", ()),
    "journal fails, DROP": ({}, SETTING + 'disk-full-policy = "DROP"\n', (), "AAAAA", ()),
}  # fmt: skip


def _world(obstacle: str) -> World:
    arguments, toml, *_ = OBSTACLES[obstacle]
    return World(arguments, toml, fails=obstacle.startswith("journal"))


#: Frontends publish mixed runs only while the journal takes them.
PAIRS = [(way, one) for way in WAYS for one in OBSTACLES if not (way.startswith("mixed") and one.startswith("journal"))]


@pytest.mark.parametrize("way, obstacle", PAIRS)
def test_a_publisher_hears_what_became_of_each(way: str, obstacle: str) -> None:
    """A nack for each that any of its queues refused, and for no other; the other queue has all of them."""
    goes, has_other = WAYS[way]
    _, _, left, heard, dead = OBSTACLES[obstacle]
    world = _world(obstacle)
    world.session.select_confirms()
    goes(world)
    world.end_turn()
    assert world.bodies("q") == [*left]
    assert world.bodies("other") == (SENT if has_other else [])
    assert world.bodies("dead") == [*dead]
    if way == "mixed among others":
        heard = "".join(one + "A" for one in heard)
    assert world.confirms() == heard
    if obstacle not in ("oldest go", "ring", "time is over", "length, dead letters"):
        assert world.vhost.queues.named("q").counters.dropped == len(SENT) - len(left)


@pytest.mark.parametrize("slice_", [1, 10, 2_000])
@pytest.mark.parametrize("obstacle", [one for one in OBSTACLES if not one.startswith("journal")])
@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("mixed")])
def test_a_transaction_that_is_not_taken_whole_says_so(way: str, obstacle: str, slice_: int) -> None:
    """The same queues; the commit fails if any of them refused something, however it was cut."""
    goes, has_other = WAYS[way]
    _, _, left, heard, dead = OBSTACLES[obstacle]
    world = _world(obstacle)
    world.session.select_transactions()
    goes(world)
    assert world.bodies("q") == world.bodies("other") == []
    with patch.object(transaction, "COMMIT_SLICE", slice_):
        commit = world.session.commit()
        world.end_turn()
    if "N" in heard:
        with pytest.raises(PartialCommit):
            commit.outcome()
    else:
        assert commit.outcome() == []
    assert world.bodies("q") == [*left]
    assert world.bodies("other") == (SENT if has_other else [])
    assert world.bodies("dead") == [*dead]


@pytest.mark.parametrize("obstacle", ["length", "octets", "FAIL", "journal fails"])
def test_what_was_refused_is_no_duplicate_when_it_comes_again(obstacle: str) -> None:
    """Its publisher tries again with the same id: it is taken as soon as there is room; what was taken is not."""
    world = _world(obstacle)
    world.session.select_confirms()
    _with_ids(world)
    world.vhost.queues.named("q").purge()
    world.vhost.queues.named("other").purge()
    if world.broker.context.storage.durability is not None:
        world.broker.context.storage.durability = StandInJournal()
    _, _, left, *_ = OBSTACLES[obstacle]
    world.session = world.connect()
    world.session.select_confirms()
    for body in SENT:
        world.send("fanout, q first", "", [body], **{"_AMQ_DUPL_ID": Field("S", body)})
        if body not in left:
            assert world.bodies("q") == [body]
        else:
            assert world.bodies("q") == []
        world.vhost.queues.named("q").purge()
    assert world.confirms() == "AAAAA"


# -- what the broker itself publishes ---------------------------------------------------------------------------------


def _dead_letters(world: World) -> None:
    world.queue("dying", durable=False, x_dead_letter_exchange="fanout, q first", x_message_ttl=0)
    world.send("", "dying", SENT)


def _rejected(world: World) -> None:
    world.queue("dying", durable=False, x_dead_letter_exchange="fanout, q last")
    world.send("", "dying", SENT)
    for _ in SENT:
        world.get("dying", no_ack=False)
    world.session.reject(0, multiple=True, requeue=False)


def _by_an_alternate_exchange(world: World) -> None:
    alternate = arguments_of({"alternate_exchange": "fanout, q first"})
    world.vhost.exchanges.declare("empty", "direct", arguments=alternate)
    world.send("empty", "k", SENT)


@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize("goes", [_dead_letters, _rejected, _by_an_alternate_exchange])
def test_what_nobody_waits_for_an_answer_of(goes: Callable[[World], None], obstacle: str) -> None:
    """Dead letters and detours meet the same obstacles; what is refused is gone, and stops none of the others."""
    _, _, left, _, dead = OBSTACLES[obstacle]
    world = _world(obstacle)
    goes(world)
    world.end_turn()
    if obstacle.startswith("journal") and goes is not _by_an_alternate_exchange:
        return  # a dead letter is recorded with the death
    assert world.bodies("q") == [*left]
    assert world.bodies("other") == SENT
    assert world.bodies("dead") == [*dead]
