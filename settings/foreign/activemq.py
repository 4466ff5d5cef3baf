"""XML configurations of ActiveMQ 5, whole or in fragments: `systemUsage`, `destinationPolicy`, virtual destinations.

Composite destinations are diverts; other virtual ones are refused by name or skipped, and so is the rest.
Source: queues page H.3; ruling 18; ActiveMQ's CompositeDestination, FilteredDestination, VirtualTopic, MirroredQueue.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..addresses.destinations import DEFAULT_ENTRY, QUEUE_ENTRY, TOPIC_ENTRY
from ..declared.declarations import Divert, ExchangeDeclaration
from ..files.builder import ConfigurationBuilder, RawEntry
from ..values import shown
from .activemq_names import (
    BROKER_ATTRIBUTES,
    BROKER_OTHERS,
    ENTRY_ATTRIBUTES,
    ENTRY_OTHERS,
    STRATEGIES,
    TARGETS,
    Attribute,
    TextReader,
    any_name,
    anything,
    flag,
    ignored,
    milliseconds,
    percent,
    size,
)
from .activemq_plugins import read_plugin, read_plugins, read_policies
from .activemq_strategies import Strategies
from .xml_tree import Element

_COMPOSITE = {
    "name": Attribute("name", any_name),
    "forwardOnly": Attribute("forwardOnly", flag),
    "sendWhenNotMatched": Attribute("sendWhenNotMatched", flag),
    **dict.fromkeys(("copyMessage", "concurrentSend"), ignored(flag)),
    "id": ignored(anything),
}
_FILTERED = {key: Attribute(key, any_name) for key in ("selector", "queue", "topic")} | {"id": ignored(anything)}
_CLIENTS_BIND = "clients bind their queues to the exchange of the topic themselves"


def read_interceptors(source: Strategies, element: Element) -> None:
    """Read <destinationInterceptors>, and the elements between it and the virtual destinations."""
    source.no_text(element)
    for child in source.children_of(element):
        if child.name in ("virtualDestinationInterceptor", "virtualDestinations"):
            read_interceptors(source, child)
        elif child.name in ("compositeQueue", "compositeTopic"):
            _composite(source, child)
        elif child.name == "virtualTopic":
            source.builder.no_effect(source.at(child), child.name, _CLIENTS_BIND)
        elif child.name == "mirroredQueue":
            problem = "is not done here, and would give copies to subscribers; use a [[divert]] for each queue"
            source.builder.fault(source.at(child), child.name, problem)
        else:
            source.builder.no_effect(source.at(child), child.name)


def _composite(source: Strategies, element: Element) -> None:
    """A composite destination forwards its messages: one divert, and one for each selector.

    Every exclusive divert that matches gets a copy; the one without a selector matches all, so the queue itself gets
    nothing.
    """
    builder, at = source.builder, source.at(element)
    values = {key: value for key, (value, _) in source.read_attributes(element, _COMPOSITE, ("id",)).items()}
    address = str(values.get("name", ""))
    if not address or "*" in address or ">" in address:
        what = f"{shown(address)} covers several" if address else "is missing"
        builder.fault(at, "name", f"{what}, expected the name of one destination in <{element.name}>")
        return
    only_unmatched = values.get("sendWhenNotMatched", False)
    is_exclusive = bool(only_unmatched or values.get("forwardOnly", True))
    plain: list[str] = []
    filtered: list[tuple[str, str, Element]] = []
    for part in source.each_once(element):
        if part.name != "forwardTo":
            builder.unknown(source.at(part), part.name, f"<{element.name}>", ("forwardTo",))
            continue
        for child in source.children_of(part):
            selector, target = _target(source, child)
            if target and selector:
                filtered.append((selector, target, child))
            elif target:
                plain.append(target)
    if element.name == "compositeTopic":
        builder.add_exchange(ExchangeDeclaration(address, origin=at))
    if plain or (is_exclusive and not only_unmatched):
        builder.add_divert(Divert(address, address, tuple(plain), "/", is_exclusive, address, "STRIP", "", at))
    for number, (selector, target, child) in enumerate(filtered, 1):
        title = f"{address} {number}"
        builder.add_divert(
            Divert(title, address, (target,), "/", is_exclusive, title, "STRIP", selector, source.at(child))
        )


def _target(source: Strategies, element: Element) -> tuple[str, str]:
    """Selector (empty: all messages) and address of one element in <forwardTo>; no address: a fault."""
    builder, at = source.builder, source.at(element)
    if element.name == "filteredDestination":
        given = {key: str(value) for key, (value, _) in source.read_attributes(element, _FILTERED, ("id",)).items()}
        selector, queue, topic = (given.get(key, "") for key in ("selector", "queue", "topic"))
    elif element.name in ("queue", "topic"):
        physical = element.attributes.get("physicalName", "").strip()
        selector, queue, topic = "", *((physical, "") if element.name == "queue" else ("", physical))
    else:
        builder.unknown(at, element.name, "<forwardTo>", ("queue", "topic", "filteredDestination"))
        return "", ""
    if bool(queue) == bool(topic):
        builder.fault(at, element.name, "expected the name of one queue or topic")
        return "", ""
    if queue:
        source.declare_queue(element, queue)
        return selector, f"queue:{queue}"
    builder.add_exchange(ExchangeDeclaration(topic, origin=at))
    return selector, f"exchange:{topic}"


#: <memoryUsage> and its like -> key of [system-usage], and the attribute that gives a percentage.
USAGES = {
    "memoryUsage": ("memory", "percentOfJvmHeap"),
    "storeUsage": ("store", "percentLimit"),
    "tempUsage": ("temp", "percentLimit"),
}

_USAGE_OTHERS = ("name", "portion", "percentUsageMinDelta", "pollingTime", "total")


def load_activemq(builder: ConfigurationBuilder, file: str, root: Element) -> None:
    """Read one file, whose root is one of `ACTIVEMQ_ROOTS`, into the builder."""
    _Loader(builder, file).element(root)


class _Loader(Strategies):
    def element(self, element: Element) -> None:
        """Read one of the possible root elements."""
        structures: dict[str, Callable[[Element], None]] = {
            "beans": self.beans,
            "broker": self.broker,
            "systemUsage": self.system_usage,
            "destinationPolicy": lambda one: self.read_children(one, ("policyMap",)),
            "policyMap": lambda one: self.read_children(one, ("policyEntries", "defaultEntry")),
            "policyEntries": lambda one: self.read_children(one, ("policyEntry",), ("policyEntry",)),
            "policyEntry": self.policy_entry,
            "defaultEntry": self.default_entry,
            "plugins": lambda one: read_plugins(self, one),
            "redeliveryPlugin": lambda one: read_plugin(self, one),
            "redeliveryPolicyMap": lambda one: read_policies(self, one),
            "destinations": self.destinations,
            "destinationInterceptors": lambda one: read_interceptors(self, one),
            **dict.fromkeys(USAGES, self.usage),
        }
        if (read := structures.get(element.name)) is not None:
            # These may hold ignored parts with unknown ${variables}: expand only inside the elements that count.
            if element.name not in ("beans", "broker", "plugins"):
                self.expand(element)
            read(element)
        elif element.name in BROKER_OTHERS:
            self.builder.no_effect(self.at(element), element.name)
        else:
            self.builder.fault(self.at(element), element.name, "means nothing without the <policyEntry> around it")

    def beans(self, element: Element) -> None:
        """Spring's root: everything but the broker is skipped."""
        self.no_text(element)
        for child in element.children:
            if child.name == "broker":
                self.broker(child)
            else:
                self.builder.no_effect(self.at(child), child.name)
        brokers = [child for child in element.children if child.name == "broker"]
        if len(brokers) != 1:
            where = self.at(brokers[1] if brokers else element)
            self.builder.fault(where, "broker", f"expected one in <beans>, not {len(brokers)}")

    def broker(self, element: Element) -> None:
        self.read_attributes(element, dict.fromkeys((*BROKER_ATTRIBUTES, *BROKER_OTHERS), ignored(anything)))
        known = ("systemUsage", "destinationPolicy", "plugins", "destinations", "destinationInterceptors")
        self.read_children(element, known, others=BROKER_OTHERS)

    def read_children(
        self, element: Element, known: tuple[str, ...], repeatable: Iterable[str] = (), others: Iterable[str] = ()
    ) -> None:
        """Read the children that are `known`, and skip `others`; anything else is a fault."""
        self.no_text(element)
        if not others:  # <broker> reads its attributes itself
            self.attributes(element, ("id",))
        for child in self.each_once(element, repeatable):
            if child.name in known or child.name in others:
                self.element(child)
            else:
                self.builder.unknown(self.at(child), child.name, f"<{element.name}>", (*known, *others))

    def destinations(self, element: Element) -> None:
        """Read the queues and topics that exist from the start."""
        self.no_text(element)
        self.attributes(element, ())
        for child in self.children_of(element):
            name = child.attributes.get("physicalName", "").strip()
            if child.name not in ("queue", "topic"):
                self.builder.no_effect(self.at(child), child.name)
            elif not name or len(name.encode()) > 255:
                self.builder.fault(self.at(child), "physicalName", "expected a name of 1 to 255 octets")
            elif child.name == "queue":
                self.declare_queue(child, name)
            else:
                self.builder.add_exchange(ExchangeDeclaration(name, origin=self.at(child)))

    # -- <systemUsage> ------------------------------------------------------------------------------------------------

    def system_usage(self, outer: Element) -> None:
        element = self.inner(outer)
        self.builder.has_usage = True
        keys: dict[str, tuple[str, TextReader]] = {
            "sendFailIfNoSpace": ("send-fail-if-no-space", flag),
            "sendFailIfNoSpaceAfterTimeout": ("send-fail-if-no-space-after", milliseconds),
        }
        known = {name: Attribute(key, read) for name, (key, read) in keys.items()}
        others = dict.fromkeys(("checkLimitsLogLevel", "name", "id"), ignored(anything))
        for key, (value, name) in self.read_attributes(element, known | others).items():
            self.builder.broker_value(self.at(element), "system-usage", key, value, name)
        for child in self.each_once(element):
            if child.name in USAGES:
                self.usage(child)
            elif child.name in ("jobSchedulerUsage", "executor", "parent"):
                self.builder.no_effect(self.at(child), child.name)
            else:
                self.builder.unknown(self.at(child), child.name, "<systemUsage>", USAGES)

    def usage(self, outer: Element) -> None:
        """A limit, in octets or as a percentage."""
        element = self.inner(outer)
        self.builder.has_usage = True
        key, share = USAGES[element.name]
        known = {"limit": Attribute(key, size), share: Attribute(key, lambda text: f"{percent(text)}%")}
        others = dict.fromkeys(_USAGE_OTHERS, ignored(anything))
        if "limit" in element.attributes and share in element.attributes:
            self.builder.fault(
                self.at(element), f"{element.name}/{share}", "contradicts limit, expected one of the two"
            )
        for value, name in self.read_attributes(element, known | others).values():
            self.builder.broker_value(self.at(element), "system-usage", key, value, f"{element.name}/{name}")
        for child in element.children:
            self.builder.no_effect(self.at(child), child.name)

    # -- <policyEntry> ------------------------------------------------------------------------------------------------

    def default_entry(self, element: Element) -> None:
        self.no_text(element)
        self.attributes(element, ())
        for child in self.each_once(element):
            if child.name != "policyEntry":
                self.builder.unknown(self.at(child), child.name, "<defaultEntry>", ("policyEntry",))
                continue
            for target in TARGETS:
                if target in child.attributes:
                    self.builder.fault(self.at(child), target, "the default entry is for every queue and topic")
            self.entry(child, DEFAULT_ENTRY, [">"])

    def policy_entry(self, element: Element) -> None:
        given = [target for target in ("queue", "topic") if target in element.attributes]
        temporary = [target for target in ("tempQueue", "tempTopic") if target in element.attributes]
        if len(given) == 1:
            target = given[0]
            self.entry(element, QUEUE_ENTRY if target == "queue" else TOPIC_ENTRY, self.names_of(element, target))
        elif temporary and not given:
            self.builder.no_effect(self.at(element), temporary[0])  # there are no such destinations
        else:
            problem = "contradicts queue, expected one of the two" if given else "is missing, expected queue or topic"
            self.builder.fault(self.at(element), "topic" if given else "queue", f"{problem} in <policyEntry>")

    def entry(self, element: Element, kind: str, names: list[str]) -> None:
        """Read an entry: its attributes and children are settings of a layer."""
        self.no_text(element)
        raw = RawEntry(names[0], None, self.at(element))
        targets = dict.fromkeys(TARGETS, ignored(anything))
        for key, (value, attribute) in self.read_attributes(element, {**ENTRY_ATTRIBUTES, **targets}, TARGETS).items():
            self.set(raw, element, key, value, attribute)
        for child in self.each_once(element):
            if child.name == "deadLetterStrategy":
                self.dead_letters(raw, kind, child)
            elif child.name in STRATEGIES:
                self.strategy(raw, kind, child)
            elif child.name in ENTRY_OTHERS:
                self.builder.no_effect(self.at(child), child.name)
            else:
                known = (*STRATEGIES, "deadLetterStrategy", *ENTRY_OTHERS)
                self.builder.unknown(self.at(child), child.name, "<policyEntry>", known)
        for name in names:
            self.builder.add_destination(kind, replace(raw, match=name))
