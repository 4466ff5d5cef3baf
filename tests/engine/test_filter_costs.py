"""What filters of consumers cost: one evaluation a group, one reading of a body, turns that stay short, nobody starved.

Source: queues page B.5, F.6.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.engine import Broker, Delivered, Envelope, ManualClock, Message, Session, User, errors
from leveret.engine.broker import SHORT_SPREAD
from leveret.engine.delivery.filter_groups import LATELY_MAX, LATELY_OCTETS, LatelyAsked
from leveret.engine.delivery.filters import MessageSubject
from leveret.engine.effort import Effort
from leveret.engine.messages.content import PLAIN, encode_header
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.rules.consumer_filter import filter_of
from leveret.expressions.language import AMPS, Expression, compiled

USER = User("guest")
#: Of one turn, in units of `Effort`: what `Broker` allows, a slice of each kind, and the run that is under way.
TURN_MAX = 12_000
SHORT_TURN_MAX = 2 * SHORT_SPREAD


class World:
    """A queue in memory, and clients that consume from it."""

    def __init__(self, **arguments: Field) -> None:
        self.broker = Broker(ManualClock())
        self.got: dict[str, list[bytes]] = {}
        self.publisher = self.session()
        vhost = self.publisher.client.vhost
        table: FieldTable = {key.replace("_", "-"): field for key, field in arguments.items()}
        self.queue = vhost.queues.declare("q", client=None, durable=True, arguments=table)

    def session(self) -> Session:
        client = self.broker.connections.open("/", USER, name="c", flush=lambda: None)

        def flush() -> None:
            for effect in client.take_outbox():
                assert isinstance(effect, Delivered)
                consumer: Any = effect.consumer
                bodies = self.got.setdefault(consumer.tag, [])
                bodies += [PLAIN.split(content)[1] for content in effect.contents]
            client.drained()

        client.flush = flush  # type: ignore[method-assign]
        return client.open_session()

    def consume(self, tag: str, text: str, *, prefetch: int = 0) -> Session:
        session = self.session()
        session.limit(prefetch, total=False)
        arguments = {"x-filter": Field("S", text.encode())} if text else {}
        session.consume(self.queue, tag, no_ack=False, exclusive=False, arguments=arguments)
        return session

    def publish(self, count: int, *, first: int = 0) -> None:
        """A run: what one read of a socket may bring."""
        bodies = [b'{"n": %d}' % number for number in range(first, first + count)]
        contents = [PLAIN.join(encode_header(len(body)), body) for body in bodies]
        route = self.publisher.client.vhost.router.route("", "q", USER)
        self.publisher.publish(route, Envelope("", "q"), contents, mandatory=False)

    def turns(self) -> list[int]:
        """Until all is quiet: what each turn spent."""
        spent = []
        is_more = True
        while is_more:
            before = self.broker.context.effort.spent
            is_more = self.broker.end_turn()
            spent.append(self.broker.context.effort.spent - before)
        return spent


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
        world.publish(100)
    for number in range(50):
        world.consume(f"c{number}", f"/n < {-1 - number % distinct}")
    if not is_there:
        world.publish(100)
    world.turns()
    assert counted == {"evaluations": 100 * distinct, "readings": 100}
    assert world.got == {}


@pytest.mark.parametrize("octets", [0, LATELY_OCTETS // 10])
def test_answers_are_kept_of_the_latest_messages_alone(octets: int) -> None:
    """However many filters ask about however many messages, and whatever these weigh; each answer is what it was."""
    lately, held = LatelyAsked(Effort()), 0
    filters = [compiled(f"/n > {limit}", AMPS) for limit in (10, 700, 1500)]
    for number in range(4 * LATELY_MAX):
        body = b'{"n": %d}' % number + b" " * octets
        message = Message(number, PLAIN.join(encode_header(len(body)), body), Envelope("", "q"))
        for _ in range(2):
            assert [lately.takes(one, message) for one in filters] == [number > limit for limit in (10, 700, 1500)]
        kept = [getattr(lately, name) for name in LatelyAsked.__slots__]
        held = max(held, *(len(one) for one in kept if isinstance(one, dict)))
    assert 0 < held <= len(filters) * (LATELY_MAX if not octets else 10)


def test_what_nobody_can_take_now_is_not_looked_at(counted: dict[str, int]) -> None:
    """A consumer without room looks ahead as far as a group may, and no further."""
    world = World()
    session = world.consume("c", "/n >= 0", prefetch=1)
    for first in range(0, 5000, 100):
        world.publish(100, first=first)
        world.turns()
    assert counted["evaluations"] < 1000
    for _ in range(3):
        session.ack_each(list(session.unacked))
        world.turns()
    assert world.got == {"c": [b'{"n": %d}' % number for number in range(4)]}


def test_a_plain_queue_has_no_selection() -> None:
    """And none is left when the last filter has gone."""
    world = World()
    world.consume("plain", "")
    assert world.queue.selection is None and world.queue.takes_plainly
    session = world.consume("c", "/n = 1")
    assert world.queue.selection is not None and not world.queue.takes_plainly
    session.close()
    world.turns()
    assert world.queue.selection is None and world.queue.takes_plainly


@pytest.mark.parametrize("is_there", [False, True], ids=["arrivals", "backlog"])
def test_turns_stay_short(is_there: bool) -> None:
    """Fifty filters and thousands of messages: each turn does a slice, and so does each run that arrives."""
    world = World()
    if is_there:
        world.publish(3000)
    for number in range(50):
        world.consume(f"c{number}", f"/n = {number}")
    spent = world.turns()
    for first in range(3000, 6000, 1000):
        before = world.broker.context.effort.spent
        world.publish(1000, first=first)
        spent.append(world.broker.context.effort.spent - before)
        spent += world.turns()
    assert max(spent) < TURN_MAX
    assert sum(map(len, world.got.values())) == (50 if is_there else 0)


def test_returns_in_great_numbers() -> None:
    """Ten thousand come back where fifty groups have looked: looked at again in slices, in their order."""
    world = World()
    world.publish(10_000)
    session = world.consume("first", "/n >= 0")
    world.turns()
    for number in range(50):
        world.consume(f"c{number}", f"/n = {number * 100}")
    world.turns()
    session.close()
    spent = world.turns()
    assert max(spent) < TURN_MAX
    expected = {f"c{number}": [b'{"n": %d}' % (number * 100)] for number in range(50)}
    del world.got["first"]
    assert world.got == expected


def test_all_that_came_back_is_looked_at_before_any_is_handed_out() -> None:
    """The young ones came back first: the oldest are handed out first, though that takes several turns to find out."""
    world = World()
    session = world.consume("first", "")
    waiting = world.consume("waiting", "/n >= 0", prefetch=1)
    waiting.flowing = False
    for first in range(0, 6000, 100):
        world.publish(100, first=first)
        world.turns()
    session.flowing = False
    tags = list(session.unacked)
    for tag in reversed(tags[2000:4000]):
        session.reject(tag, multiple=False, requeue=True, why="nacked")
    session.reject(tags[1999], multiple=True, requeue=True, why="nacked")
    world.turns()
    waiting.flowing = True
    world.queue.mark()
    for _ in range(3):
        world.turns()
        waiting.ack_each(list(waiting.unacked))
    world.turns()
    assert world.got["waiting"] == [b'{"n": %d}' % number for number in range(4)]


def test_one_that_looks_through_a_backlog_starves_nobody() -> None:
    """While it looks through 50,000 messages, a consumer at the end gets what comes, turn by turn."""
    world = World()
    for first in range(0, 50_000, 1000):
        world.publish(1000, first=first)
    world.consume("end", "/n >= 50000")
    world.turns()
    world.consume("seldom", "/n = 49999")
    waits = []
    for number in range(50_000, 50_005):
        world.publish(1, first=number)
        count = 0
        while len(world.got.get("end", ())) <= number - 50_000:
            assert world.broker.end_turn()
            count += 1
        waits.append(count)
    assert max(waits) <= 2
    assert "seldom" not in world.got
    world.turns()
    assert world.got["seldom"] == [b'{"n": 49999}']


def test_octets_that_are_no_text_are_refused() -> None:
    """Of a long string that is no UTF-8 it is said where."""
    with pytest.raises(errors.InvalidArgument, match="octet 5: this is no UTF-8"):
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
        world.consume(f"c{number}", f"/n < {-number - 1}")
    world.publish(2_000)
    spent = []
    for _ in range(20):
        before = world.broker.context.effort.spent
        assert world.broker.end_turn(is_short=True)
        spent.append(world.broker.context.effort.spent - before)
    assert 0 < max(spent) <= SHORT_TURN_MAX
    assert max(world.turns()) > SHORT_TURN_MAX
    assert world.got == {} and world.queue.ready_count == 2_000
