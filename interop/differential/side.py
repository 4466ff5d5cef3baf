"""Performs the operations of a program on one broker, and returns observations.

After each operation the side waits, without sleeping, until the broker is quiet. A round asks every queue for its
counts, so that messages have arrived in the queues, and makes a round trip on every channel that may receive something,
so that deliveries have arrived. Rounds are repeated until they find nothing new.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from ..wire.raw_codec import METHODS, Method, method_frame
from .channel_state import ChannelState, Operation
from .encoding import encode, resolve
from .frames import MISPLACED
from .link import DEADLINE_SECONDS, Link, Silent
from .observations import FROM_QUEUES, Names, in_no_order, observe

Observation = dict[str, Any]

PROBE = 1000  # the first of the channels that ask for counts
ROUNDS_MAX = 60
#: Operations after which two rounds must be quiet, because RabbitMQ's queues answer a passive declare before publishes
#: in the same mailbox. After all others one quiet round is enough.
RESTLESS = {
    "batch",
    *("basic.publish", "basic.ack", "basic.nack", "basic.reject", "basic.recover", "basic.recover-async"),
    *("basic.cancel", "basic.consume", "basic.qos", "tx.commit", "tx.rollback", "queue.delete", "queue.purge"),
    *("channel.close", "connection.close", "drop", "basic.get"),
}
PATIENT_SECONDS = 0.01


@dataclass(slots=True)
class _Probe:
    """The counts of a queue. An exclusive queue tells them its own connection only."""

    channel: int
    owner: int | None = None
    counts: list[int] | int | None = None  # [ready, consumers], a reply code, or None: it does not exist
    slow: bool = False  # a quorum queue, which works asynchronously

    def note(self, answer: Method) -> bool:
        """Note an answer. Returns whether it is new. A queue whose connection is ending answers 405."""
        counts: list[int] | int | None
        if answer.name == "queue.declare-ok":
            counts = [answer["message_count"], answer["consumer_count"]]
        else:
            counts = None if answer["reply_code"] == 404 else answer["reply_code"]
        changed = counts != self.counts or counts == 405
        self.counts = counts
        return changed


class Performer(Protocol):
    """Runs programs: a broker (`Side`), or a model of one."""

    sent: Counter[str]

    def perform(
        self, operation: Operation, number: int, *, patient: bool = False
    ) -> Generator[None, None, Observation]:
        pass

    def clean_up(self, queues: Sequence[str] = (), exchanges: Sequence[str] = ()) -> None:
        pass


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
        self.sent: Counter[str] = Counter()  # operation -> how many were sent in the last step
        self._links: dict[int, Link] = {}
        self._states: dict[tuple[int, int], ChannelState] = {}
        self._probes: dict[str, _Probe] = {}
        self._exchanges: set[str] = set()

    def _connect(self) -> Link:
        return Link(self._host, self._port, self._vhost, self._user, self._password)

    @property
    def control(self) -> Link:
        """The connection for counts and for cleaning up."""
        if self._control is None or not self._control.open:
            self._control = self._connect()
        return self._control

    # one operation

    def perform(
        self, operation: Operation, number: int, *, patient: bool = False
    ) -> Generator[None, None, Observation]:
        """Perform an operation and return the observations. Yields after each sending, so that two brokers work in
        parallel.
        """
        name, connection, channel = operation["op"], operation.get("c", 0), operation.get("ch", 0)
        link = self._links.get(connection)
        if link is None or not link.open:
            link = self._links[connection] = self._connect()
            for key in [key for key in self._states if key[0] == connection]:
                del self._states[key]
        if channel and name != "channel.open" and not operation.get("unopened") and channel not in link.channels:
            link.open_channel(channel)
            self._states[connection, channel] = ChannelState()
        seen: list[tuple[int, Method]] = []
        silent: list[str] = []
        self.sent.clear()
        yield from self._send(operation, number, link, seen, silent)
        yield from self._await_quiet(name in RESTLESS, patient, seen, silent)
        return self._observe(seen, silent, batched=name == "batch")

    def _send(
        self, operation: Operation, number: int, link: Link, seen: list[tuple[int, Method]], silent: list[str]
    ) -> Iterator[None]:
        """Send an operation and read its answer."""
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
        state = self._states.setdefault((connection, channel), ChannelState())
        octets, expected = b"", []
        sent: list[Operation] = []
        for index, one in enumerate(operation.get("operations", (operation,))):
            if one.get("careful") and state.finds_pointless(one):
                continue
            if name == "batch" and state.cannot_follow(one, sent):
                continue
            body = f"{number}-{index}" if name == "batch" else str(number)
            octets += encode(one, body, state, self.names, link.frame_max)
            sent.append(one)
            self.sent[one["op"]] += one.get("count", 1)
            if f"{one['op']}-ok" in METHODS and one["op"] != "basic.get" and not one.get("nowait"):
                expected.append((f"{one['op']}-ok", channel))
        link.send(octets)
        if name == "channel.open":
            if channel not in link.channels:
                self._states[connection, channel] = ChannelState()
            link.expect_open(channel)
        if operation.get("unopened"):
            expected = [("connection.close", 0)]
        ends = name == "connection.close"
        if not ends and name not in ("channel.close", "tx.commit"):  # nothing may follow a commit before its answer
            link.send_barrier(channel)
        yield
        answers = self._read(link, connection, None if ends else expected, seen, silent)
        self._note_declared(sent, connection, answers)

    def _read(
        self,
        link: Link,
        connection: int,
        expected: list[tuple[str, int]] | None,
        seen: list[tuple[int, Method]],
        silent: list[str],
    ) -> list[Method]:
        """The methods up to the expected answers; None: up to the end of the connection."""
        try:
            answers = link.drain() if expected is None else link.collect(*expected)
        except Silent as silence:
            silent.append(str(silence))
            answers = []
        seen += [(connection, method) for method in answers]
        return answers

    def _note_declared(self, sent: Sequence[Operation], connection: int, answers: list[Method]) -> None:
        """Note the queues and exchanges that an operation may have declared."""
        declared = iter([method["queue"] for method in answers if method.name == "queue.declare-ok"])
        for operation in sent:
            if operation["op"] == "exchange.declare":
                self._exchanges.add(operation.get("exchange", ""))
            elif operation["op"] == "queue.declare":
                self._note_queue(operation, connection, None if operation.get("nowait") else next(declared, None))

    def _note_queue(self, operation: Operation, connection: int, answered: str | None) -> None:
        queue = answered or resolve(operation.get("queue", ""), self.names)
        if not queue or operation.get("passive") and answered is None:
            return
        self.names.alias(queue)
        probe = self._probes.setdefault(queue, _Probe(PROBE + len(self._probes)))
        if operation.get("arguments", {}).get("x-queue-type") in (["S", "quorum"], ["S", "stream"]):
            self.names.has_quorum = probe.slow = True
        if probe.counts is None or probe.counts == 404:
            probe.counts = [-1, -1]
            probe.owner = connection if operation.get("exclusive") and answered is not None else None

    # waiting until it is quiet

    def _await_quiet(
        self, restless: bool, patient: bool, seen: list[tuple[int, Method]], silent: list[str]
    ) -> Iterator[None]:
        patient = patient or any(probe.slow for probe in self._probes.values())
        quiet, rounds, wanted = 0, 0, (3 if patient else 2 if restless else 1)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while rounds < ROUNDS_MAX and time.monotonic() < deadline:
            if patient:
                time.sleep(PATIENT_SECONDS)
            before = len(seen)
            changed = yield from self._round(seen, silent)
            pending = self._await_confirms(seen)
            if silent:
                return
            rounds += not pending  # a confirm may wait for the disk
            quiet = 0 if changed or len(seen) > before or pending else quiet + 1
            if quiet >= wanted:
                return
        silent.append("never quiet")

    def _round(self, seen: list[tuple[int, Method]], silent: list[str]) -> Generator[None, None, bool]:
        """Make one round. Returns whether counts have changed."""
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
            if state.may_receive and connection in self._links:
                self._links[connection].send_barrier(channel)
        yield
        changed = False
        for owner, link in [(None, self.control), *self._links.items()]:
            expected = [("queue.declare-ok", channel) for asker, channel in asked if asker == owner]
            try:
                answers = link.collect(*expected)
            except Silent as silence:
                silent.append(str(silence))
                answers = []
            for method in answers:
                if owner is not None and method.channel < PROBE:
                    seen.append((owner, method))
                elif method.name != "channel.open-ok":
                    changed |= asked[owner, method.channel].note(method)
        return changed

    def _probing_link(self, probe: _Probe) -> Link:
        if probe.owner is not None:
            link = self._links.get(probe.owner)
            if link is not None and link.open:
                return link
            probe.owner = None
        return self.control

    def _await_confirms(self, seen: list[tuple[int, Method]]) -> bool:
        """Note confirms. Returns whether some are missing."""
        pending = False
        confirmed: dict[tuple[int, int], set[int]] = {}
        for connection, method in seen:
            if method.name in ("basic.ack", "basic.nack"):
                state = self._states[connection, method.channel]
                tags = confirmed.setdefault((connection, method.channel), set())
                tags |= state.covered(method)
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
            observed = observe(methods, self._states.setdefault((connection, channel), ChannelState()), self.names)
            if batched:
                observed = in_no_order(observed)
            if observed:
                observation[f"{connection}/{channel}"] = observed
        ended = [connection for connection, link in self._links.items() if not link.open]
        if ended:
            observation["ended"] = ended
        for connection in ended:
            del self._links[connection]
        observation["queues"] = {self.names.alias(queue): probe.counts for queue, probe in self._probes.items()}
        if silent:
            observation["silent"] = True
        return observation

    # the end of a program

    def clean_up(self, also_queues: Sequence[str] = (), also_exchanges: Sequence[str] = ()) -> None:
        """End the connections of a program, and delete what it or an interrupted run has declared."""
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
            # An exclusive queue whose connection is ending: try again.
            self.clean_up(also_queues, also_exchanges)
            return
        self._begin()

    def close(self) -> None:
        if self._control is not None:
            self._control.drop(reset=False)
