"""Dead letters from queue to queue, in circles too: which come where, and the story that each tells.

Against a model that keeps each story as a list. Source: behaviour page 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.engine import Event, dead_letters
from leveret.engine.invariants import check_broker
from leveret.engine.publishing.publish_events import PublishedEvent
from leveret.testing.harness import Harness

NAMES = ("a", "b", "c", "d")
#: Where the dead of a queue go: a queue by the default exchange, two or three by fanout with the keys that they have.
TARGETS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in NAMES},
    "nowhere": (),
    "two": ("a", "b"),
    "three": ("b", "c", "d"),
}
LIVES_MS = (0, 70, 100, 150)  # time to live of a queue; the first: for ever


@dataclass(frozen=True)
class Death:
    """What an entry of x-death says: exchange, keys and time are those of the first death of its kind."""

    queue: str
    reason: str
    count: int
    exchange: str
    key: str
    time: int


@dataclass(frozen=True)
class Letter:
    """`deaths`: newest first. `born_ms`: when it came into its queue."""

    body: bytes
    exchange: str
    key: str
    born_ms: int
    deaths: tuple[Death, ...] = ()
    first: str = ""

    def died(self, queue: str, reason: str, target: str, now_ms: int) -> Letter:
        """The next one."""
        before = [one for one in self.deaths if (one.queue, one.reason) == (queue, reason)]
        rest = tuple(one for one in self.deaths if one not in before)
        latest = Death(queue, reason, 1, self.exchange, self.key, now_ms // 1000)
        if before:
            latest = replace(before[0], count=before[0].count + 1)
        exchange, key = (target, self.key) if len(TARGETS[target]) > 1 else ("", target)
        first = self.first or f"{queue} {reason} {self.exchange}"
        return Letter(self.body, exchange, key, now_ms, (latest, *rest), first)

    def comes_round_to(self, queue: str) -> bool:
        """It was there before, and nobody rejected it on the way."""
        for one in self.deaths:
            if one.reason == "rejected":
                return False
            if one.queue == queue:
                return True
        return False


@dataclass
class Model:
    """`edges`: the target of each queue. `lost`: deaths that led to no queue."""

    edges: dict[str, str]
    lives_ms: dict[str, int]
    queues: dict[str, list[Letter]] = field(default_factory=lambda: {name: [] for name in NAMES})
    lost: int = 0

    def die(self, queue: str, letter: Letter, reason: str, now_ms: int) -> None:
        target = self.edges[queue]
        self.lost += not TARGETS[target]
        copy = letter.died(queue, reason, target, now_ms)
        for name in TARGETS[target]:
            if reason == "rejected" or not copy.comes_round_to(name):
                self.queues[name].append(copy)

    def expire(self, now_ms: int) -> None:
        """Who comes at the same time may die in any order: what counts is where all are in the end."""
        for name in NAMES:
            life_ms = self.lives_ms[name]
            over = [one for one in self.queues[name] if life_ms and one.born_ms + life_ms <= now_ms]
            for letter in over:
                self.queues[name].remove(letter)
                self.die(name, letter, "expired", now_ms)


class World(Harness):
    """The queues, and those that get the dead of each."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.told: set[int] = set()
        self.broker.context.listeners.append(self.hear)
        for name in NAMES:
            target = model.edges[name]
            arguments: dict[str, Any] = {"x_dead_letter_exchange": target}
            if len(TARGETS[target]) < 2:
                arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": target}
            if model.lives_ms[name]:
                arguments["x_message_ttl"] = model.lives_ms[name]
            self.queue(name, **arguments)
        for exchange in ("two", "three"):
            self.vhost.exchanges.declare(exchange, "fanout")
            for name in TARGETS[exchange]:
                self.bind(name, exchange)

    def hear(self, event: Event) -> None:
        if isinstance(event, PublishedEvent):
            self.told.update(event.messages)

    def send(self, name: str, body: bytes) -> None:
        self.publish(body, key=name)
        self.model.queues[name].append(Letter(body, "", name, self.clock.wall_ms()))

    def reject(self, name: str) -> None:
        """The first one that is there, whichever that is."""
        got = self.get(name, no_ack=False)
        assert (got is None) is (not self.model.queues[name])
        if got is not None:
            told = _told(got[1])
            letter = next(one for one in self.model.queues[name] if _as_told(one) == told)
            self.model.queues[name].remove(letter)
            self.session.reject(got[0], requeue=False, why="rejected")
            self.model.die(name, letter, "rejected", self.clock.wall_ms())
            self.end_turn()

    def wait(self, ms: int) -> None:
        """Deaths happen one after the other, each at its time."""
        for _ in range(ms // 10):
            self.advance(10)
            self.model.expire(self.clock.wall_ms())

    def check(self) -> None:
        check_broker(self.broker)
        for name, letters in self.model.queues.items():
            messages = list(self.vhost.queues.named(name).messages())
            assert self.told.issuperset(message.id for message in messages)  # else no journal would have them
            found = [_told(message) for message in messages]
            assert sorted(found) == sorted(map(_as_told, letters)), name
        assert self.broker.context.unroutable_letters.count == self.model.lost


def _told(message: Any) -> str:
    headers = message.envelope.headers(message.content)
    deaths = [one.value for one in headers["x-death"].value] if "x-death" in headers else []
    first = [headers[f"x-first-death-{what}"].text for what in ("queue", "reason", "exchange")] if deaths else []
    return repr(
        (
            message.body,
            message.envelope.exchange,
            message.envelope.routing_key,
            [
                (
                    *(one[key].text for key in ("queue", "reason")),
                    one["count"].value,
                    one["exchange"].text,
                    [key.text for key in one["routing-keys"].value],
                    one["time"].value,
                )
                for one in deaths
            ],
            " ".join(first),
        )
    )


def _as_told(letter: Letter) -> str:
    deaths = [(one.queue, one.reason, one.count, one.exchange, [one.key], one.time) for one in letter.deaths]
    return repr((letter.body, letter.exchange, letter.key, deaths, letter.first))


STEP = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(NAMES), st.integers(1, 3)),
    st.tuples(st.sampled_from(("reject", "reject", "wait")), st.sampled_from(NAMES), st.integers(1, 20)),
)
EDGES = st.lists(st.sampled_from(list(TARGETS)), min_size=4, max_size=4)


@settings(max_examples=80)
@given(EDGES, st.lists(st.sampled_from(LIVES_MS), min_size=4, max_size=4), st.lists(STEP, max_size=12), st.booleans())
def test_each_death_is_told_and_ends_where_it_came_round(
    edges: list[str], lives_ms: list[int], steps: list[tuple[str, str, int]], is_congested: bool
) -> None:
    """Copies, counts, order, first death and circles; also where so many die that most have to wait for their death."""
    most = (2, 50) if is_congested else (dead_letters.LETTERS_MAX, dead_letters.DEAD_LETTERS_EFFORT)
    with patch.object(dead_letters, "LETTERS_MAX", most[0]), patch.object(dead_letters, "DEAD_LETTERS_EFFORT", most[1]):
        world = World(Model(dict(zip(NAMES, edges)), dict(zip(NAMES, lives_ms))))
        number = 0
        for what, name, count in steps:
            if what == "publish":
                for _ in range(count):
                    world.send(name, b"%d" % number)
                    number += 1
            elif what == "reject":
                world.reject(name)
            else:
                world.wait(10 * count)
            world.check()
