"""XML configurations of ActiveMQ 5, whole or in fragments. Here: systemUsage, destinationPolicy and destinations.

What has no counterpart is skipped with a warning. Source: queues page H.3; ruling 18.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..addresses.destinations import DEFAULT_ENTRY, QUEUE_ENTRY, TOPIC_ENTRY
from ..declared.declarations import ExchangeDeclaration
from ..files.builder import ConfigurationBuilder, RawEntry
from .activemq_interceptors import read_interceptors
from .activemq_names import (
    BROKER_ATTRIBUTES,
    BROKER_OTHERS,
    ENTRY_ATTRIBUTES,
    ENTRY_OTHERS,
    STRATEGIES,
    TARGETS,
    Attribute,
    anything,
    flag,
    ignored,
    milliseconds,
    percent,
    size,
)
from .activemq_plugins import read_plugin, read_plugins, read_policies
from .activemq_source import ActivemqSource
from .activemq_strategies import read_dead_letters, read_strategy
from .xml_tree import Element

Reader = Callable[[ActivemqSource, Element], None]

#: <memoryUsage> and the other usages -> key of [system-usage], and the attribute that gives a percentage.
USAGES = {
    "memoryUsage": ("memory", "percentOfJvmHeap"),
    "storeUsage": ("store", "percentLimit"),
    "tempUsage": ("temp", "percentLimit"),
}

_USAGE_OTHERS = ("name", "portion", "percentUsageMinDelta", "pollingTime", "total")


def load_activemq(builder: ConfigurationBuilder, file: str, root: Element) -> None:
    """Read one file, whose root is one of `ACTIVEMQ_ROOTS`, into the builder."""
    _read_element(ActivemqSource(builder, file), root)


def _read_element(source: ActivemqSource, element: Element) -> None:
    """Read one of the possible root elements."""
    if (read := READERS.get(element.name)) is not None:
        # These may hold ignored parts with unknown ${variables}: expand only inside the elements that are read.
        if element.name not in ("beans", "broker", "plugins"):
            source.expand(element)
        read(source, element)
    elif element.name in BROKER_OTHERS:
        source.no_effect(element, element.name)
    else:
        source.fault(element, element.name, "means nothing without the <policyEntry> around it")


def _read_beans(source: ActivemqSource, element: Element) -> None:
    """Spring's root: everything but the broker is skipped."""
    source.refuse_text(element)
    for child in element.children:
        if child.name == "broker":
            _read_broker(source, child)
        else:
            source.no_effect(child, child.name)
    brokers = [child for child in element.children if child.name == "broker"]
    if len(brokers) != 1:
        origin = source.origin_of(brokers[1] if brokers else element)
        source.builder.fault(origin, "broker", f"expected one in <beans>, not {len(brokers)}")


def _read_broker(source: ActivemqSource, element: Element) -> None:
    source.read_attributes(element, dict.fromkeys((*BROKER_ATTRIBUTES, *BROKER_OTHERS), ignored(anything)))
    known = ("systemUsage", "destinationPolicy", "plugins", "destinations", "destinationInterceptors")
    _read_children(source, element, known, others=BROKER_OTHERS)


def _read_children(
    source: ActivemqSource,
    element: Element,
    known: tuple[str, ...],
    repeatable: Iterable[str] = (),
    others: Iterable[str] = (),
) -> None:
    """Read the children that are `known`, and skip `others`; anything else is a fault."""
    source.refuse_text(element)
    if not others:  # <broker> reads its attributes itself
        source.attributes(element, ("id",))
    for child in source.each_once(element, repeatable):
        if child.name in known or child.name in others:
            _read_element(source, child)
        else:
            source.unknown(child, child.name, f"<{element.name}>", (*known, *others))


def _read_destinations(source: ActivemqSource, element: Element) -> None:
    """Read the queues and topics that exist from the start."""
    source.refuse_text(element)
    source.attributes(element, ())
    for child in source.children_of(element):
        name = child.attributes.get("physicalName", "").strip()
        if child.name not in ("queue", "topic"):
            source.no_effect(child, child.name)
        elif not name or len(name.encode()) > 255:
            source.fault(child, "physicalName", "expected a name of 1 to 255 octets")
        elif child.name == "queue":
            source.declare_queue(child, name)
        else:
            source.builder.add_exchange(ExchangeDeclaration(name, origin=source.origin_of(child)))


# -- <systemUsage> -----------------------------------------------------------------------------------------------------


def _read_system_usage(source: ActivemqSource, outer: Element) -> None:
    element = source.inner(outer)
    source.builder.has_system_usage = True
    known = {
        "sendFailIfNoSpace": Attribute("send-fail-if-no-space", flag),
        "sendFailIfNoSpaceAfterTimeout": Attribute("send-fail-if-no-space-after", milliseconds),
        **dict.fromkeys(("checkLimitsLogLevel", "name", "id"), ignored(anything)),
    }
    for key, (value, name) in source.read_attributes(element, known).items():
        source.builder.broker_value(source.origin_of(element), "system-usage", key, value, name)
    for child in source.each_once(element):
        if child.name in USAGES:
            _read_usage(source, child)
        elif child.name in ("jobSchedulerUsage", "executor", "parent"):
            source.no_effect(child, child.name)
        else:
            source.unknown(child, child.name, "<systemUsage>", USAGES)


def _read_usage(source: ActivemqSource, outer: Element) -> None:
    """A limit, in octets or as a percentage."""
    element = source.inner(outer)
    source.builder.has_system_usage = True
    key, share = USAGES[element.name]
    known = {"limit": Attribute(key, size), share: Attribute(key, lambda text: f"{percent(text)}%")}
    others = dict.fromkeys(_USAGE_OTHERS, ignored(anything))
    if "limit" in element.attributes and share in element.attributes:
        source.fault(element, f"{element.name}/{share}", "contradicts limit, expected one of the two")
    for value, name in source.read_attributes(element, known | others).values():
        source.builder.broker_value(source.origin_of(element), "system-usage", key, value, f"{element.name}/{name}")
    for child in element.children:
        source.no_effect(child, child.name)


# -- <policyEntry> -----------------------------------------------------------------------------------------------------


def _read_default_entry(source: ActivemqSource, element: Element) -> None:
    source.refuse_text(element)
    source.attributes(element, ())
    for child in source.each_once(element):
        if child.name != "policyEntry":
            source.unknown(child, child.name, "<defaultEntry>", ("policyEntry",))
            continue
        for target in TARGETS:
            if target in child.attributes:
                source.fault(child, target, "the default entry is for every queue and topic")
        _read_entry(source, child, DEFAULT_ENTRY, [">"])


def _read_policy_entry(source: ActivemqSource, element: Element) -> None:
    given = [target for target in ("queue", "topic") if target in element.attributes]
    temporary = [target for target in ("tempQueue", "tempTopic") if target in element.attributes]
    if len(given) == 1:
        kind = QUEUE_ENTRY if given[0] == "queue" else TOPIC_ENTRY
        _read_entry(source, element, kind, source.names_of(element, given[0]))
    elif temporary and not given:
        source.no_effect(element, temporary[0])  # no temporary destinations exist here
    else:
        problem = "contradicts queue, expected one of the two" if given else "is missing, expected queue or topic"
        source.fault(element, "topic" if given else "queue", f"{problem} in <policyEntry>")


def _read_entry(source: ActivemqSource, element: Element, kind: str, names: list[str]) -> None:
    """Read an entry: its attributes and children are settings of a layer."""
    source.refuse_text(element)
    raw = RawEntry(names[0], None, source.origin_of(element))
    targets = dict.fromkeys(TARGETS, ignored(anything))
    for key, (value, attribute) in source.read_attributes(element, {**ENTRY_ATTRIBUTES, **targets}, TARGETS).items():
        source.set(raw, element, key, value, attribute)
    for child in source.each_once(element):
        if child.name == "deadLetterStrategy":
            read_dead_letters(source, raw, kind, child)
        elif child.name in STRATEGIES:
            read_strategy(source, raw, kind, child)
        elif child.name in ENTRY_OTHERS:
            source.no_effect(child, child.name)
        else:
            known = (*STRATEGIES, "deadLetterStrategy", *ENTRY_OTHERS)
            source.unknown(child, child.name, "<policyEntry>", known)
    for name in names:
        source.builder.add_destination(kind, replace(raw, match=name))


def _holder(*known: str, is_repeatable: bool = False) -> Reader:
    """A reader of an element that only holds these elements."""
    return lambda source, element: _read_children(source, element, known, known if is_repeatable else ())


READERS: dict[str, Reader] = {
    "beans": _read_beans,
    "broker": _read_broker,
    "systemUsage": _read_system_usage,
    **dict.fromkeys(USAGES, _read_usage),
    "destinationPolicy": _holder("policyMap"),
    "policyMap": _holder("policyEntries", "defaultEntry"),
    "policyEntries": _holder("policyEntry", is_repeatable=True),
    "policyEntry": _read_policy_entry,
    "defaultEntry": _read_default_entry,
    "plugins": read_plugins,
    "redeliveryPlugin": read_plugin,
    "redeliveryPolicyMap": read_policies,
    "destinations": _read_destinations,
    "destinationInterceptors": read_interceptors,
}
#: Elements that are read, and known ones that are ignored: each may be the root of a fragment (ruling 18).
ACTIVEMQ_ROOTS = frozenset((*READERS, *STRATEGIES, "deadLetterStrategy", *BROKER_OTHERS))
