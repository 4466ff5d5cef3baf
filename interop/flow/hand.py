"""A client as a row uses it: connections, each through a tap or directly, and calls that may wait for long."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from ..brokers.peers import Peer
from ..running.driver import DriverFailed
from ..running.suite import Driven
from ..wire.loopback import LOOPBACK
from ..wire.tap import Tap

#: No answer and no event for that long: the client is held.
QUIET_SECONDS = 0.7
CALL_SECONDS = 60.0
POLL_SECONDS = 0.05
CHANNEL_FLOW = (20, 20)


class Differs(Exception):
    """What a client saw is not what the row says."""


class Refused(Exception):
    """A call was refused; `answer` is the driver's: scope, code, text."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{answer.get('scope')} {answer.get('code')} {answer.get('text')}")
        self.answer = answer


class Calls:
    """Operations in a thread of their own, one after the other. `answers`: of those that have returned."""

    def __init__(self, hand: Hand, operations: Iterable[Mapping[str, Any]]) -> None:
        self.answers: list[dict[str, Any]] = []
        self.refusal: Refused | None = None
        self.failure: Exception | None = None
        self._hand, self._operations = hand, iter(operations)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calls", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for operation in self._operations:
                if self._is_over.is_set():
                    return
                self.answers.append(self._hand.ask(operation))
        except Refused as error:
            self.refusal = error
        except DriverFailed as error:
            self.failure = error

    @property
    def are_done(self) -> bool:
        """Whether all have returned, or one was refused."""
        return not self._thread.is_alive()

    def come_to_rest(self, quiet: float = QUIET_SECONDS) -> int:
        """Until all are done or nothing returned for so long. Returns: how many have returned."""
        seen, since = -1, time.monotonic()
        while not self.are_done and time.monotonic() - since < quiet:
            if len(self.answers) != seen:
                seen, since = len(self.answers), time.monotonic()
            self._thread.join(POLL_SECONDS)
        return len(self.answers)

    def reach(self, count: int, seconds: float = CALL_SECONDS) -> None:
        """Until so many returned, or the time is over."""
        deadline = time.monotonic() + seconds
        while len(self.answers) < count and not self.are_done and time.monotonic() < deadline:
            self._thread.join(POLL_SECONDS)

    def end(self, seconds: float = CALL_SECONDS) -> None:
        """Wait until all are done. Raises: Differs: they are not; Refused: one was."""
        self._thread.join(seconds)
        if not self.are_done:
            raise Differs(f"a call of {self._hand.name} still waits after {seconds:.0f} s")
        if self.failure is not None:
            raise self.failure
        if self.refusal is not None:
            raise self.refusal

    def stop(self) -> None:
        """No further ones."""
        self._is_over.set()


class Hand:
    """A place is `CONNECTION/CHANNEL`, as "a/1". A row uses up its hand.

    `expects_channel_flow`: otherwise a row in which the client is sent one fails.
    """

    def __init__(self, driven: Driven, peer: Peer, stack: ExitStack) -> None:
        self._driven, self._peer, self._stack = driven, peer, stack
        self._lock = threading.Lock()  # a driver is asked one thing after the other
        self._taps: dict[str, Tap] = {}
        self._calls: list[Calls] = []
        self._confirms: dict[str, list[tuple[int, bool]]] = {}
        self.expects_channel_flow = False

    @property
    def name(self) -> str:
        return self._driven.hello.client

    def lacks(self, what: str) -> str:
        """Why the client has no such call, argument or event, or ""."""
        return self._driven.hello.lacks.get(what, "")

    @property
    def waits_for_confirms(self) -> bool:
        """Whether each publish on a channel with confirms waits for its confirm."""
        return bool(self.lacks("basic.publish:in_background"))

    # -- connections ------------------------------------------------------------------------------------------------

    def connect(self, name: str = "a", *, announces: bool = True, heartbeat: int = 0, tapped: bool = True) -> None:
        """`announces`: the capability connection.blocked. `tapped`: so that `frames` shows what went over the line."""
        port = self._peer.port
        if tapped:
            self._taps[name] = self._stack.enter_context(Tap(LOOPBACK, port))
            port = self._taps[name].port
        login = {"host": LOOPBACK, "port": port, "user": "guest", "password": "guest", "vhost": "/"}
        unannounced = {} if announces else {"unannounced": True}
        self.do(f"{name}/0", "connection.open", heartbeat=heartbeat, **login, **unannounced)

    def open(self, place: str, *, prefetch: int = 0) -> None:
        """A connection with a channel."""
        self.connect(place.partition("/")[0])
        self.open_channel(place)
        if prefetch:
            self.do(place, "basic.qos", prefetch_count=prefetch)

    def open_channel(self, place: str) -> None:
        """Of a connection that is open."""
        self.do(place, "channel.open")

    def tap(self, name: str) -> Tap:
        """Of a connection."""
        return self._taps[name]

    def frames(self, name: str, method: tuple[int, int], *, by: str = "broker") -> list[float]:
        """When each method of a kind went by (monotonic, in seconds), sent by the broker or by the client."""
        tap = self._taps[name]
        return list((tap.from_broker if by == "broker" else tap.from_client).methods.get(method, ()))

    def end(self) -> None:
        """Close everything. Raises: Differs: a client was sent channel.flow."""
        self._driven.ask({"do": "reset"}, CALL_SECONDS)
        for name, tap in self._taps.items():
            if tap.from_broker.methods.get(CHANNEL_FLOW) and not self.expects_channel_flow:
                raise Differs(f"connection {name} was sent channel.flow")

    def abandon(self) -> None:
        """The row went wrong, and a call may hang for ever: the driver ends."""
        for calls in self._calls:
            calls.stop()
        self._driven.end()

    # -- calls ------------------------------------------------------------------------------------------------------

    def ask(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        """Raises: Refused, DriverFailed."""
        with self._lock:
            answer = self._driven.ask(operation, CALL_SECONDS)
        if "ok" not in answer:
            raise Refused(answer.get("error", {"scope": "client", "code": 0, "text": str(answer.get("lacks", answer))}))
        ok: dict[str, Any] = answer["ok"]
        return ok

    def do(self, place: str, what: str, **arguments: Any) -> dict[str, Any]:
        """One call. Raises: Refused."""
        return self.ask(_operation(place, what, arguments))

    def calls(self, *operations: tuple[str, str, dict[str, Any]]) -> Calls:
        """Several calls, which may wait: place, what, arguments."""
        return self._begun(_operation(*one) for one in operations)

    def publish(self, place: str, key: str, bodies: Iterable[bytes], *, exchange: str = "", **arguments: Any) -> Calls:
        """One after the other; on a channel with confirms each as the client does it."""
        if place in self._confirms and not self.waits_for_confirms:
            arguments["in_background"] = True
        return self._begun(_publishes(place, key, bodies, exchange, arguments))

    def _begun(self, operations: Iterable[Mapping[str, Any]]) -> Calls:
        calls = Calls(self, operations)
        self._calls.append(calls)
        return calls

    # -- events -----------------------------------------------------------------------------------------------------

    def events(self, place: str, event: str, count: int = 1, seconds: float = 15.0) -> list[dict[str, Any]]:
        """The next so many of a kind, or fewer after that time."""
        found: list[dict[str, Any]] = self.do(place, "wait", event=event, count=count, seconds=seconds)["events"]
        return found

    def all_events(self, place: str, event: str, quiet: float = QUIET_SECONDS) -> list[dict[str, Any]]:
        """All of a kind, until none came for so long."""
        found: list[dict[str, Any]] = []
        while more := self.events(place, event, 100_000, quiet):
            found += more
        return found

    def select_confirms(self, place: str) -> None:
        """A connection with a channel with confirms, which `confirmed` collects."""
        self.open(place)
        self.do(place, "confirm.select")
        self._confirms[place] = []

    def confirmed_at_rest(self, calls: Calls, place: str, least: int = 0) -> int:
        """How many of these publishes are confirmed when no more come. So many as `least` are waited for longer: a busy
        machine rests, too."""
        if self.waits_for_confirms:
            calls.reach(least)
        else:
            self.confirmed(place, least)
        returned = calls.come_to_rest()
        return returned if self.waits_for_confirms else len(self.confirmed(place))

    def confirmed(self, place: str, count: int | None = None, seconds: float = 30.0) -> list[tuple[int, bool]]:
        """What was confirmed up to now: the number of each publish, from 1, and whether it was an ack; as it came.

        Waits for `count` of them, or, without, until none came for a while.
        """
        known = self._confirms[place]
        deadline = time.monotonic() + seconds
        while count is None or (len(known) < count and time.monotonic() < deadline):
            new = self.events(place, "confirm", 100_000 if count is None else count - len(known), QUIET_SECONDS)
            known += [(one["seq"], one["ack"]) for one in new]
            if count is None and not new:
                break
        if self.lacks("confirm=order"):
            known.sort()
        return known


def _operation(place: str, what: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    connection, _, channel = place.partition("/")
    return {"do": what, "connection": connection, "channel": channel, **arguments}


def _publishes(
    place: str, key: str, bodies: Iterable[bytes], exchange: str, arguments: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for body in bodies:
        text = base64.b64encode(body).decode()
        yield _operation(place, "basic.publish", {"exchange": exchange, "routing_key": key, "body": text, **arguments})


def bodies(count: int, size: int = 1024, *, name: str = "") -> Iterator[bytes]:
    """`NAME:NUMBER`, filled up to `size` octets."""
    for number in range(count):
        yield f"{name}:{number}".encode().ljust(size)


def number_of(body: bytes) -> int:
    """The number of one of these."""
    return int(body.split(b":")[1])


def delivered(event: Mapping[str, Any]) -> bytes:
    return base64.b64decode(event["body"])
