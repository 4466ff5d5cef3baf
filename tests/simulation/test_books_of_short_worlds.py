"""The books of what only short worlds have: moves by operators, groups, limits of octets, ids against duplicates,
consumers' priorities and timeouts, delays of publishers and of operators.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from history import History, Step, content_of, envelope_of
from simulator.books.duplicates import HEADER, Duplicates
from simulator.books.expiries import Expiries
from simulator.books.groups import GROUP, SEQUENCE, Groups
from simulator.books.limits import Limits
from simulator.books.moves import MOVED, Moves
from simulator.books.precedence import Precedence
from simulator.books.redelivery import Redelivery
from simulator.books.returns import Returns
from simulator.books.routing import Routing
from simulator.books.settlements import Settlements, Word
from simulator.books.timeouts import Timeouts
from simulator.books.whereabouts import RESCHEDULED
from simulator.ledger import Broken

from leveret.engine import ConsumerEvent, EventKind, Message, PublishedEvent, ScheduledEvent
from leveret.engine.messages.field_table import Field
from leveret.engine.publishing.publish_events import DuplicateEvent

MS = 1_000_000


def say_no(history: History, steps: list[Step], sentence: str) -> None:
    """To the last step, and to none before it."""
    history.tell(steps[:-1])
    with pytest.raises(Broken, match=sentence):
        history.tell(steps[-1:])


# -- moves ------------------------------------------------------------------------------------------------------------


class Moving(History):
    """With what an operator asks for."""

    def __init__(self) -> None:
        routing = Routing()
        routing.keys = {number: content_of(number)[-12:] for number in range(1, 10)}
        self.moves = Moves(routing, {"a"})
        super().__init__(lambda _: self.moves, a={}, b={})

    def asked(self, queue: str, count: int) -> None:
        self.moves.requested["/", queue] += count

    def purged(self, queue: str) -> None:
        self.moves.purges.add(("/", queue))

    def copied(self, ids: list[int], numbers: list[int]) -> None:
        contents = [content_of(number) for number in numbers]
        queues: Any = (self.broker.queues["b"],)
        self.event(PublishedEvent("/", "", ids, envelope_of(), contents, queues, MOVED))


def moved(*ids: int, reason: str = MOVED, to: str | None = "b") -> Step:
    return "left", "a", list(ids), "purged", {"reason": reason, "to": to}


THERE: list[Step] = [("enqueued", "a", [1, 2, 3]), ("asked", "a", 2)]


@pytest.mark.parametrize("steps", [
    [*THERE, ("copied", [11, 12], [1, 2]), moved(1, 2), ("turn_ended",)],
    [*THERE, moved(1), ("copied", [11], [1]), ("turn_ended",)],
    [*THERE, moved(1, 2, reason="discarded", to=None), ("turn_ended",)],
    [*THERE, ("purged", "a"), ("left", "a", [1, 2, 3], "purged"), ("turn_ended",)],
    [("enqueued", "b", [4]), ("left", "b", [4], "purged"), ("turn_ended",)],
    [*THERE, ("copied", [11], [1]), ("restarted",), ("turn_ended",)],
])  # fmt: skip
def test_what_is_moved_is_in_one_place(steps: list[Step]) -> None:
    Moving().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("moved without a copy", [*THERE, moved(1), ("turn_ended",)]),
    ("copied and still there", [*THERE, ("copied", [11], [1]), ("turn_ended",)]),
    ("1 more were moved than", [*THERE, moved(1, 2, 3)]),
    ("1 more were discarded than", [*THERE, moved(1, 2, 3, reason="discarded", to=None)]),
    ("nobody asked for it", [*THERE, ("left", "a", [1, 2, 3], "purged")]),
    ("nothing says where to", [*THERE, moved(1, to=None)]),
])  # fmt: skip
def test_moves_say_no(sentence: str, steps: list[Step]) -> None:
    say_no(Moving(), steps, sentence)


def test_nothing_is_moved_after_its_time() -> None:
    """In its new place its time would begin anew."""
    history = History(lambda it: Expiries(it.where, it.clock), a={"ttl_ms": 100})  # type: ignore[arg-type]
    say_no(history, [("enqueued", "a", [1]), ("passed", 101), moved(1)], "was moved 1.0 ms after its time")


# -- groups -----------------------------------------------------------------------------------------------------------

ONE, TWO = SimpleNamespace(session="s1", tag="c"), SimpleNamespace(session="s2", tag="c")


class Grouped(History):
    """Odd messages are of the group g, and 5 ends it, but 9 is of h; even ones are of none."""

    def __init__(self, **features: Any) -> None:
        routing = Routing()
        for number in range(1, 10):
            headers = {GROUP: Field("S", b"h" if number == 9 else b"g")} if number % 2 else {}
            if number == 5:
                headers[SEQUENCE] = Field("I", -1)
            content = content_of(number, headers)
            routing.headers[number] = bytes(envelope_of().framing.split(content)[0])
        self.groups = Groups(self, routing)  # type: ignore[arg-type]
        self.places: dict[Any, Any] = {}
        super().__init__(lambda _: self.groups, a={"groups": 1, **features})
        self.places = self.where.places
        self.consume(ONE, TWO)

    def consume(self, *consumers: Any) -> None:
        self.broker.queues["a"].consumer_list = SimpleNamespace(consumers=list(consumers))  # type: ignore[attr-defined]

    def first(self, *ids: int) -> None:
        assert self.groups.first == {(("/", "a"), id_) for id_ in ids}


def gets(session: str | None, *ids: int) -> Step:
    return "delivered", "a", list(ids), {"session": session, "consumer": session and "c"}


CAME: Step = ("enqueued", "a", list(range(1, 10)))


@pytest.mark.parametrize("steps", [
    [CAME, gets("s1", 1, 2), gets("s2", 4, 6), gets("s1", 3), ("first", 1)],
    [CAME, gets("s1", 1), ("consume", TWO), gets("s2", 3), ("first", 1, 3)],
    [CAME, gets("s1", 1, 3, 5), gets("s2", 7), ("first", 1, 7)],
    [CAME, gets("s1", 3), ("requeued", "a", [3]), gets("s1", 3), ("first",)],
    [CAME, gets("s1", 1), gets(None, 3), gets("s1", 7)],
    [CAME, gets("s1", 1), ("has", "a", [3]), ("restarted",), gets("s2", 3)],
])  # fmt: skip
def test_a_group_has_one_consumer(steps: list[Step]) -> None:
    Grouped().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("3 of the group g went to c, and the group to c", [CAME, gets("s1", 1), gets("s2", 3)]),
    ("1 of the group g went after 3", [CAME, gets("s1", 3, 1)]),
])  # fmt: skip
def test_groups_say_no(sentence: str, steps: list[Step]) -> None:
    say_no(Grouped(), steps, sentence)


def test_groups_of_a_bucket_are_one() -> None:
    """Also when one of them ends."""
    Grouped().tell([CAME, gets("s1", 1), gets("s2", 9)])
    Grouped(buckets=1).tell([CAME, gets("s1", 1, 5), gets("s2", 9)])
    say_no(Grouped(buckets=1), [CAME, gets("s1", 1), gets("s2", 9)], "9 of the group 0 went to c")


def test_groups_are_dealt_anew_where_a_queue_says_so() -> None:
    Grouped(rebalances=True).tell([CAME, gets("s1", 1), gets("s2", 3)])


# -- octets -----------------------------------------------------------------------------------------------------------


def heavy() -> History:
    """Room for two bodies, of 22 octets each."""
    return History(lambda it: Limits(it.where), a={"max_octets": 50})


def maxlen(*ids: int) -> Step:
    return "left", "a", list(ids), "dropped", {"reason": "maxlen"}


FULL: list[Step] = [("published", [1, 2, 3]), ("enqueued", "a", [1, 2, 3])]


def test_as_many_octets_as_there_is_room_for() -> None:
    heavy().tell([*FULL, maxlen(1), ("check",), ("published", [4, 5]), ("enqueued", "a", [4, 5]), maxlen(2, 3)])


@pytest.mark.parametrize(("sentence", "steps"), [
    ("has 66 octets ready of 50", [*FULL, ("check",)]),
    ("are not the oldest", [*FULL, maxlen(2)]),
    ("44 octets were there of 50", [*FULL, maxlen(1, 2)]),
])  # fmt: skip
def test_limits_of_octets_say_no(sentence: str, steps: list[Step]) -> None:
    say_no(heavy(), steps, sentence)


# -- ids against duplicates -------------------------------------------------------------------------------------------

FIRST, SECOND, THIRD = (f"{number:024x}" for number in range(3))


class Remembering(History):
    """The address `a` remembers two ids; a restart finds those of `found`."""

    book: Duplicates

    def __init__(self) -> None:
        super().__init__(lambda it: Duplicates(it.where), a={"ids": 2})
        self.found()

    def found(self, *ids: str) -> None:
        cache = SimpleNamespace(ids=lambda: [f"('string', '{id_}')" for id_ in ids])
        self.broker.virtual_hosts["/"].context = SimpleNamespace(id_caches={"a": cache})

    def came(self, number: int, id_: str, **facts: Any) -> None:
        contents = [content_of(number, {HEADER: Field("S", id_.encode())})]
        self.event(PublishedEvent("/", "", [number], envelope_of(**facts), contents, ()))
        self.enqueued("a", [number], **facts)

    def dropped(self, id_: str) -> None:
        self.event(DuplicateEvent("/", "a", f"('string', '{id_}')"))

    def written(self) -> None:
        self.book.recorded(5, 0, takes_nothing=False)

    def safe(self) -> None:
        self.book.recorded(5, 5, takes_nothing=False)


TWO_IDS: list[Step] = [("came", 1, FIRST), ("came", 2, SECOND)]


@pytest.mark.parametrize("steps", [
    [*TWO_IDS, ("dropped", FIRST), ("dropped", SECOND), ("found", FIRST, SECOND), ("check",)],
    [*TWO_IDS, ("came", 3, THIRD), ("came", 4, FIRST), ("dropped", THIRD), ("found", THIRD, FIRST), ("check",)],
    [*TWO_IDS, ("safe",), ("found", FIRST, SECOND), ("restarted",), ("dropped", FIRST)],
    [*TWO_IDS, ("found",), ("restarted",), ("came", 1, FIRST)],
    [("came", 1, FIRST, {"persistent": False}), ("safe",), ("found",), ("restarted",), ("came", 1, FIRST)],
    [("came", 1, FIRST), ("written",), *(("came", 2 + at, id_, {"persistent": False}) for at, id_ in
     enumerate((SECOND, THIRD, FIRST))), ("safe",), ("found",), ("restarted",)],
])  # fmt: skip
def test_an_address_remembers_ids(steps: list[Step]) -> None:
    Remembering().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("was there before", [*TWO_IDS, ("came", 3, FIRST)]),
    ("was not there before", [*TWO_IDS, ("dropped", THIRD)]),
    ("was not there before", [*TWO_IDS, ("came", 3, THIRD), ("dropped", FIRST)]),
    ("a restart forgot the ids", [*TWO_IDS, ("safe",), ("found", FIRST), ("restarted",)]),
    ("which nobody gave", [*TWO_IDS, ("safe",), ("found", FIRST, SECOND, THIRD), ("restarted",)]),
    ("out of order", [*TWO_IDS, ("safe",), ("found", SECOND, FIRST), ("restarted",)]),
    ("remembers 1 ids", [*TWO_IDS, ("found", SECOND), ("check",)]),
])  # fmt: skip
def test_ids_say_no(sentence: str, steps: list[Step]) -> None:
    say_no(Remembering(), steps, sentence)


# -- precedence -------------------------------------------------------------------------------------------------------


def consumer(tag: str, priority: int, credit: int = 1) -> Any:
    return SimpleNamespace(tag=tag, session=tag, priority=priority, filter=None, credit=lambda: credit)


LOW, HIGH, FULL_HIGH = consumer("low", 0), consumer("high", 5), consumer("full", 5, 0)


class Served(History):
    """Queue `a` serves all of its consumers; `single` one of them, and so does `quorum`, where it gives way."""

    def __init__(self) -> None:
        single: dict[str, Any] = {"single_active": True}
        kinds: dict[str, dict[str, Any]] = {"a": {}, "single": single, "quorum": {**single, "quorum": True}}
        super().__init__(lambda it: Precedence(it.where), **kinds)
        self._consumers: dict[str, list[Any]] = {name: [] for name in kinds}
        for name, queue in self.broker.queues.items():
            consumers = SimpleNamespace(consumers=self._consumers[name])
            queue.consumer_list = consumers  # type: ignore[attr-defined]

    def joins(self, queue: str, one: Any) -> None:
        self._consumers[queue].append(one)
        self.event(ConsumerEvent(EventKind.CONSUMER_ADDED, "/", queue, one.tag, one))

    def leaves(self, queue: str, one: Any) -> None:
        self._consumers[queue].remove(one)
        self.event(ConsumerEvent(EventKind.CONSUMER_REMOVED, "/", queue, one.tag, one))

    def serves(self, queue: str, one: Any, *ids: int) -> None:
        self.delivered(queue, ids, session=one.session, consumer=one.tag)


def joined(queue: str, *consumers: Any) -> list[Step]:
    return [("enqueued", queue, [1, 2, 3]), *(("joins", queue, one) for one in consumers)]


@pytest.mark.parametrize("steps", [
    [*joined("a", LOW, HIGH), ("serves", "a", HIGH, 1)],
    [*joined("a", LOW, FULL_HIGH), ("serves", "a", LOW, 1)],
    [*joined("single", LOW, HIGH), ("serves", "single", LOW, 1), ("leaves", "single", LOW),
     ("serves", "single", HIGH, 2)],
    [*joined("quorum", LOW, HIGH), ("serves", "quorum", LOW, 1), ("acked", "quorum", [1]),
     ("serves", "quorum", HIGH, 2)],
])  # fmt: skip
def test_the_highest_priority_goes_first(steps: list[Step]) -> None:
    Served().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("of higher priority has room", [*joined("a", LOW, HIGH), ("serves", "a", LOW, 1)]),
    ("low is the active one", [*joined("single", LOW, HIGH), ("serves", "single", HIGH, 1)]),
    ("full is the active one", [*joined("single", HIGH, LOW, FULL_HIGH), ("leaves", "single", HIGH),
                                ("serves", "single", LOW, 1)]),
    ("has not settled", [*joined("quorum", LOW, HIGH), ("serves", "quorum", LOW, 1), ("serves", "quorum", HIGH, 2)]),
    ("not the first of the highest", [*joined("quorum", HIGH, LOW), ("serves", "quorum", LOW, 1)]),
])  # fmt: skip
def test_precedence_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(Served(), steps, sentence)


# -- what operators schedule ------------------------------------------------------------------------------------------


class Operated(History):
    """Message 1 waits for 100 ms, which its publisher asked for."""

    book: Redelivery

    def __init__(self) -> None:
        super().__init__(lambda it: Redelivery(it.where, it.clock), a={"delays": [100]})  # type: ignore[arg-type]
        self.enqueued("a", [1])
        self.put_off(100, "published")

    def put_off(self, wait_ms: int, why: str = RESCHEDULED) -> None:
        message = Message(1, content_of(1, {"x-delay": Field("I", -100)}), envelope_of())
        self.event(ScheduledEvent("/", "a", [1], [message], why, [self.clock.now_ns + wait_ms * MS]))

    def asked(self, delay_ms: int | None) -> None:
        """None: to be deleted."""
        key = ("/", "a"), 1
        if delay_ms is None:
            self.book.cancelled.add(key)
        else:
            self.book.rescheduled[key] = self.clock.now_ns + delay_ms * MS


@pytest.mark.parametrize("steps", [
    [("asked", 500), ("put_off", 500), ("passed", 500), ("due", "a", [1])],
    [("asked", 0), ("put_off", 0), ("due", "a", [1])],
    [("asked", None), ("left", "a", [1], "cancelled")],
    [("has_waiting", "a", (1, 50)), ("restarted",), ("asked", None), ("left", "a", [1], "cancelled")],
])  # fmt: skip
def test_what_operators_ask_for_comes_when_they_say(steps: list[Step]) -> None:
    Operated().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("operators asked for None", [("put_off", 500)]),
    ("operators asked for", [("asked", 500), ("put_off", 400)]),
    ("ready 1.0 ms too early", [("asked", 500), ("put_off", 500), ("passed", 499), ("due", "a", [1])]),
    ("nobody asked for it", [("left", "a", [1], "cancelled")]),
    ("10.0 ms too early", [("has_waiting", "a", (1, 50)), ("restarted",), ("passed", 40), ("due", "a", [1])]),
    ("did not wait", [("asked", None), ("passed", 100), ("due", "a", [1]), ("left", "a", [1], "cancelled")]),
])  # fmt: skip
def test_what_operators_schedule_says_no(sentence: str, steps: list[Step]) -> None:
    say_no(Operated(), steps, sentence)


# -- timeouts ---------------------------------------------------------------------------------------------------------


class SlowSession:
    """Of a client that may not settle in time."""

    client = SimpleNamespace(properties={"product": SimpleNamespace(text="slow")})
    number = 1


SLOW = SlowSession()


class Overdue(History):
    """Messages 1 and 2 are out, to be settled within 100 ms."""

    book: Timeouts

    def __init__(self) -> None:
        super().__init__(lambda it: Timeouts(it.where, it.clock), a={"timeout_ms": 100})  # type: ignore[arg-type]
        self.enqueued("a", [1, 2])
        self.delivered("a", [1], session=SLOW)
        self.passed(40)
        self.delivered("a", [2], session=SLOW)

    def closed(self) -> None:
        self.book.closed("slow", 1, 100)


def after(*ms: float) -> list[Step]:
    return [step for one in ms for step in (("passed", one), ("turn_ended",))]


@pytest.mark.parametrize("steps", [
    [*after(60), ("requeued", "a", [1, 2], "lost"), ("closed",)],
    [("acked", "a", [1]), *after(100, 50), ("requeued", "a", [2], "lost"), ("closed",), *after(500, 500)],
    [*after(100, 30, 60)],
    [("requeued", "a", [1, 2]), *after(500, 500)],
])  # fmt: skip
def test_a_channel_may_take_its_time(steps: list[Step]) -> None:
    Overdue().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("timed out after 99.0 ms of 100", [*after(59), ("requeued", "a", [1, 2], "lost"), ("closed",)]),
    ("timed out after 0.0 ms of 100", [*after(500), ("closed",)]),
    ("1 is out for 190.0 ms", after(150, 60)),
    ("2 is out for 200.0 ms", [("acked", "a", [1]), *after(200, 60)]),
])  # fmt: skip
def test_timeouts_say_no(sentence: str, steps: list[Step]) -> None:
    say_no(Overdue(), steps, sentence)


# -- delays -----------------------------------------------------------------------------------------------------------


def wait(said_ms: int, waits_ms: int) -> None:
    """A message whose publisher said how long it is to wait."""
    history = History(lambda it: Redelivery(it.where, it.clock), a={})  # type: ignore[arg-type]
    history.tell([("enqueued", "a", [1])])
    message = Message(1, content_of(1, {"x-delay": Field("I", -said_ms)}), envelope_of())
    due_ns = history.clock.now_ns + waits_ms * MS
    history.event(ScheduledEvent("/", "a", [1], [message], "", [due_ns]))
    history.tell([("passed", waits_ms), ("due", "a", [1])])


def test_a_message_waits_as_long_as_its_publisher_said() -> None:
    wait(100, 100)


@pytest.mark.parametrize(("sentence", "said_ms"), [("waits 100.0 ms, and says 200", 200), ("nothing says so", 0)])
def test_a_message_waits_no_longer_and_no_shorter(sentence: str, said_ms: int) -> None:
    with pytest.raises(Broken, match=sentence):
        wait(said_ms, 100)


# -- returns ----------------------------------------------------------------------------------------------------------


class Returning(History):
    """Of a queue `a` with one message, which is out to channel 1 of a connection with two channels."""

    def __init__(self, **features: Any) -> None:
        super().__init__(lambda it: Returns(it.where), a=features)
        self.client = SimpleNamespace(closed=False)
        self.channels = [SimpleNamespace(client=self.client) for _ in range(2)]
        self.channels.append(SimpleNamespace(client=SimpleNamespace(closed=False)))
        self.tell([("enqueued", "a", [1]), ("out", 1)])

    def disconnected(self) -> None:
        self.client.closed = True

    def out(self, channel: int) -> None:
        """To this channel: 1 or 2 of the connection, or that of another one (3)."""
        self.delivered("a", [1], session=self.channels[channel - 1])


@pytest.mark.parametrize("steps", [
    [("requeued", "a", [1], "nacked"), ("out", 1)],
    [("requeued", "a", [1], "closed"), ("out", 2)],
    [("requeued", "a", [1], "lost"), ("out", 2)],  # a channel error: the connection goes on
    [("disconnected",), ("requeued", "a", [1], "closed"), ("out", 3)],
    [("disconnected",), ("requeued", "a", [1], "lost"), ("out", 3)],
])  # fmt: skip
def test_what_came_back_goes_to_another(steps: list[Step]) -> None:
    Returning().tell(steps)


@pytest.mark.parametrize("why", ["closed", "lost"])
@pytest.mark.parametrize("features", [{}, {"timeout_ms": 100}, {"explored": True}])
@pytest.mark.parametrize(("before", "channel"), [
    ([], 1),
    ([("disconnected",)], 1),
    ([("disconnected",)], 2),
])  # fmt: skip
def test_who_has_gone_takes_nothing(before: list[Step], channel: int, features: dict[str, Any], why: str) -> None:
    steps: list[Step] = [*before, ("requeued", "a", [1], why), ("out", channel)]
    say_no(Returning(**features), steps, "had given it back as it ended")


# -- settlements ------------------------------------------------------------------------------------------------------


class Settling(History):
    """With what clients say of what they have."""

    book: Settlements

    def __init__(self) -> None:
        super().__init__(lambda it: Settlements(it.where), a={})
        self.book.automatic.add(("automatic", 1))

    def says(self, id_: int, word: Word) -> None:
        self.book.says((("/", "a"), id_), word)

    def rolled_back(self, id_: int) -> None:
        self.book.takes_back((("/", "a"), id_))


def out_to(product: str) -> list[Step]:
    """Message 1, to a channel of somebody."""
    client = SimpleNamespace(properties={"product": SimpleNamespace(text=product)})
    return [("enqueued", "a", [1]), ("delivered", "a", [1], {"session": SimpleNamespace(client=client, number=1)})]


OUT = out_to("somebody")
REJECTED: Step = ("left", "a", [1], "killed", {"reason": "rejected"})


@pytest.mark.parametrize("steps", [
    [*OUT, ("says", 1, Word.ACK), ("acked", "a", [1])],
    [*OUT, ("says", 1, Word.REQUEUE), ("requeued", "a", [1])],
    [*OUT, ("says", 1, Word.REJECT), ("requeued", "a", [1], "lost")],
    [*OUT, ("says", 1, Word.REJECT), REJECTED],
    [*out_to("automatic"), ("acked", "a", [1])],
])  # fmt: skip
def test_a_client_settles_as_it_says(steps: list[Step]) -> None:
    Settling().tell(steps)


@pytest.mark.parametrize(("sentence", "steps"), [
    ("acknowledged, and its client said nothing", [*OUT, ("acked", "a", [1])]),
    ("acknowledged, and its client said reject", [*OUT, ("says", 1, Word.REJECT), ("acked", "a", [1])]),
    ("acknowledged, and its client said nothing",
     [*OUT, ("says", 1, Word.ACK), ("rolled_back", 1), ("acked", "a", [1])]),
    ("came back \\(nacked\\), and its client said reject", [*OUT, ("says", 1, Word.REJECT), ("requeued", "a", [1])]),
    ("rejected, and its client said requeue", [*OUT, ("says", 1, Word.REQUEUE), REJECTED]),
    ("acknowledged, and its client said nothing",
     [*OUT, ("says", 1, Word.ACK), ("requeued", "a", [1], "lost"), OUT[1], ("acked", "a", [1])]),
])  # fmt: skip
def test_nobody_settles_for_a_client(sentence: str, steps: list[Step]) -> None:
    say_no(Settling(), steps, sentence)
