"""Leased queues and logged topics in native files; the same queue in TOML and XML. Queues page A.3; interfaces page."""

import json
import re
from dataclasses import fields
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.settings import Configuration, load_configuration
from leveret.settings.declared.declarations import LoggedTopic
from leveret.settings.leases.leased_settings import (
    BY_TAG,
    CONDITIONS,
    ELEMENTS,
    EXPIRATION_MODELS,
    GROUP,
    LEASED_ATTRIBUTES,
    TAGS,
    LeasedSettings,
    leased_settings,
    read_leased,
)
from leveret.settings.values import MESSAGE_TYPES


def read(text: str) -> tuple[Configuration, list[str]]:
    """A text, and its faults as lines."""
    configuration, faults = load_configuration([("f.toml" if text[:1] != "<" else "f.xml", text)])
    return configuration, [str(fault) for fault in faults]


def load(text: str) -> Configuration:
    """A text without faults."""
    configuration, faults = read(text)
    assert not faults, faults
    return configuration


def leased(configuration: Configuration) -> LeasedSettings:
    """The settings of its only queue."""
    (queue,) = configuration.queues
    return leased_settings(queue.name, queue.arguments)


JOBS = """\
[[queue]]
name = "Jobs"
type = "amps"
underlying-topic = "^JOB_.*"
default-publish-target = "JOB_DIRECT"
lease-period = "30s"
max-backlog-per-consumer = 100
message-ttl = "1.5h"
file-backed = true
dead-letter-address = "Dead"
arguments = { x-expires = 60000 }
"""


def test_a_leased_queue() -> None:
    """`[[queue]]`: arguments of queue.declare without x-, as AMQP carries them; an exchange for its topic."""
    configuration = load(JOBS)
    (queue,) = configuration.queues
    assert dict(queue.arguments) == {
        "x-queue-type": "amps",
        "x-underlying-topic": "^JOB_.*",
        "x-default-publish-target": "JOB_DIRECT",
        "x-lease-period": 30_000,
        "x-max-backlog-per-consumer": 100,
        "x-message-ttl": 5_400_000,
        "x-file-backed": True,
        "x-dead-letter-address": "Dead",
        "x-expires": 60_000,
    }
    assert (queue.name, queue.address, queue.vhost, queue.durable) == ("Jobs", "Jobs", "/", True)
    assert [(one.name, one.type) for one in configuration.exchanges] == [("JOB_DIRECT", "topic")]


def test_the_other_ways_to_write_it() -> None:
    """In an address, and by its arguments alone; every attribute is that of one element."""
    nested = '[[address]]\nname = "Q"\n[[address.queue]]\nname = "Q"\n'
    for text in (
        nested + 'type = "amps"\nlease-period = 500\n',
        nested + 'arguments = { x-queue-type = "amps", x-lease-period = "500ms" }\n',
        '[[queue]]\nname = "Q"\narguments = { x-queue-type = "amps" }\nlease-period = "0.5s"\n',
    ):
        assert leased(load(text)).lease_period_ms == 500
    assert set(LEASED_ATTRIBUTES.values()) >= {element.argument for element in ELEMENTS}


def test_queues_of_other_types() -> None:
    """`[[queue]]` is the short form of an address with one queue, whatever its type."""
    text = '[[queue]]\nname = "Q"\nvhost = "v"\ntype = "quorum"\ndelivery-limit = 3\ndurable = true\nenabled = false\n'
    (queue,) = load(text).queues
    assert dict(queue.arguments) == {"x-queue-type": "quorum", "x-delivery-limit": 3}
    assert (queue.address, queue.vhost, queue.is_enabled) == ("Q", "v", False)
    assert load('[[queue]]\nname = "Q"').queues[0].arguments == {}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('lease-period = "1h30m"', "lease-period: E-DUR: bad duration: '1h30m', expected a duration like 250ms"),
        ('lease-period = "30"', "lease-period: '30' is invalid, expected a duration: milliseconds, or text with its"),
        ("lease-period = 0", "lease-period: E-DUR"),
        ("lease-period = 1.5", "lease-period: E-DUR"),
        ("max-backlog-total = 0", "max-backlog-total: E-MIN"),
        ("max-backlog-total = true", "max-backlog-total: E-INT"),
        ('semantics = "at-least"', "semantics: E-ENUM"),
        ('queue-filter = "/a ="', "queue-filter: E-EXPR"),
        ('priority-expr = "/a"\nbarrier-expr = "/b"', "barrier-expr: E-EXCL", ),
        ('underlying-topic = "^a"', "default-publish-target: E-DPT-REQUIRED"),
        ('message-type = "yaml"', "message-type: E-MTYPE"),
        ("file-backed = 1", "file-backed: E-FBM"),
        ('replication = "group"', "initial-owner: E-OWNER-REQUIRED"),
        ('initial-owner = "n"', "initial-owner: E-OWNER-TAG"),
        ('lease-perod = "1s"', "lease-perod: unknown key in [[queue]], did you mean 'lease-period'?"),
        ("ring-size = 3", 'ring-size: no queue with type = "amps" has it'),
        ('routing-type = "anycast"', "routing-type: unknown key in [[queue]]"),
        ("arguments = { x-lease-period = 0 }", "x-lease-period: E-DUR"),
        ('arguments = { x-queue-type = "amps" }', "x-queue-type: is given twice"),
        ('lease-period = 1\narguments = { x-lease-period = 1 }', "x-lease-period: is given twice"),
    ],
)  # fmt: skip
def test_faults(line: str, problem: str) -> None:
    """The key as the file has it, with its line and the code (queues page A.3.2)."""
    _, faults = read(f'[[queue]]\nname = "Q"\ntype = "amps"\n{line}\n')
    assert len(faults) == 1, faults
    assert line_of(faults[0]) >= (1 if "E-DPT-REQUIRED" in problem or "E-OWNER-REQUIRED" in problem else 4)
    assert faults[0].partition(": ")[2].startswith(problem), faults


def line_of(fault: str) -> int:
    """The line of a fault."""
    return int(fault.split(":")[1])


def test_attributes_of_leased_queues_alone() -> None:
    """On another queue they are refused, with what they need."""
    _, faults = read('[[queue]]\nname = "Q"\nlease-period = 1\n')
    assert faults == ['f.toml:3: lease-period: only with type = "amps"']
    _, faults = read('[[queue]]\nname = "Q"\nmessage-ttl = 3\n')
    assert faults == ['f.toml:3: message-ttl: only with type = "amps", expected arguments = { x-message-ttl = ... }']
    _, faults = read('[[queue]]\nname = "Q"\ntype = "amp"\n')
    assert faults == ["f.toml:3: type: 'amp' is invalid, expected one of classic, quorum, stream, amps"]


def test_two_queues_of_one_name() -> None:
    """E-NAME between leased ones."""
    _, faults = read('[[queue]]\nname = "Q"\ntype = "amps"\n' * 2)
    assert faults == [f"f.toml:4: name: E-NAME: {CONDITIONS['E-NAME']}: 'Q' is already declared at f.toml:1"]
    _, faults = read('[[queue]]\nname = "Q"\ntype = "amps"\n[[queue]]\nname = "Q"\n')
    assert faults == ["f.toml:4: queue: 'Q' is already declared at f.toml:1"]


def test_the_two_examples_on_the_page_are_the_same() -> None:
    """docs/from-amps.md: XML and TOML."""
    page = (Path(__file__).parents[2] / "docs" / "from-amps.md").read_text()
    of_xml, of_toml = (leased(load(re.findall(f"```{kind}\n(.*?)```", page, re.DOTALL)[0])) for kind in ("xml", "toml"))
    assert of_xml == of_toml and of_xml.max_deliveries == 5


# -- logged topics ----------------------------------------------------------------------------------------------------


def test_logged_topics() -> None:
    """By name or by pattern; a name is taken literally."""
    text = """\
[[logged-topic]]
name = "orders.*"
retain = "7d"

[[logged-topic]]
pattern = "^JOB_"
vhost = "v"
message-type = "json"
"""
    configuration = load(text)
    assert configuration.logged_topics == (
        LoggedTopic("orders.*", False, "/", None, 604_800_000),
        LoggedTopic("^JOB_", True, "v", "json", None),
    )
    literal, pattern = (topic.records() for topic in configuration.logged_topics)
    assert literal("orders.*") and not literal("orders.x")
    assert pattern("JOB_A") and not pattern("A_JOB_")
    assert configuration.vhosts == ("v",)
    assert str(configuration.logged_topics[1].origin) == "f.toml:5"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("", "1: name: is missing in [[logged-topic]]"),
        ('name = ""', "2: name: '' is invalid"),
        ('name = "a"\npattern = "b"', "3: pattern: contradicts name"),
        ('pattern = "(b"', "1: pattern: E-REGEX"),
        ('name = "a"\nretain = "soon"', "3: retain: 'soon' is invalid, expected a duration"),
        ('name = "a"\nretian = 1', "3: retian: unknown key in [[logged-topic]], did you mean 'retain'?"),
        ('name = "a"\nmessage-type = "x"', "3: message-type: 'x' is invalid, expected one of json"),
        ('name = "a"\n[[logged-topic]]\nname = "a"', "3: name: 'a' is already declared at f.toml:1"),
    ],
)
def test_faults_of_logged_topics(lines: str, problem: str) -> None:
    """One each."""
    _, faults = read(f"[[logged-topic]]\n{lines}\n")
    assert len(faults) == 1 and faults[0].startswith(f"f.toml:{problem}"), faults


def test_topics_must_be_logged_where_some_are() -> None:
    """E-TXLOG by virtual host: one in which nothing is listed logs what its queues select (W-TXLOG)."""
    topic = '[[logged-topic]]\nname = "a"\n'
    queue = '[[queue]]\nname = "Q"\ntype = "amps"\nvhost = "{}"\n'
    _, faults = read(topic + queue.format("/"))
    assert faults == [f"f.toml:3: name: E-TXLOG: {CONDITIONS['E-TXLOG']}: 'Q'"]
    pattern = '[[logged-topic]]\npattern = "^Q"\nvhost = "v"\n'
    _, faults = read(topic + pattern + queue.format("/"))
    assert len(faults) == 1 and "E-TXLOG" in faults[0], "it is logged in another virtual host"
    (warning,) = (one for one in load(topic + queue.format("v")).warnings if "W-" in one)
    assert warning.startswith("f.toml:3: queue 'Q': W-TXLOG: ")
    (warning,) = load(queue.format("v") + queue.format("v").replace("Q", "R")).warnings
    assert warning.startswith("f.toml:1: queue 'Q': W-TXLOG: ")


def test_faults_that_are_found_in_the_whole_have_their_keys() -> None:
    """Of a queue that TOML declares and a log that XML has."""
    log = "<TransactionLog><Topic><Name>Q</Name><MessageType>fix</MessageType></Topic></TransactionLog>"
    text = '[[queue]]\nname = "Q"\ntype = "amps"\nunderlying-topic = "a"\nmessage-type = "json"\n'
    _, faults = load_configuration([("f.toml", text), ("l.xml", log)])
    assert [str(fault).split(": E")[0] for fault in faults] == [
        "f.toml:4: underlying-topic", "f.toml:5: message-type"
    ]  # fmt: skip


# -- written and read back --------------------------------------------------------------------------------------------

_TAGS = {replication: tag for tag, replication in TAGS.items()}
_ARGUMENTS = {element.attribute: element.argument for element in ELEMENTS}


def values_of(settings: LeasedSettings) -> dict[str, object]:
    """Attribute -> value of what differs from unset."""
    return {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if field.name != "name" and getattr(settings, field.name) not in (None, False)
    }


def as_toml(settings: LeasedSettings) -> str:
    """A `[[queue]]`."""
    lines = ["[[queue]]", f"name = {toml(settings.name)}", 'type = "amps"']
    for attribute, value in values_of(settings).items():
        lines.append(f"{_ARGUMENTS[attribute].removeprefix('x-')} = {toml(value)}")
    return "\n".join(lines)


def toml(value: object) -> str:
    """TOML has JSON's texts, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_xml(settings: LeasedSettings) -> str:
    """An element of AMPS. It has no word for what happens to expired messages that are leased."""
    values = values_of(settings)
    lines = [f"<Name>{escape(settings.name)}</Name>"]
    for tag, element in BY_TAG.items():
        value = values.get(element.attribute)
        if value is None:
            continue
        text = "enabled" if value is True else f"{value}ms" if element.attribute.endswith("_ms") else str(value)
        lines.append(f"<{tag}>{escape(text)}</{tag}>")
    tag = _TAGS[settings.replication]
    return f"<SOW><{tag}>{''.join(lines)}</{tag}></SOW>"


NAMES = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc", "Cn", "Zs", "Zl", "Zp")),
    min_size=1,
    max_size=60,
)
EXPRESSIONS = st.sampled_from(
    ["/a = 1", "/a/b * 2 + LENGTH(/c)", "/x LIKE '^<&>]]>' AND /y <> \"é\"", "/a BETWEEN 1 AND 2 OR /b IS NULL"]
)
TIMES = st.integers(1, 100 * 365 * 86_400_000)
COUNTS = st.integers(1, 2**63 - 1)


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, object]:
    """Queue arguments, most of which are valid together."""
    optional = {
        "x-message-type": st.sampled_from(MESSAGE_TYPES),
        "x-underlying-topic": NAMES | st.sampled_from(["^a.*", "(x|y)", "a.b"]),
        "x-lease-period": TIMES,
        "x-max-backlog-total": COUNTS,
        "x-max-backlog-per-consumer": COUNTS,
        "x-message-ttl": TIMES,
        "x-expiration-model": st.sampled_from(EXPIRATION_MODELS),
        "x-queue-filter": EXPRESSIONS,
        "x-recovery-point": st.sampled_from(["epoch", "now", "creation", "1|2|", "20240601T000000.5Z"]),
        "x-leasing": st.sampled_from(["strict", "sublet"]),
        "x-max-deliveries": st.integers(0, 2**63 - 1),
        "x-cancel-limit": st.integers(0, 2**63 - 1),
        "x-file-backed": st.booleans(),
        "x-deferred-ack-ttl": TIMES,
    }
    chosen = {key: draw(value) for key, value in optional.items() if draw(st.booleans())}
    if draw(st.booleans()):
        chosen["x-default-publish-target"] = draw(st.sampled_from(["ab", "xa", "a.b"]))
    kind = draw(st.sampled_from(["none", "priority", "barrier", "depth"]))
    if kind == "depth":
        chosen["x-target-depth"] = draw(st.integers(1000, 2**63 - 1))
    elif kind != "none":
        chosen[f"x-{kind}-expr"] = draw(EXPRESSIONS)
    if draw(st.booleans()):
        chosen["x-semantics"] = draw(st.sampled_from(["at-least-once", "at-most-once"]))
    elif draw(st.booleans()):
        chosen["x-fairness"] = draw(st.sampled_from(["fast", "round-robin", "proportional"]))
    chosen["x-replication"] = draw(st.sampled_from(["local", "distributed", GROUP]))
    if chosen["x-replication"] == GROUP:
        chosen |= {"x-initial-owner": draw(NAMES), "x-queue-domain": draw(NAMES)}
    return chosen


@given(NAMES, arguments())
def test_what_validates_can_be_written_and_read_back(name: str, chosen: dict[str, object]) -> None:
    """As TOML and as XML: the same settings, and the same arguments of both, whatever was said of defaults."""
    settings, faults = read_leased(name, chosen)
    if faults:
        return
    assert leased(load(as_toml(settings))) == settings
    assert leased(load(as_xml(settings))) == settings
    from_toml, from_xml = (
        {
            key: value
            for key, value in load(text).queues[0].arguments.items()
            if (key, value) != ("x-replication", "local")
        }
        for text in (as_toml(settings), as_xml(settings))
    )
    assert from_toml.pop("x-expire-leased") == "immediate"
    assert from_toml == from_xml


@given(NAMES, arguments(), st.sampled_from([element.argument for element in ELEMENTS]), st.data())
def test_any_value_of_any_argument_is_read_or_refused(
    name: str, chosen: dict[str, object], argument: str, data: st.DataObject
) -> None:
    """Never an exception; TOML finds what queue.declare finds."""
    value = data.draw(st.integers() | st.text(max_size=20) | st.floats() | st.booleans())
    given = {**chosen, argument: value}
    _, faults = read_leased(name, given)
    if isinstance(value, float) or (isinstance(value, int) and abs(value) >= 2**63):
        return
    lines = ["[[queue]]", f"name = {toml(name)}", 'type = "amps"']
    lines += [f"{key.removeprefix('x-')} = {toml(one)}" for key, one in given.items()]
    _, found = read("\n".join(lines))
    if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit():
        assert found or not faults  # TOML alone refuses a duration without its unit
        return
    assert sorted(line.split(": ")[2] for line in found) == sorted(fault.code for fault in faults)


@pytest.mark.parametrize("value", ["[1]", "[[]]", "{ a = 1 }", "1979-05-27", "99999999999999999999"])
@pytest.mark.parametrize("key", sorted(LEASED_ATTRIBUTES))
def test_a_value_that_no_argument_can_have(key: str, value: str) -> None:
    """It is no argument after its fault: as a field of AMQP, which has no such type, it would end the broker."""
    configuration, faults = read(f'[[queue]]\nname = "q"\ntype = "amps"\n{key} = {value}\n')
    assert faults[0].startswith(f"f.toml:4: {key}: ") and "is invalid, expected " in faults[0]
    assert [list(queue.arguments) for queue in configuration.queues] == [["x-queue-type"]]


@pytest.mark.parametrize("value", ["[1]", "{ a = 1 }", "1979-05-27"])
def test_a_filter_that_is_no_text(value: str) -> None:
    """The only attribute of every queue that does not override an address-setting."""
    _, (fault,) = read(f'[[queue]]\nname = "q"\nfilter = {value}\n')
    assert fault.startswith("f.toml:3: filter: ") and fault.endswith(
        "is invalid, expected text, a number, true or false"
    )
