"""What filters of consumers cost: one evaluation a group, one reading of a body, turns that stay short, nobody starved.

Source: queues page B.5, F.6.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.engine import Broker, Envelope, ManualClock, Message, Session, errors
from leveret.engine.broker import SHORT_TURN_END_EFFORT
from leveret.engine.delivery.filter_groups import CACHED_MAX, CACHED_OCTETS, FilterCache
from leveret.engine.delivery.filters import MessageSubject
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.rules.consumer_filter import filter_of
from leveret.expressions.language import AMPS, Expression, compiled
from leveret.testing.harness import Harness

#: Of one turn, in units of effort: what `Broker` allows, a slice of each kind, and the run that is under way.
TURN_MAX = 12_000
SHORT_TURN_MAX = 2 * SHORT_TURN_END_EFFORT


class World(Harness):
    """A queue in memory, and clients that consume from it."""

    ends_turns = False

    def __init__(self) -> None:
        super().__init__()
        self.q = self.queue()

    def subscribe(self, tag: str, text: str, *, prefetch: int = 0) -> Session:
        session = self.connect("c")
        self.consume(tag=tag, by=session, prefetch=prefetch, **({"x_filter": text} if text else {}))
        return session

    def fill(self, count: int, *, first: int = 0) -> None:
        """A run: what one read of a socket may bring."""
        self.publish(*(b'{"n": %d}' % number for number in range(first, first + count)))

    @property
    def got(self) -> dict[str, list[bytes]]:
        """Bodies, by the consumer's tag."""
        got: dict[str, list[bytes]] = {}
        for one in self.deliveries:
            got.setdefault(one.consumer.tag, []).append(one.body)
        return got

    def spent(self) -> list[int]:
        """Until all is quiet: what each turn spent."""
        return list(self.turns(lambda: self.broker.context.turn.effort))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often filters were evaluated, and bodies read."""
    counts = {"evaluations": 0, "readings": 0}
    truth, body = Expression.truth, MessageSubject.body

    def counting_truth(self: Expression, subject: Any) -> bool | None:
        counts["evaluations"] += 1
        return truth(self, subject)

    def counting_body(self: MessageSubject) -> bytes:
        counts["readings"] += 1
        return body(self)

    monkeypatch.setattr(Expression, "truth", counting_truth)
    monkeypatch.setattr(MessageSubject, "body", counting_body)
    return counts


@pytest.mark.parametrize("is_there", [False, True], ids=["arrivals", "backlog"])
@pytest.mark.parametrize("distinct", [1, 7, 50])
def test_cost_grows_with_filters_not_with_consumers(counted: dict[str, int], distinct: int, is_there: bool) -> None:
    """Fifty consumers: one evaluation of each filter, one reading of each body."""
    world = World()
    if is_there:
        world.fill(100)
    for number in range(50):
        world.subscribe(f"c{number}", f"/n < {-1 - number % distinct}")
    if not is_there:
        world.fill(100)
    world.spent()
    assert counted == {"evaluations": 100 * distinct, "readings": 100}
    assert world.got == {}


@pytest.mark.parametrize("octets", [0, CACHED_OCTETS // 10])
def test_answers_are_kept_of_the_latest_messages_alone(octets: int) -> None:
    """However many filters ask about however many messages, and whatever these weigh; each answer is what it was."""
    lately, held = FilterCache(Broker(ManualClock()).context), 0
    filters = [compiled(f"/n > {limit}", AMPS) for limit in (10, 700, 1500)]
    for number in range(4 * CACHED_MAX):
        body = b'{"n": %d}' % number + b" " * octets
        message = Message(number, NATIVE.join(encode_header(len(body)), body), Envelope("", "q"))
        for _ in range(2):
            assert [lately.takes(one, message) for one in filters] == [number > limit for limit in (10, 700, 1500)]
        kept = [getattr(lately, name) for name in FilterCache.__slots__]
        held = max(held, *(len(one) for one in kept if isinstance(one, dict)))
    assert 0 < held <= len(filters) * (CACHED_MAX if not octets else 10)


def test_what_nobody_can_take_now_is_not_looked_at(counted: dict[str, int]) -> None:
    """A consumer without room looks ahead as far as a group may, and no further."""
    world = World()
    session = world.subscribe("c", "/n >= 0", prefetch=1)
    for first in range(0, 5000, 100):
        world.fill(100, first=first)
        world.spent()
    assert counted["evaluations"] < 1000
    for _ in range(3):
        session.ack_each(list(session.unacked))
        world.spent()
    assert world.got == {"c": [b'{"n": %d}' % number for number in range(4)]}


def test_a_plain_queue_has_no_selection() -> None:
    """And none is left when the last filter has gone."""
    world = World()
    world.subscribe("plain", "")
    assert world.q.selection is None and world.q.takes_plainly
    session = world.subscribe("c", "/n = 1")
    assert world.q.selection is not None and not world.q.takes_plainly
    session.close()
    world.spent()
    assert world.q.selection is None and world.q.takes_plainly


@pytest.mark.parametrize("is_there", [False, True], ids=["arrivals", "backlog"])
def test_turns_stay_short(is_there: bool) -> None:
    """Fifty filters and thousands of messages: each turn does a slice, and so does each run that arrives."""
    world = World()
    if is_there:
        world.fill(3000)
    for number in range(50):
        world.subscribe(f"c{number}", f"/n = {number}")
    spent = world.spent()
    for first in range(3000, 6000, 1000):
        before = world.broker.context.turn.effort
        world.fill(1000, first=first)
        spent.append(world.broker.context.turn.effort - before)
        spent += world.spent()
    assert max(spent) < TURN_MAX
    assert sum(map(len, world.got.values())) == (50 if is_there else 0)


def test_returns_in_great_numbers() -> None:
    """Ten thousand come back where fifty groups have looked: looked at again in slices, in their order."""
    world = World()
    world.fill(10_000)
    session = world.subscribe("first", "/n >= 0")
    world.spent()
    for number in range(50):
        world.subscribe(f"c{number}", f"/n = {number * 100}")
    world.spent()
    session.close()
    spent = world.spent()
    assert max(spent) < TURN_MAX
    expected = {f"c{number}": [b'{"n": %d}' % (number * 100)] for number in range(50)}
    assert {tag: got for tag, got in world.got.items() if tag != "first"} == expected


def test_all_that_came_back_is_looked_at_before_any_is_handed_out() -> None:
    """The young ones came back first: the oldest are handed out first, though that takes several turns to find out."""
    world = World()
    session = world.subscribe("first", "")
    waiting = world.subscribe("waiting", "/n >= 0", prefetch=1)
    waiting.flowing = False
    for first in range(0, 6000, 100):
        world.fill(100, first=first)
        world.spent()
    session.flowing = False
    tags = list(session.unacked)
    for tag in reversed(tags[2000:4000]):
        session.reject(tag, multiple=False, requeue=True, why="nacked")
    session.reject(tags[1999], multiple=True, requeue=True, why="nacked")
    world.spent()
    waiting.flowing = True
    world.q.mark()
    for _ in range(3):
        world.spent()
        waiting.ack_each(list(waiting.unacked))
    world.spent()
    assert world.got["waiting"] == [b'{"n": %d}' % number for number in range(4)]


def test_one_that_looks_through_a_backlog_starves_nobody() -> None:
    """While it looks through 50,000 messages, a consumer at the end gets what comes, turn by turn."""
    world = World()
    for first in range(0, 50_000, 1000):
        world.fill(1000, first=first)
    world.subscribe("end", "/n >= 50000")
    world.spent()
    world.subscribe("seldom", "/n = 49999")
    waits = []
    for number in range(50_000, 50_005):
        world.fill(1, first=number)
        count = 0
        while len(world.got.get("end", ())) <= number - 50_000:
            assert world.broker.end_turn()
            count += 1
        waits.append(count)
    assert max(waits) <= 2
    assert "seldom" not in world.got
    world.spent()
    assert world.got["seldom"] == [b'{"n": 49999}']


def test_octets_that_are_no_text_are_refused() -> None:
    """Of a long string that is no UTF-8 it is said where."""
    with pytest.raises(errors.InvalidArgument, match="octet 5: this is not UTF-8"):
        filter_of({"x-filter": Field("S", b"a = \xff")}, {}, name="q", vhost="/")


def test_a_filter_is_made_ready_once() -> None:
    """For all consumers that give it, as long as it knows the same facts."""
    table: FieldTable = {"x-filter": Field("S", b"USER() = 'a'")}
    one, two, other = (filter_of(table, {"USER": user}, name="q", vhost="/") for user in "aab")
    assert one is two and one is not other and one is not None and other is not None
    assert one.key != other.key


def test_a_short_end_of_a_turn_does_little() -> None:
    """While somebody does what was left over, the turns of others do not look through all filters once more each."""
    world = World()
    for number in range(200):
        world.subscribe(f"c{number}", f"/n < {-number - 1}")
    world.fill(2_000)
    spent = []
    for _ in range(20):
        before = world.broker.context.turn.effort
        assert world.broker.end_turn(is_short=True)
        spent.append(world.broker.context.turn.effort - before)
    assert 0 < max(spent) <= SHORT_TURN_MAX
    assert max(world.spent()) > SHORT_TURN_MAX
    assert world.got == {} and world.q.ready_count == 2_000
