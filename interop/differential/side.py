"""One broker's side of a program: it performs operations and tells what could be observed.

After each operation the side waits until the broker is quiet. Nothing sleeps for that: a round asks every queue for its
counts (so whatever was on its way to a queue is there) and goes through every channel that may hear something (so
whatever the queues had sent is here); rounds are repeated until they find nothing new.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from urllib.parse import unquote, urlsplit

from ..raw_codec import METHODS, Method, frame, header_payload, method_frame, properties_of
from .frames import MISPLACED
from .link import DEADLINE_SECONDS, Link, Silent
from .observations import Names, describe

Operation = Mapping[str, Any]
Observation = dict[str, Any]
Steps = Generator[None, None, Observation]

PROBE = 1000  # channels from here on carry the questions for counts
ROUNDS_MAX = 60
#: After these the broker may go on by itself for a while: two quiet rounds, because RabbitMQ's queues answer a passive
#: declare ahead of publishes that wait in the same mailbox. After all others one quiet round will do.
RESTLESS = {
    "batch",
    *("basic.publish", "basic.ack", "basic.nack", "basic.reject", "basic.recover", "basic.recover-async"),
    *("basic.cancel", "basic.consume", "basic.qos", "tx.commit", "tx.rollback", "queue.delete", "queue.purge"),
    *("channel.close", "connection.close", "drop", "basic.get"),
}
PATIENT_SECONDS = 0.01
#: What RabbitMQ's queues tell behind the channel's back, so that nothing of it is sent once the channel has failed.
FROM_QUEUES = ("basic.consume-ok", "basic.cancel-ok", "basic.cancel", "basic.deliver", "basic.ack", "basic.nack")


@dataclass(slots=True)
class _ChannelState:
    """What a careful client knows of its channel."""

    outstanding: list[int] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)  # of its consumers
    transacts: bool = False
    no_ack_tags: set[str] = field(default_factory=set)
    hears: bool = False  # a consumer was made, or confirms are on: something may come unasked
    published: int = 0  # since confirm.select
    confirms: bool = False
    unconfirmed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Probe:
    """How a queue's counts are asked for: an exclusive queue answers its own connection only."""

    channel: int
    owner: int | None = None
    counts: list[int] | int | None = None  # [ready, consumers], a reply code, or None: it is not there
    slow: bool = False  # a quorum queue, which does its work behind the answers

    def hear(self, answer: Method) -> bool:
        """Take the answer; whether it says something new. 405 is what a queue says whose connection is ending."""
        counts: list[int] | int | None
        if answer.name == "queue.declare-ok":
            counts = [answer["message_count"], answer["consumer_count"]]
        else:
            counts = None if answer["reply_code"] == 404 else answer["reply_code"]
        changed = counts != self.counts or counts == 405
        self.counts = counts
        return changed


class Side:
    """Performs one program after the other on one broker."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 5672
        self._vhost = unquote(parts.path[1:]) or "/"
        self._user, self._password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self._control: Link | None = None
        self._begin()

    def _begin(self) -> None:
        self.names = Names()
        self.sent: Counter[str] = Counter()  # operations of the last step that were sent, by name
        self._links: dict[int, Link] = {}
        self._states: dict[tuple[int, int], _ChannelState] = {}
        self._probes: dict[str, _Probe] = {}
        self._exchanges: set[str] = set()

    def _connect(self) -> Link:
        return Link(self._host, self._port, self._vhost, self._user, self._password)

    @property
    def control(self) -> Link:
        """The connection that asks for counts and cleans up."""
        if self._control is None or not self._control.open:
            self._control = self._connect()
        return self._control

    # one operation

    def perform(
        self, operation: Operation, number: int, *, patient: bool = False
    ) -> Generator[None, None, Observation]:
        """Perform the operation and return what was seen; yields after each sending, so that two brokers can work at
        once."""
        name, connection, channel = operation["op"], operation.get("c", 0), operation.get("ch", 0)
        link = self._links.get(connection)
        if link is None or not link.open:
            link = self._links[connection] = self._connect()
            for key in [key for key in self._states if key[0] == connection]:
                del self._states[key]
        if channel and name != "channel.open" and not operation.get("unopened") and channel not in link.channels:
            link.open_channel(channel)
            self._states[connection, channel] = _ChannelState()
        seen: list[tuple[int, Method]] = []
        silent: list[str] = []
        self.sent.clear()
        yield from self._say(operation, number, link, seen, silent)
        yield from self._settle(name in RESTLESS, patient, seen, silent)
        return self._observe(seen, silent, batched=name == "batch")

    def _say(
        self, operation: Operation, number: int, link: Link, seen: list[tuple[int, Method]], silent: list[str]
    ) -> Iterator[None]:
        """Send the operation and read its own answer."""
        name, connection, channel = operation["op"], operation.get("c", 0), operation.get("ch", 0)
        if name in ("drop", "frames"):
            self.sent[name] += 1
            if name == "drop":
                link.drop(reset=operation.get("reset", False))
            else:
                link.send(MISPLACED[operation["what"]](channel))
                self._states[connection, channel].tags.clear()
            yield
            if name == "frames":
                self._read(link, connection, [("connection.close", 0)], seen, silent)
            return
        state = self._states.setdefault((connection, channel), _ChannelState())
        octets, expected = b"", []
        sent: list[Operation] = []
        for index, one in enumerate(operation.get("operations", (operation,))):
            if one.get("careful") and _is_pointless(one, state):
                continue
            if name == "batch" and one["op"] == "basic.get" and state.tags:
                continue  # it would take its tag from the same counter as deliveries that come unasked
            if name == "batch" and "delivery_tag" in one and not state.outstanding:
                continue
            if one["op"] == "basic.cancel" and any(one["consumer_tag"] == other.get("consumer_tag") for other in sent):
                continue  # RabbitMQ may end the connection with 541 when its consume-ok comes behind the cancel
            octets += self._encode(one, str(number) if name != "batch" else f"{number}-{index}", link, state)
            sent.append(one)
            self.sent[one["op"]] += one.get("count", 1)
            if f"{one['op']}-ok" in METHODS and one["op"] != "basic.get" and not one.get("nowait"):
                expected.append((f"{one['op']}-ok", channel))
        link.send(octets)
        if name == "channel.open":
            if channel not in link.channels:
                self._states[connection, channel] = _ChannelState()
            link.expect_open(channel)
        if operation.get("unopened"):
            expected = [("connection.close", 0)]
        ends = name == "connection.close"
        if not ends and name not in ("channel.close", "tx.commit"):  # a commit may not be followed before it is done
            link.send_barrier(channel)
        yield
        answers = self._read(link, connection, None if ends else expected, seen, silent)
        self._learn(sent, connection, answers)

    def _read(
        self,
        link: Link,
        connection: int,
        expected: list[tuple[str, int]] | None,
        seen: list[tuple[int, Method]],
        silent: list[str],
    ) -> list[Method]:
        """What came with the answers that are expected; None: everything up to the end of the connection."""
        try:
            answers = link.drain() if expected is None else link.collect(*expected)
        except Silent as silence:
            silent.append(str(silence))
            answers = []
        seen += [(connection, method) for method in answers]
        return answers

    def _learn(self, sent: Sequence[Operation], connection: int, answers: list[Method]) -> None:
        """There may be queues and exchanges now that there were not before."""
        declared = iter([method["queue"] for method in answers if method.name == "queue.declare-ok"])
        for operation in sent:
            if operation["op"] == "exchange.declare":
                self._exchanges.add(operation.get("exchange", ""))
            elif operation["op"] == "queue.declare":
                self._learn_queue(operation, connection, None if operation.get("nowait") else next(declared, None))

    def _learn_queue(self, operation: Operation, connection: int, answered: str | None) -> None:
        queue = answered or self._resolve(operation.get("queue", ""))
        if not queue or operation.get("passive") and answered is None:
            return
        self.names.alias(queue)
        probe = self._probes.setdefault(queue, _Probe(PROBE + len(self._probes)))
        if operation.get("arguments", {}).get("x-queue-type") == ["S", "quorum"]:
            self.names.counts = probe.slow = True
        if probe.counts is None or probe.counts == 404:
            probe.counts = [-1, -1]
            probe.owner = connection if operation.get("exclusive") and answered is not None else None

    # waiting until it is quiet

    def _settle(
        self, restless: bool, patient: bool, seen: list[tuple[int, Method]], silent: list[str]
    ) -> Iterator[None]:
        patient = patient or any(probe.slow for probe in self._probes.values())
        quiet, rounds, wanted = 0, 0, (3 if patient else 2 if restless else 1)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while rounds < ROUNDS_MAX and time.monotonic() < deadline:
            if patient:
                time.sleep(PATIENT_SECONDS)
            before = len(seen)
            changed = yield from self._ask_around(seen, silent)
            pending = self._await_confirms(seen)
            if silent:
                return
            rounds += not pending  # a confirm that waits for the disk takes its time
            quiet = 0 if changed or len(seen) > before or pending else quiet + 1
            if quiet >= wanted:
                return
        silent.append("never quiet")

    def _ask_around(self, seen: list[tuple[int, Method]], silent: list[str]) -> Generator[None, None, bool]:
        """One round: every queue and every channel that may hear something is asked; returns whether counts changed."""
        asked: dict[tuple[int | None, int], _Probe] = {}
        for queue, probe in self._probes.items():
            if probe.counts is None:
                continue
            link = self._probing_link(probe)
            octets = method_frame(probe.channel, "queue.declare", queue=queue, passive=True)
            if probe.channel not in link.channels:
                link.expect_open(probe.channel)
                octets = method_frame(probe.channel, "channel.open") + octets
            link.send(octets)
            asked[probe.owner, probe.channel] = probe
        for (connection, channel), state in self._states.items():
            if state.hears and connection in self._links:
                self._links[connection].send_barrier(channel)
        yield
        changed = False
        for owner, link in [(None, self.control), *self._links.items()]:
            expected = [("queue.declare-ok", channel) for asker, channel in asked if asker == owner]
            try:
                heard = link.collect(*expected)
            except Silent as silence:
                silent.append(str(silence))
                heard = []
            for method in heard:
                if owner is not None and method.channel < PROBE:
                    seen.append((owner, method))
                elif method.name != "channel.open-ok":
                    changed |= asked[owner, method.channel].hear(method)
        return changed

    def _probing_link(self, probe: _Probe) -> Link:
        if probe.owner is not None:
            link = self._links.get(probe.owner)
            if link is not None and link.open:
                return link
            probe.owner = None
        return self.control

    def _await_confirms(self, seen: list[tuple[int, Method]]) -> bool:
        """Note what was confirmed; whether something is still to be."""
        pending = False
        confirmed: dict[tuple[int, int], set[int]] = {}
        for connection, method in seen:
            if method.name in ("basic.ack", "basic.nack"):
                state = self._states[connection, method.channel]
                tags = confirmed.setdefault((connection, method.channel), set())
                tags |= _covered(method, state.unconfirmed)
        for (connection, channel), state in self._states.items():
            link = self._links.get(connection)
            if state.unconfirmed - confirmed.get((connection, channel), set()) and link is not None:
                pending |= link.open and channel in link.channels
        return pending

    # what was seen

    def _observe(self, seen: list[tuple[int, Method]], silent: list[str], *, batched: bool) -> Observation:
        observation: Observation = {}
        by_channel: dict[tuple[int, int], list[Method]] = {}
        for connection, method in seen:
            by_channel.setdefault((connection, method.channel), []).append(method)
        for (connection, channel), methods in sorted(by_channel.items()):
            if batched and channel and channel not in self._links[connection].channels:
                methods = [method for method in methods if method.name not in FROM_QUEUES]
            told = self._tell(methods, self._states.setdefault((connection, channel), _ChannelState()))
            if batched:
                told = _in_no_order(told)
            if told:
                observation[f"{connection}/{channel}"] = told
        ended = [connection for connection, link in self._links.items() if not link.open]
        if ended:
            observation["ended"] = ended
        for connection in ended:
            del self._links[connection]
        observation["queues"] = {self.names.alias(queue): probe.counts for queue, probe in self._probes.items()}
        if silent:
            observation["silent"] = True
        return observation

    def _tell(self, methods: list[Method], state: _ChannelState) -> dict[str, Any]:
        """Answers, deliveries and confirms each in their order; how they mix on the wire is no promise, but that
        nothing is delivered to a consumer before its consume-ok, and nothing confirmed before it is returned."""
        told: dict[str, Any] = {}
        known = state.no_ack_tags
        confirmed: dict[str, set[int]] = {}
        returned = 0
        for method in methods:
            if method.name in ("basic.ack", "basic.nack"):
                tags = _covered(method, state.unconfirmed)
                state.unconfirmed -= tags
                confirmed.setdefault(method.name, set()).update(tags)
                continue
            if method.name == "basic.return" and sum(map(len, confirmed.values())) > returned:
                told["confirmed before the return"] = True
            returned += method.name == "basic.return"
            if method.name == "basic.deliver":
                if not told.get("answers") and any(
                    m.name == "basic.consume-ok" and m["consumer_tag"] == method["consumer_tag"] for m in methods
                ):
                    told["delivered before consume-ok"] = True
                told.setdefault("deliveries", []).append(describe(method, self.names))
                if method["consumer_tag"] not in known:
                    state.outstanding.append(method["delivery_tag"])
                continue
            if method.name == "basic.get-ok" and "get no_ack" not in known:
                state.outstanding.append(method["delivery_tag"])
            told.setdefault("answers", []).append(describe(method, self.names))
        # RabbitMQ cancels a deleted queue's consumers by their tags, which it generates at random.
        told.get("answers", []).sort(
            key=lambda answer: answer[1]["consumer_tag"] if answer[0] == "basic.cancel" else ""
        )
        for name, confirms in confirmed.items():
            told[name] = sorted(confirms)
        return told

    # putting an operation into octets

    def _encode(self, operation: Operation, number: str, link: Link, state: _ChannelState) -> bytes:
        name, channel = operation["op"], operation.get("ch", 0)
        fields = {field_name for field_name, _ in METHODS[name][2]}
        values = {key: self._value(key, value, state) for key, value in operation.items() if key in fields}
        if name == "basic.publish":
            return self._publish(operation, number, link, state, values)
        self._note(name, values, state)
        return method_frame(channel, name, **values)

    def _note(self, name: str, values: dict[str, Any], state: _ChannelState) -> None:
        """Remember what the client itself would."""
        if name in ("confirm.select", "basic.consume"):
            state.hears = True
        if name == "confirm.select":
            state.confirms = True
        elif name == "tx.select":
            state.transacts = True
        elif name == "basic.cancel":
            state.tags.discard(values["consumer_tag"])
        elif name == "basic.consume":
            state.tags.add(values["consumer_tag"])
            (state.no_ack_tags.add if values.get("no_ack") else state.no_ack_tags.discard)(values["consumer_tag"])
        elif name == "basic.get":
            (state.no_ack_tags.add if values.get("no_ack") else state.no_ack_tags.discard)("get no_ack")
        elif name in ("basic.ack", "basic.nack", "basic.reject"):
            tag = values["delivery_tag"]
            settled = [t for t in state.outstanding if t == tag or values.get("multiple") and (t <= tag or tag == 0)]
            state.outstanding = [t for t in state.outstanding if t not in settled]
        elif name in ("basic.recover", "basic.recover-async"):
            state.outstanding.clear()

    def _publish(
        self, operation: Operation, number: str, link: Link, state: _ChannelState, values: dict[str, Any]
    ) -> bytes:
        properties = {key: self._value(key, value, state) for key, value in operation.get("properties", {}).items()}
        octets = b""
        for copy in range(operation.get("count", 1)):
            body = f"{number}.{copy}".encode().ljust(operation.get("size", 0), b".")
            if operation.get("size") == 0:
                body = b""
            octets += content_frames(operation["ch"], values, properties, body, link.frame_max)
            if state.confirms:
                state.published += 1
                state.unconfirmed.add(state.published)
        return octets

    def _value(self, key: str, value: Any, state: _ChannelState) -> Any:
        if key == "delivery_tag" and isinstance(value, list):
            # ["outstanding", n]: the nth of what is outstanding on this channel
            return state.outstanding[value[1] % len(state.outstanding)] if state.outstanding else 1
        if isinstance(value, dict):
            return {name: self._field(tagged) for name, tagged in value.items()}
        return self._resolve(value) if isinstance(value, str) else value

    def _field(self, tagged: Any) -> tuple[str, Any]:
        tag, value = tagged
        if tag == "F":
            return tag, {name: self._field(inner) for name, inner in value.items()}
        if tag == "A":
            return tag, [self._field(inner) for inner in value]
        if isinstance(value, str):
            return tag, self._resolve(value)
        return tag, value

    def _resolve(self, text: str) -> str:
        """$gen, $ctag and $rabbitmq.reply-to are the newest names that the broker made."""
        if text.startswith("$"):
            return self.names.latest(text[1:]) or "q0"
        return text

    # the end of a program

    def clean_up(self, also_queues: Sequence[str] = (), also_exchanges: Sequence[str] = ()) -> None:
        """End the program's connections and delete what it made, and what an earlier run may have left."""
        for link in self._links.values():
            if link.open:
                link.send(method_frame(0, "connection.close", reply_code=200))
        for link in self._links.values():
            if link.open:
                link.drain()
        control = self.control
        control.open_channel(1)
        octets = b""
        for queue in {*self._probes, *also_queues}:
            octets += method_frame(1, "queue.delete", queue=queue)
        for exchange in sorted({*self._exchanges, *also_exchanges} - {""}):
            if not exchange.startswith("amq."):
                octets += method_frame(1, "exchange.delete", exchange=exchange)
        control.send(octets)
        control.send_barrier(1)
        answers = control.collect()
        if any(method.name == "channel.close" for method in answers):
            # An exclusive queue whose connection is still being torn down: again.
            self.clean_up(also_queues, also_exchanges)
            return
        self._begin()

    def close(self) -> None:
        """End the control connection."""
        if self._control is not None:
            self._control.drop(reset=False)


def content_frames(
    channel: int, values: Mapping[str, Any], properties: Mapping[str, Any], body: bytes, frame_max: int
) -> bytes:
    """A publish with its content; the body is split at the agreed frame size."""
    octets = method_frame(channel, "basic.publish", **values)
    octets += frame(2, channel, header_payload(len(body), properties_of(**properties)))
    step = frame_max - 8
    return octets + b"".join(frame(3, channel, body[at : at + step]) for at in range(0, len(body), step))


def _with_sorted_cancels(answers: list[Any]) -> list[Any]:
    """RabbitMQ cancels the consumers of a queue that goes in the order of their tags, some of which are random."""
    together: list[Any] = []
    for is_cancel, run in groupby(answers, lambda answer: answer[0] == "basic.cancel"):
        together += sorted(run, key=lambda answer: str(answer[1]["consumer_tag"])) if is_cancel else run  # noqa: B031
    return together


def _in_no_order(told: dict[str, Any]) -> dict[str, Any]:
    """Of a batch: RabbitMQ's queues answer basic.consume and basic.cancel behind the channel's back, so behind the
    answers to what was sent later, and count their messages ahead of publishes that wait in the same mailbox. Which of
    several publishes was confirmed before another's return is not to be seen."""
    told.pop("confirmed before the return", None)
    answers = told.get("answers", [])
    consuming = sorted((answer for answer in answers if answer[0] in FROM_QUEUES), key=str)
    for answer in [answer for answer in consuming if answer[0] == "basic.cancel"]:
        if ["basic.cancel-ok", {"consumer_tag": answer[1]["consumer_tag"]}] in consuming:
            consuming.remove(answer)  # the queue went, and the client cancelled: one of the two may come, or both
    others = [_uncounted(answer) for answer in answers if answer[0] not in FROM_QUEUES]
    return {kind: what for kind, what in {**told, "answers": others, "consuming": consuming}.items() if what}


def _uncounted(answer: list[Any]) -> list[Any]:
    return [answer[0], {"queue": answer[1]["queue"]}] if answer[0] == "queue.declare-ok" else answer


def _is_pointless(operation: Operation, state: _ChannelState) -> bool:
    """Whether a careful client would not send it on this channel."""
    name = operation["op"]
    if name in ("basic.ack", "basic.nack", "basic.reject"):
        return not state.outstanding
    if name == "basic.consume":
        return operation["consumer_tag"] in state.tags
    if name in ("tx.commit", "tx.rollback"):
        return not state.transacts
    if name == "tx.select":
        return state.confirms
    if name == "confirm.select":
        return state.transacts
    return False


def _covered(method: Method, unconfirmed: set[int]) -> set[int]:
    """The publishes that an ack or nack of the broker settles."""
    if method["multiple"]:
        return {tag for tag in unconfirmed if tag <= method["delivery_tag"]}
    return {method["delivery_tag"]}
