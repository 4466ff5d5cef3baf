"""The client of a row: its connections, directly or through a tap, and calls that may block for long."""

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
from ..wire.raw_codec import METHODS
from ..wire.tap import Tap

#: A client without an answer and an event for this time counts as held.
QUIET_SECONDS = 0.7
CALL_SECONDS = 60.0
CONFIRM_SECONDS = 30.0
POLL_SECONDS = 0.05


class Differs(Exception):
    """A client saw something that the row does not say."""


class Refused(Exception):
    """A call was refused. `answer`: the driver's, with scope, code and text."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{answer.get('scope')} {answer.get('code')} {answer.get('text')}")
        self.answer = answer


class Calls:
    """Operations that a thread performs one after the other. `answers`: of those that have returned."""

    def __init__(self, client: RowClient, operations: Iterable[Mapping[str, Any]]) -> None:
        self.answers: list[dict[str, Any]] = []
        self.refusal: Refused | None = None
        self.failure: Exception | None = None
        self._client, self._operations = client, iter(operations)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calls", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for operation in self._operations:
                if self._is_over.is_set():
                    return
                self.answers.append(self._client.ask(operation))
        except Refused as error:
            self.refusal = error
        except DriverFailed as error:
            self.failure = error

    @property
    def are_done(self) -> bool:
        """Whether all calls have returned or one was refused."""
        return not self._thread.is_alive()

    def wait_until_quiet(self, quiet: float = QUIET_SECONDS) -> int:
        """Wait until all calls have returned, or none for `quiet` seconds. Returns the number of those that have."""
        seen, since = -1, time.monotonic()
        while not self.are_done and time.monotonic() - since < quiet:
            if len(self.answers) != seen:
                seen, since = len(self.answers), time.monotonic()
            self._thread.join(POLL_SECONDS)
        return len(self.answers)

    def reach(self, count: int) -> None:
        """Wait until `count` calls have returned, or the time is over."""
        deadline = time.monotonic() + CALL_SECONDS
        while len(self.answers) < count and not self.are_done and time.monotonic() < deadline:
            self._thread.join(POLL_SECONDS)

    def end(self) -> None:
        """Wait for all calls. Raises: Differs: one still waits. Refused: one was refused."""
        self._thread.join(CALL_SECONDS)
        if not self.are_done:
            raise Differs(f"a call of {self._client.name} still waits after {CALL_SECONDS:.0f} s")
        if self.failure is not None:
            raise self.failure
        if self.refusal is not None:
            raise self.refusal

    def stop(self) -> None:
        """Make no further calls."""
        self._is_over.set()


class RowClient:
    """The client of one row, which cannot be used again. `place`: CONNECTION/CHANNEL, like "a/1".

    `expects_channel_flow`: a row without it fails if the client is sent channel.flow.
    """

    def __init__(self, driven: Driven, peer: Peer, stack: ExitStack) -> None:
        self._driven, self._peer, self._stack = driven, peer, stack
        self._lock = threading.Lock()  # a driver answers one request at a time
        self._taps: dict[str, Tap] = {}
        self._calls: list[Calls] = []
        self._confirms: dict[str, list[tuple[int, bool]]] = {}
        self.expects_channel_flow = False

    @property
    def name(self) -> str:
        return self._driven.hello.client

    def lacks(self, what: str) -> str:
        """The reason why the client lacks a call, an argument or an event; "": it does not."""
        return self._driven.hello.lacks.get(what, "")

    @property
    def waits_for_confirms(self) -> bool:
        """Whether each publish on a channel with confirms waits for its confirm."""
        return bool(self.lacks("basic.publish:in_background"))

    # -- connections ------------------------------------------------------------------------------------------------

    def connect(self, name: str = "a", *, announces: bool = True, heartbeat: int = 0, tapped: bool = True) -> None:
        """Open a connection. `announces`: it has the capability connection.blocked. `tapped`: `frames` needs it."""
        port = self._peer.port
        if tapped:
            self._taps[name] = self._stack.enter_context(Tap(LOOPBACK, port))
            port = self._taps[name].port
        login = {"host": LOOPBACK, "port": port, "user": "guest", "password": "guest", "vhost": "/"}
        unannounced = {} if announces else {"unannounced": True}
        self.do(f"{name}/0", "connection.open", heartbeat=heartbeat, **login, **unannounced)

    def open(self, place: str, *, prefetch: int = 0) -> None:
        """Open a connection and a channel."""
        self.connect(place.partition("/")[0])
        self.open_channel(place)
        if prefetch:
            self.do(place, "basic.qos", prefetch_count=prefetch)

    def open_channel(self, place: str) -> None:
        """Open a channel of an open connection."""
        self.do(place, "channel.open")

    def tap(self, name: str) -> Tap:
        """The tap of a connection."""
        return self._taps[name]

    def frames(self, name: str, method: str, *, by: str = "broker") -> list[float]:
        """The times (monotonic, in seconds) of all methods of a kind that the broker or the client sent."""
        tap = self._taps[name]
        return list((tap.from_broker if by == "broker" else tap.from_client).methods.get(METHODS[method][:2], ()))

    def end(self) -> None:
        """Close everything. Raises: Differs: a client was sent channel.flow."""
        self._driven.ask({"do": "reset"}, CALL_SECONDS)
        for name in self._taps:
            if self.frames(name, "channel.flow") and not self.expects_channel_flow:
                raise Differs(f"connection {name} was sent channel.flow")

    def abandon(self) -> None:
        """End the driver after a fault, because a call may hang for ever."""
        for calls in self._calls:
            calls.stop()
        self._driven.end()

    # -- calls ------------------------------------------------------------------------------------------------------

    def ask(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        """The driver's answer to an operation. Raises: Refused, DriverFailed."""
        with self._lock:
            answer = self._driven.ask(operation, CALL_SECONDS)
        if "ok" not in answer:
            raise Refused(answer.get("error", {"scope": "client", "code": 0, "text": str(answer.get("lacks", answer))}))
        ok: dict[str, Any] = answer["ok"]
        return ok

    def do(self, place: str, what: str, **arguments: Any) -> dict[str, Any]:
        """Make a call and wait for its result. Raises: Refused."""
        return self.ask(_operation(place, what, arguments))

    def calls(self, *operations: tuple[str, str, dict[str, Any]]) -> Calls:
        """Begin several calls, which may block: (place, operation, arguments)."""
        return self._begun(_operation(*one) for one in operations)

    def publish(self, place: str, key: str, bodies: Iterable[bytes], *, exchange: str = "", **arguments: Any) -> Calls:
        """Begin to publish bodies one after the other, without waiting for confirms if the client can do that."""
        if place in self._confirms and not self.waits_for_confirms:
            arguments["in_background"] = True
        return self._begun(_publishes(place, key, bodies, exchange, arguments))

    def _begun(self, operations: Iterable[Mapping[str, Any]]) -> Calls:
        calls = Calls(self, operations)
        self._calls.append(calls)
        return calls

    # -- events -----------------------------------------------------------------------------------------------------

    def events(self, place: str, event: str, count: int = 1, seconds: float = 15.0) -> list[dict[str, Any]]:
        """The next `count` events of a kind, or fewer after `seconds`."""
        found: list[dict[str, Any]] = self.do(place, "wait", event=event, count=count, seconds=seconds)["events"]
        return found

    def all_events(self, place: str, event: str) -> list[dict[str, Any]]:
        """All events of a kind, until none came for `QUIET_SECONDS`."""
        found: list[dict[str, Any]] = []
        while more := self.events(place, event, 100_000, QUIET_SECONDS):
            found += more
        return found

    def select_confirms(self, place: str) -> None:
        """Open a connection and a channel with confirms, which `confirmed` collects."""
        self.open(place)
        self.do(place, "confirm.select")
        self._confirms[place] = []

    def confirms_when_quiet(self, calls: Calls, place: str, least: int = 0) -> int:
        """The number of confirms when no more come. The first `least` ones may take longer, on a busy machine."""
        if self.waits_for_confirms:
            calls.reach(least)
        else:
            self.confirmed(place, least)
        returned = calls.wait_until_quiet()
        return returned if self.waits_for_confirms else len(self.confirmed(place))

    def confirmed(self, place: str, count: int | None = None) -> list[tuple[int, bool]]:
        """All confirms in their order: the number of each publish, from 1, and whether it was an ack.

        Waits for `count` of them; without `count`, until none came for `QUIET_SECONDS`.
        """
        known = self._confirms[place]
        deadline = time.monotonic() + CONFIRM_SECONDS
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
    """Bodies `NAME:NUMBER`, filled up to `size` octets."""
    for number in range(count):
        yield f"{name}:{number}".encode().ljust(size)


def number_of(body: bytes) -> int:
    """The number in a body of `bodies`."""
    return int(body.split(b":")[1])


def delivered(event: Mapping[str, Any]) -> bytes:
    return base64.b64decode(event["body"])
