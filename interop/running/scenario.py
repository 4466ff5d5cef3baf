"""Reads scenarios from TOML and checks them.

A file of `interop/scenarios/` is a feature: `feature`, `title`, and `[[scenario]]` tables with

    name      unique among all scenarios, `feature-what`
    says      one sentence: what is true when it passes
    source    where that is specified (optional)
    roles     names of the clients that take part (default: one); every combination is run
    needs     what the broker must allow the runner: "restart", "tls", "alarm", "disk"
    steps     in order; each is exactly one of
        { do = OPERATION, ok = {...} | error = {...} | until = {...}, arguments ... }
        { wait = EVENT, expect = [{...}, ...], unordered = true }    or  { wait = EVENT, count = N }
        { none = EVENT }
        { control = "restart" | "crash" | "kill" | "silence" | "alarm-on" | "alarm-off" |
          "disk-full" | "disk-free" }
        { frames = "heartbeat", from = "broker" | "client" }         such a frame goes by
        { ended = "broker" }                                         the broker ends the connection
        { same = "content" }                                         in all octets, from the first role to the second

`on`: "2" is channel 2 of connection a, "b/1" channel 1 of connection b; default "a/1". Connections and channels are
opened when first used. `by` names the role. A name that begins with @ is made unique for the run, in texts too. `ok`,
`error`, `until` and `expect` name what is compared; anything else may have any value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "scenarios"
#: Scenarios of leased queues, which no other broker has.
LEASES = FOLDER.with_name("leases")

OPERATIONS = frozenset(
    {
        *("connection.open", "connection.close", "connection.update-secret"),
        *("channel.open", "channel.close", "channel.flow"),
        *(f"exchange.{verb}" for verb in ("declare", "delete", "bind", "unbind")),
        *(f"queue.{verb}" for verb in ("declare", "bind", "unbind", "purge", "delete")),
        *(f"basic.{verb}" for verb in ("qos", "consume", "cancel", "publish", "get", "ack", "nack", "reject")),
        *("basic.recover", "basic.recover-async", "confirm.select", "tx.select", "tx.commit", "tx.rollback"),
    }
)
EVENTS = frozenset({"delivery", "return", "confirm", "cancel", "blocked", "unblocked", "closed"})
CONTROLS = {
    "restart": "restart",
    "crash": "restart",
    "kill": "",
    "silence": "",
    "alarm-on": "alarm",
    "alarm-off": "alarm",
    "disk-full": "disk",
    "disk-free": "disk",
}
KINDS = ("do", "wait", "none", "control", "frames", "ended", "same")
ALLOWED = {
    "do": None,  # and the arguments of the operation
    "wait": {"expect", "count", "unordered"},
    "none": set(),
    "control": set(),
    "frames": {"from"},
    "ended": set(),
    "same": set(),
}


class ScenarioError(Exception):
    """A scenario is invalid. The message has its name and the fault."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a scenario. `what`: the operation, event or control. `arguments`: the other keys, as written."""

    kind: str
    what: str
    role: str
    connection: str
    channel: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario, which begins at `line` (from 1) of `file`."""

    name: str
    feature: str
    says: str
    file: str
    line: int
    steps: tuple[Step, ...]
    roles: tuple[str, ...] = ("client",)
    needs: frozenset[str] = field(default_factory=frozenset)
    source: str = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """The scenarios of a file: a row of the scorecard."""

    name: str
    title: str
    scenarios: tuple[Scenario, ...]


def read_features(folder: Path = FOLDER) -> list[Feature]:
    """All features, in the order of the names of their files.

    Raises: ScenarioError, with the file and the scenario.
    """
    features = [_read_file(path) for path in sorted(folder.glob("*.toml"))]
    seen: dict[str, str] = {}
    for scenario in (scenario for feature in features for scenario in feature.scenarios):
        if scenario.name in seen:
            raise ScenarioError(f"{scenario.file}: {scenario.name} is in {seen[scenario.name]} already")
        seen[scenario.name] = scenario.file
    return features


def _read_file(path: Path) -> Feature:
    text = path.read_text()
    try:
        data = tomllib.loads(text)
        title, tables = data.pop("title"), data.pop("scenario")
        lines = [text.count("\n", 0, found.start()) + 1 for found in re.finditer(r"^\[\[scenario\]\]", text, re.M)]
        if data:
            raise ScenarioError(f"what is {', '.join(data)}?")
        scenarios = [_scenario(table, path, line) for table, line in zip(tables, lines, strict=True)]
    except (tomllib.TOMLDecodeError, ScenarioError, KeyError) as error:
        raise ScenarioError(f"{path.name}: {error}") from error
    return Feature(path.stem, title, tuple(scenarios))


def _scenario(table: dict[str, Any], path: Path, line: int) -> Scenario:
    rest = dict(table)
    name, says, steps = rest.pop("name"), rest.pop("says"), rest.pop("steps")
    roles, needs, source = rest.pop("roles", ["client"]), rest.pop("needs", []), rest.pop("source", "")
    if rest:
        raise ScenarioError(f"{name}: what is {', '.join(rest)}?")
    try:
        parsed = tuple(_step(step, roles) for step in steps)
    except ScenarioError as error:
        raise ScenarioError(f"{name}: {error}") from error
    needs = {*needs, *(CONTROLS[step.what] for step in parsed if step.kind == "control")} - {""}
    return Scenario(name, path.stem, says, path.name, line, parsed, tuple(roles), frozenset(needs), source)


def _step(table: dict[str, Any], roles: list[str]) -> Step:
    rest = dict(table)
    kinds = [kind for kind in KINDS if kind in rest]
    if len(kinds) != 1:
        raise ScenarioError(f"a step is one of {', '.join(KINDS)}: {table}")
    kind = kinds[0]
    what, role, on = rest.pop(kind), rest.pop("by", roles[0]), rest.pop("on", "1")
    known = {"do": OPERATIONS, "wait": EVENTS, "none": EVENTS, "control": CONTROLS.keys()}.get(kind)
    if known is not None and what not in known:
        raise ScenarioError(f"there is no {kind} {what!r}")
    if role not in roles:
        raise ScenarioError(f"there is no role {role!r}")
    allowed = ALLOWED[kind]
    if allowed is not None and not rest.keys() <= allowed:
        raise ScenarioError(f"{kind} {what}: what is {', '.join(rest.keys() - allowed)}?")
    if kind == "do" and len(rest.keys() & {"ok", "error", "until"}) > 1:
        raise ScenarioError(f"{what}: one of ok, error, until")
    connection, _, channel = str(on).rpartition("/")
    return Step(kind, what, role, connection or "a", channel, rest)
