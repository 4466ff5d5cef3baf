"""Runs a scenario by one client, or by one for each role: sends operations to drivers and checks the answers."""

from __future__ import annotations

import base64
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from ..brokers.broker import Broker
from ..wire.raw_codec import HEARTBEAT
from ..wire.tap import Tap
from .driver import DriverFailed, Hello
from .scenario import Scenario, Step
from .values import body_of, difference, named, plain, typed, typed_table, types_in

PASSED, FAILED, LACKS, NOT_RUN = "passed", "failed", "lacks", "not run"
NAME = re.compile(r"@(\w+(?:[.-]\w+)*)")
OUTCOMES = ("ok", "error", "until")
NOTHING_COMES_SECONDS = 0.3
POLL_SECONDS = 0.05


class Client(Protocol):
    """A driver's interface for runs."""

    @property
    def hello(self) -> Hello: ...

    def ask(self, operation: Mapping[str, Any], seconds: float) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. `verdict`: PASSED, FAILED, LACKS (the client has no such call) or NOT_RUN."""

    scenario: str
    clients: tuple[str, ...]
    verdict: str
    reason: str = ""
    seconds: float = 0.0


class Mismatch(Exception):
    """An observation differs from the scenario."""


def lacking(scenario: Scenario, clients: Mapping[str, Client]) -> str:
    """The need of a scenario that a client lacks, with the reason; "": there is none."""
    for client in clients.values():
        if why := client.hello.lacks.get(f"scenario:{scenario.name}"):
            return f"{client.hello.client}: {why}"
    for step in scenario.steps:
        hello = clients[step.role].hello
        for key in _needed(step):
            if key in hello.lacks:
                return f"{hello.client}: {key}: {hello.lacks[key]}"
    return ""


def _needed(step: Step) -> list[str]:
    if step.kind in ("wait", "none"):
        return [f"event:{step.what}"]
    if step.kind != "do":
        return []
    arguments = {key: value for key, value in step.arguments.items() if key not in OUTCOMES}
    keys = [step.what, *(f"{step.what}:{key}" for key, value in arguments.items() if value not in (False, "", 0, {}))]
    keys += [f"property:{name}" for name in arguments.get("properties", {})]
    if step.what == "connection.open" and arguments.get("recover"):
        keys.append("recover")
    if not arguments.get("as_far_as_known"):
        for part in ("arguments", "headers"):
            for value in arguments.get(part, {}).values():
                keys += [f"type:{letter}" for letter in types_in(typed(value))]
    return keys


class Run:
    """A run of a scenario. `control`: runs a control of the broker, once for all runs of the scenario."""

    def __init__(
        self,
        scenario: Scenario,
        clients: Mapping[str, Client],
        broker: Broker,
        control: Callable[[str], None],
        seconds: float,
    ) -> None:
        self._scenario, self._clients, self._broker, self._control = scenario, clients, broker, control
        self._seconds = seconds
        self._prefix = f"interop-{uuid.uuid4().hex[:8]}-"
        self._taps: dict[tuple[str, str], Tap] = {}
        self._connections: set[tuple[str, str]] = set()
        self._channels: set[tuple[str, str, str]] = set()
        self._declared: list[dict[str, Any]] = []
        self._stack = ExitStack()

    def result(self) -> Result:
        """Run the steps to the end, or to the first mismatch."""
        names = tuple(client.hello.client for client in self._clients.values())
        begin = time.monotonic()
        verdict, reason = PASSED, ""
        with self._stack:
            for number, step in enumerate(self._scenario.steps, 1):
                try:
                    self._step(step)
                except (Mismatch, DriverFailed) as error:
                    verdict, reason = FAILED, f"step {number} ({step.what}): {error}".replace(self._prefix, "@")
                    break
            self._clean()
        return Result(self._scenario.name, names, verdict, reason, time.monotonic() - begin)

    def _step(self, step: Step) -> None:
        arguments = named(dict(step.arguments), self._rename)
        KINDS[step.kind](self, step, arguments)

    def _do(self, step: Step, arguments: dict[str, Any]) -> None:
        expected = {key: arguments.pop(key) for key in OUTCOMES if key in arguments}
        operation = self._operation(step, arguments)
        if "until" in expected:
            self._until(step, operation, expected["until"])
            return
        answer = self._ask(step, operation)
        if "error" in expected:
            self._refused(step, answer, expected["error"])
            return
        seen = self._ok(answer)
        if step.what in ("queue.declare", "exchange.declare") and not arguments.get("passive"):
            self._declared.append({**operation, "queue": seen.get("queue", operation.get("queue"))})
        self._compare(step, expected.get("ok", {}), seen)

    def _operation(self, step: Step, arguments: dict[str, Any]) -> dict[str, Any]:
        lacks = self._clients[step.role].hello.lacks
        unknown = [key.removeprefix("type:") for key in lacks if key.startswith("type:")]
        unread = {letter for client in self._clients.values() for letter in client.hello.reads_not}
        leave_out = {*unknown, *unread} if arguments.pop("as_far_as_known", False) else ()
        for part in ("arguments", "headers"):
            if part in arguments:
                arguments[part] = typed_table(arguments[part], leave_out)
        if "body" in arguments:
            arguments["body"] = base64.b64encode(body_of(arguments["body"])).decode()
        if step.what == "basic.publish":
            arguments = {"exchange": "", "body": "", **arguments}
        if step.what == "connection.open":
            return self._opening(step, arguments)
        self._open(step, channel=not step.what.startswith(("connection.", "channel.open")))
        if step.what == "connection.close":
            self._connections.discard((step.role, step.connection))
        if step.what == "channel.open":
            self._channels.add((step.role, step.connection, step.channel))
        return {"do": step.what, **self._place(step), **arguments}

    def _open(self, step: Step, *, channel: bool) -> None:
        """Open the connection and channel of a step, if the run has not opened them before."""
        if (step.role, step.connection) not in self._connections:
            opening = Step("do", "connection.open", step.role, step.connection, step.channel, {})
            self._ok(self._ask(step, self._opening(opening, {})))
        if channel and (step.role, step.connection, step.channel) not in self._channels:
            self._ok(self._ask(step, {"do": "channel.open", **self._place(step)}))
            self._channels.add((step.role, step.connection, step.channel))

    def _opening(self, step: Step, arguments: dict[str, Any]) -> dict[str, Any]:
        key = step.role, step.connection
        broker, tls = self._broker, arguments.pop("tls", False)
        tap = self._taps.get(key)
        if tap is None:
            tap = Tap(broker.host, broker.tls_port if tls else broker.port, opaque=tls)
            self._taps[key] = self._stack.enter_context(tap)
        self._connections.add(key)
        self._channels -= {channel for channel in self._channels if channel[:2] == key}
        secure = {"ca": str(broker.ca)} if tls else {}
        login = {"user": broker.user, "password": broker.password, "vhost": broker.vhost}
        return {
            "do": "connection.open",
            **self._place(step),
            "host": "127.0.0.1",
            "port": tap.port,
            **login,
            **secure,
            **arguments,
        }

    def _refused(self, step: Step, answer: dict[str, Any], expected: dict[str, Any]) -> None:
        if "error" in answer:
            seen = answer["error"]
            self._events(step, "closed", 1, 0)  # reported twice
        else:
            events = self._events(step, "closed", 1, self._seconds)
            if not events:
                raise Mismatch(f"nothing was refused; {expected} was expected")
            seen = events[0]
        self._compare(step, expected, seen)
        if seen["scope"] == "channel":
            self._channels.discard((step.role, step.connection, step.channel))

    def _until(self, step: Step, operation: dict[str, Any], expected: dict[str, Any]) -> None:
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                self._compare(step, expected, self._ok(self._ask(step, operation)))
                return
            except Mismatch:
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_SECONDS)

    def _wait(self, step: Step, arguments: dict[str, Any]) -> None:
        self._open(step, channel=False)
        expected = arguments.get("expect")
        count = len(expected) if expected is not None else arguments["count"]
        events = self._events(step, step.what, count, self._seconds)
        if step.what == "confirm":
            events.sort(key=lambda event: event["seq"])
        if len(events) < count:
            raise Mismatch(f"{len(events)} of {count} came within {self._seconds:.0f} s")
        if arguments.get("unordered"):
            self._compare_unordered(step, expected or [], events)
        elif expected is not None:
            for one, event in zip(expected, events):
                self._compare(step, one, event)

    def _none(self, step: Step, arguments: dict[str, Any]) -> None:
        events = self._events(step, step.what, 1, NOTHING_COMES_SECONDS)
        if events:
            raise Mismatch(f"none was expected; {events[0]} came")

    def _broker_control(self, step: Step, arguments: dict[str, Any]) -> None:
        if step.what == "kill":
            self._taps[step.role, step.connection].cut()
        elif step.what == "silence":
            self._taps[step.role, step.connection].silence()
        else:
            self._control(step.what)

    def _frames(self, step: Step, arguments: dict[str, Any]) -> None:
        """Wait for a heartbeat, and let the client send one."""
        tap, side = self._taps[step.role, step.connection], arguments["from"]
        deadline = time.monotonic() + self._seconds
        while not tap.wait_for(lambda tap: getattr(tap, f"from_{side}").counts.get(HEARTBEAT, 0) > 0, 0):
            if time.monotonic() > deadline:
                raise Mismatch(f"no {step.what} from the {side} within {self._seconds:.0f} s")
            self._events(step, "closed", 1, 0.3)

    def _ended(self, step: Step, arguments: dict[str, Any]) -> None:
        if not self._taps[step.role, step.connection].wait_for(lambda tap: step.what in tap.ended_by, self._seconds):
            raise Mismatch(f"the {step.what} did not end the connection within {self._seconds:.0f} s")

    def _same(self, step: Step, arguments: dict[str, Any]) -> None:
        """Check that the last content that the second role received has the octets that the first role sent last."""
        writer, reader = (self._taps[role, "a"] for role in self._scenario.roles)
        if not reader.wait_for(lambda tap: bool(tap.from_broker.contents), self._seconds):
            raise Mismatch("no content came")
        sent, received = writer.from_client.contents[-1], reader.from_broker.contents[-1]
        if sent.header != received.header:
            raise Mismatch(f"the content header differs: {sent.header.hex()} sent, {received.header.hex()} received")
        if sent.body != received.body:
            raise Mismatch(f"the body differs: {len(sent.body)} octets sent, {len(received.body)} received")

    def _events(self, step: Step, event: str, count: int, seconds: float) -> list[dict[str, Any]]:
        operation = {"do": "wait", **self._place(step), "event": event, "count": count, "seconds": seconds}
        events: list[dict[str, Any]] = self._ok(self._clients[step.role].ask(operation, seconds + self._seconds))[
            "events"
        ]
        return events

    def _ask(self, step: Step, operation: Mapping[str, Any]) -> dict[str, Any]:
        return self._clients[step.role].ask(operation, self._seconds)

    @staticmethod
    def _ok(answer: Mapping[str, Any]) -> dict[str, Any]:
        if "ok" not in answer:
            raise Mismatch(f"refused: {answer.get('error', answer)}")
        ok: dict[str, Any] = answer["ok"]
        return ok

    def _place(self, step: Step) -> dict[str, str]:
        return {"connection": f"{step.role}:{step.connection}", "channel": step.channel}

    def _rename(self, text: str) -> str:
        text = text.replace("vhost '/'", f"vhost '{self._broker.vhost}'")
        return NAME.sub(lambda found: self._prefix + found[1], text)

    def _compare(self, step: Step, expected: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
        found = difference(self._expectation(step, expected), seen)
        if found:
            raise Mismatch(found.lstrip("."))

    def _compare_unordered(self, step: Step, expected: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
        left = list(events)
        for one in expected:
            match = next((e for e in left if not difference(self._expectation(step, one), e)), None)
            if match is None:
                raise Mismatch(f"{one} is not among {left}")
            left.remove(match)

    def _expectation(self, step: Step, expected: Mapping[str, Any]) -> dict[str, Any]:
        """An expected event in the form of drivers' answers, without fields that the client does not report."""
        hello = self._clients[step.role].hello
        result = {k: v for k, v in expected.items() if f"{step.what}={k}" not in hello.lacks}
        if "text" in result:
            result["text"] = self._broker.texts.get(result["text"], result["text"])
        if "body" in result:
            result["body"] = base64.b64encode(body_of(result["body"])).decode()
        if isinstance(result.get("headers"), dict):
            unwritten = {
                key.removeprefix("type:")
                for client in self._clients.values()
                for key in client.hello.lacks
                if key.startswith("type:") and len(self._clients) > 1
            }
            leave_out = unwritten.union(*(client.hello.reads_not for client in self._clients.values()))
            result["headers"] = {k: plain(v) for k, v in typed_table(result["headers"], leave_out).items()}
        return result

    def _clean(self) -> None:
        """Close all connections. On a broker that continues to run, also delete what was declared."""
        asked = {id(client): client for client in self._clients.values()}
        role = self._scenario.roles[0]
        try:
            for client in asked.values():
                client.ask({"do": "reset"}, self._seconds)
            if self._broker.is_ours or not self._declared:
                return
            step = Step("do", "", role, "cleaning", "1", {})
            self._open(step, channel=True)
            for one in self._declared:
                kind = one["do"].partition(".")[0]
                self._ask(step, {"do": f"{kind}.delete", **self._place(step), kind: one[kind]})
            self._ask(step, {"do": "reset"})
        except (DriverFailed, Mismatch):
            pass  # objects that remain have the prefix of the run


KINDS = {
    "do": Run._do,
    "wait": Run._wait,
    "none": Run._none,
    "control": Run._broker_control,
    "frames": Run._frames,
    "ended": Run._ended,
    "same": Run._same,
}
