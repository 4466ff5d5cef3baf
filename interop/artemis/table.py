"""The table of scenarios: read from TOML, and turned into the broker.xml that both brokers load.

A scenario has `queues` (attributes of the queue element by name; `multicast-of`: one of the queues of that address) and
`settings` (address-setting elements by address). Names get a prefix that is unique for the scenario. Where a name is
part of a value, @ stands for this prefix: DLQ.@q. Its steps:

    { publish = "ABC", to = QUEUE, ttl = MS, delay = MS, priority = N, headers = { ... } }   a message for each letter
    { consume = NAME, from = QUEUE, credit = N }       at most N deliveries unsettled; QUEUE may be @ADDRESS::QUEUE
    { stop = NAME }                                    no more credit; deliveries stay unacknowledged
    { take = NAME, expect = "AB", after = MS }         the next deliveries, at least MS after the last settlement
    { failures = NAME, expect = [0, 1] }               earlier failed attempts of the last deliveries
    { origin = NAME, expect = ["QUEUE", ...] }         queues in which the last deliveries had died or expired
    { none = NAME, ms = MS }                           no delivery for this time
    { ack | nack | reject = NAME, of = "AB" }          one by one in this order; nack: failed, may be redelivered
    { fail = NAME, of = "A", times = N }               received and nacked N times
    { release = NAME }                                 all unacknowledged deliveries, not counted as failed
    { close = NAME }, { drop = NAME }                  consumer and session closed; the connection is lost
    { rest = QUEUE, expect = "AB" }                    all ready messages in order, then acknowledged
    { counts = QUEUE, expect = { ready = 2, ... } }    ready, unacked, scheduled, expired, killed
    { gone = QUEUE }                                   the queue does not exist
    { pause = MS }                                     on the broker's clock
    { restart = "stop" | "kill" }                      of the broker
    { configure = { queues = ..., settings = ... } }   new ones, loaded by the running broker

With `any-order`, take and rest ignore the order. `expect` is the result on both brokers. `artemis` or `leveret` beside
it is the different result on that broker, and the scenario says `why`. `artemis-one-of` lists results that depend on
chance.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

FILE = Path(__file__).with_name("scenarios.toml")
VERBS: Mapping[str, frozenset[str]] = {
    "publish": frozenset({"to", "ttl", "delay", "priority", "headers"}),
    "consume": frozenset({"from", "credit"}),
    "take": frozenset({"after", "any-order"}),
    "rest": frozenset({"any-order"}),
    "fail": frozenset({"of", "times"}),
    **dict.fromkeys(("ack", "nack", "reject"), frozenset({"of"})),
    "none": frozenset({"ms"}),
    **dict.fromkeys(
        ("stop", "release", "close", "drop", "counts", "failures", "origin", "gone", "pause", "restart", "configure"),
        frozenset(),
    ),
}
OBSERVED = frozenset({"take", "rest", "counts", "failures", "origin"})
BROKERS = ("artemis", "leveret")
ONE_OF = "-one-of"
MULTICAST = "multicast-of"
TEMPLATE = """\
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>interop</name>
  <persistence-enabled>true</persistence-enabled>
  <security-enabled>false</security-enabled>
  <journal-type>NIO</journal-type>
  <message-expiry-scan-period>50</message-expiry-scan-period>
  <address-queue-scan-period>200</address-queue-scan-period>
  <acceptors><acceptor name="amqp">tcp://127.0.0.1:{{port}}?protocols=AMQP</acceptor></acceptors>
  <address-settings>
{settings}
  </address-settings>
  <addresses>
{addresses}
  </addresses>
</core></configuration>
"""


class TableError(Exception):
    """A scenario that cannot be run as written."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step: the verb, its object, and the other arguments as written."""

    verb: str
    what: Any
    arguments: Mapping[str, Any]

    def expected(self, broker: str) -> Any:
        """The expected result on a broker."""
        return self.arguments.get(broker, self.arguments["expect"])

    def allowed(self, broker: str) -> list[Any]:
        """The results that a broker may have."""
        alternatives: list[Any] = self.arguments.get(broker + ONE_OF, [self.expected(broker)])
        return alternatives

    def fault(self, broker: str, seen: Any) -> str:
        """The fault in a result of a broker; "": there is none."""
        allowed = self.allowed(broker)
        return "" if seen in allowed else f"{seen!r} instead of {' or '.join(map(repr, allowed))}"

    @property
    def differs(self) -> bool:
        return any(broker in self.arguments or broker + ONE_OF in self.arguments for broker in BROKERS)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario. `why`: the reason why the brokers differ; "": they do not."""

    name: str
    says: str
    queues: Mapping[str, Mapping[str, Any]]
    steps: tuple[Step, ...]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    source: str = ""
    why: str = ""

    def unique(self, name: str) -> str:
        """A name of a queue or address with the prefix of the scenario."""
        return name.replace("@", f"{self.name}.") if "@" in name else f"{self.name}.{name}"

    @property
    def restarts(self) -> bool:
        """Whether the scenario restarts the broker."""
        return any(step.verb == "restart" for step in self.steps)


def read_table(file: Path = FILE) -> list[Scenario]:
    """All scenarios. Raises: TableError, with the scenario and the fault."""
    scenarios: list[Scenario] = []
    for table in tomllib.loads(file.read_text())["scenario"]:
        try:
            steps = tuple(_step(step) for step in table.pop("steps"))
            scenario = Scenario(steps=steps, **table)
            if any(step.differs for step in steps) != bool(scenario.why):
                raise TableError("`why` goes with a difference")
        except (TableError, KeyError, TypeError) as error:
            raise TableError(f"{table.get('name')}: {error}") from error
        if scenario.name in {one.name for one in scenarios}:
            raise TableError(f"{scenario.name} is there twice")
        scenarios.append(scenario)
    return scenarios


def _step(table: Mapping[str, Any]) -> Step:
    rest = dict(table)
    verbs = [verb for verb in VERBS if verb in rest]
    if len(verbs) != 1:
        raise TableError(f"a step is one of {', '.join(VERBS)}: {table}")
    (verb,) = verbs
    what = rest.pop(verb)
    allowed = VERBS[verb] | (
        {"expect", *BROKERS, *(broker + ONE_OF for broker in BROKERS)} if verb in OBSERVED else set()
    )
    if not rest.keys() <= allowed or (verb in OBSERVED and "expect" not in rest):
        raise TableError(f"{table}: expected {', '.join(sorted(allowed))}")
    return Step(verb, what, rest)


def broker_xml(scenarios: list[Scenario]) -> str:
    """The configuration for both brokers, with the queues and settings of all scenarios."""
    settings: list[str] = []
    addresses: dict[tuple[str, str], list[str]] = {}  # by name and routing type
    for scenario in scenarios:
        for address, values in scenario.settings.items():
            elements = "".join(f"<{key}>{escape(_text(scenario, value))}</{key}>" for key, value in values.items())
            match = quoteattr(scenario.unique(address))
            settings.append(f"    <address-setting match={match}>{elements}</address-setting>")
        for queue, attributes in scenario.queues.items():
            multicast = attributes.get(MULTICAST)
            place = (scenario.unique(multicast or queue), "multicast" if multicast else "anycast")
            more = {key: _text(scenario, value) for key, value in attributes.items() if key != MULTICAST}
            text = "".join(
                f" {key}={quoteattr(value)}" for key, value in {"name": scenario.unique(queue), **more}.items()
            )
            addresses.setdefault(place, []).append(f"<queue{text}/>")
    written = (
        f"    <address name={quoteattr(name)}><{kind}>{''.join(queues)}</{kind}></address>"
        for (name, kind), queues in addresses.items()
    )
    return TEMPLATE.format(settings="\n".join(settings), addresses="\n".join(written))


def _text(scenario: Scenario, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("@", f"{scenario.name}.")
