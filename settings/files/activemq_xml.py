"""XML configurations of ActiveMQ 5, whole or in fragments: `systemUsage` and `destinationPolicy`; the rest is skipped.

Source: queues page H.3; ruling 18.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..addresses.destinations import DEFAULT_ENTRY, QUEUE_ENTRY, TOPIC_ENTRY
from ..declared.declarations import ExchangeDeclaration
from .activemq_names import (
    BROKER_ATTRIBUTES,
    BROKER_OTHERS,
    ENTRY_ATTRIBUTES,
    ENTRY_OTHERS,
    STRATEGIES,
    TARGETS,
    Attribute,
)
from .activemq_plugins import read_plugin, read_plugins, read_policies
from .activemq_strategies import Strategies
from .activemq_values import TextReader, anything, flag, milliseconds, percent, size
from .activemq_virtual import read_interceptors
from .draft import Draft, RawEntry
from .xml_tree import Element

#: <memoryUsage> and its like -> key of [system-usage], and the attribute that gives a percentage.
USAGES = {
    "memoryUsage": ("memory", "percentOfJvmHeap"),
    "storeUsage": ("store", "percentLimit"),
    "tempUsage": ("temp", "percentLimit"),
}

_USAGE_OTHERS = ("name", "portion", "percentUsageMinDelta", "pollingTime", "total")


def load_activemq(draft: Draft, file: str, root: Element) -> None:
    """Read one file, whose root is one of `ACTIVEMQ_ROOTS`, into the draft."""
    _Loader(draft, file).element(root)


class _Loader(Strategies):
    def element(self, element: Element) -> None:
        """One of the elements that may be a root."""
        structures: dict[str, Callable[[Element], None]] = {
            "beans": self.beans,
            "broker": self.broker,
            "systemUsage": self.system_usage,
            "destinationPolicy": lambda one: self.wrapper(one, ("policyMap",)),
            "policyMap": lambda one: self.wrapper(one, ("policyEntries", "defaultEntry")),
            "policyEntries": lambda one: self.wrapper(one, ("policyEntry",), ("policyEntry",)),
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
            if element.name not in ("beans", "broker", "plugins"):  # what means nothing here may name what is not there
                self.expand(element)
            read(element)
        elif element.name in BROKER_OTHERS:
            self.draft.no_effect(self.at(element), element.name)
        else:
            self.draft.fault(self.at(element), element.name, "means nothing without the <policyEntry> around it")

    def beans(self, element: Element) -> None:
        """Spring's root: everything but the broker is skipped."""
        self.no_text(element)
        for child in element.children:
            if child.name == "broker":
                self.broker(child)
            else:
                self.draft.no_effect(self.at(child), child.name)
        brokers = [child for child in element.children if child.name == "broker"]
        if len(brokers) != 1:
            where = self.at(brokers[1] if brokers else element)
            self.draft.fault(where, "broker", f"expected one in <beans>, not {len(brokers)}")

    def broker(self, element: Element) -> None:
        self.read_attributes(element, dict.fromkeys((*BROKER_ATTRIBUTES, *BROKER_OTHERS), Attribute("", anything)))
        known = ("systemUsage", "destinationPolicy", "plugins", "destinations", "destinationInterceptors")
        self.wrapper(element, known, others=BROKER_OTHERS)

    def wrapper(
        self, element: Element, known: tuple[str, ...], repeatable: Iterable[str] = (), others: Iterable[str] = ()
    ) -> None:
        """An element whose children say something; `others` are skipped."""
        self.no_text(element)
        if not others:  # <broker> reads its attributes itself
            self.attributes(element, ("id",))
        for child in self.each_once(element, repeatable):
            if child.name in known or child.name in others:
                self.element(child)
            else:
                self.draft.unknown(self.at(child), child.name, f"<{element.name}>", (*known, *others))

    def destinations(self, element: Element) -> None:
        """Queues and topics that are there from the start."""
        self.no_text(element)
        self.attributes(element, ())
        for child in self.children_of(element):
            name = child.attributes.get("physicalName", "").strip()
            if child.name not in ("queue", "topic"):
                self.draft.no_effect(self.at(child), child.name)
            elif not name or len(name.encode()) > 255:
                self.draft.fault(self.at(child), "physicalName", "expected a name of 1 to 255 octets")
            elif child.name == "queue":
                self.declare_queue(child, name)
            else:
                self.draft.add_exchange(ExchangeDeclaration(name, origin=self.at(child)))

    # -- <systemUsage> ------------------------------------------------------------------------------------------------

    def system_usage(self, outer: Element) -> None:
        element = self.inner(outer)
        self.draft.has_usage = True
        keys: dict[str, tuple[str, TextReader]] = {
            "sendFailIfNoSpace": ("send-fail-if-no-space", flag),
            "sendFailIfNoSpaceAfterTimeout": ("send-fail-if-no-space-after", milliseconds),
        }
        known = {name: Attribute(key, read) for name, (key, read) in keys.items()}
        others = dict.fromkeys(("checkLimitsLogLevel", "name", "id"), Attribute("", anything))
        for key, (value, name) in self.read_attributes(element, known | others).items():
            self.draft.broker_value(self.at(element), "system-usage", key, value, name)
        for child in self.each_once(element):
            if child.name in USAGES:
                self.usage(child)
            elif child.name in ("jobSchedulerUsage", "executor", "parent"):
                self.draft.no_effect(self.at(child), child.name)
            else:
                self.draft.unknown(self.at(child), child.name, "<systemUsage>", USAGES)

    def usage(self, outer: Element) -> None:
        """A limit, in octets or as a percentage."""
        element = self.inner(outer)
        self.draft.has_usage = True
        key, share = USAGES[element.name]
        known = {"limit": Attribute(key, size), share: Attribute(key, lambda text: f"{percent(text)}%")}
        others = dict.fromkeys(_USAGE_OTHERS, Attribute("", anything))
        if "limit" in element.attributes and share in element.attributes:
            self.draft.fault(self.at(element), f"{element.name}/{share}", "contradicts limit, expected one of the two")
        for value, name in self.read_attributes(element, known | others).values():
            self.draft.broker_value(self.at(element), "system-usage", key, value, f"{element.name}/{name}")
        for child in element.children:
            self.draft.no_effect(self.at(child), child.name)

    # -- <policyEntry> ------------------------------------------------------------------------------------------------

    def default_entry(self, element: Element) -> None:
        self.no_text(element)
        self.attributes(element, ())
        for child in self.each_once(element):
            if child.name != "policyEntry":
                self.draft.unknown(self.at(child), child.name, "<defaultEntry>", ("policyEntry",))
                continue
            for target in TARGETS:
                if target in child.attributes:
                    self.draft.fault(self.at(child), target, "the default entry is for every queue and topic")
            self.entry(child, DEFAULT_ENTRY, [">"])

    def policy_entry(self, element: Element) -> None:
        given = [target for target in ("queue", "topic") if target in element.attributes]
        temporary = [target for target in ("tempQueue", "tempTopic") if target in element.attributes]
        if len(given) == 1:
            target = given[0]
            self.entry(element, QUEUE_ENTRY if target == "queue" else TOPIC_ENTRY, self.names_of(element, target))
        elif temporary and not given:
            self.draft.no_effect(self.at(element), temporary[0])  # there are no such destinations
        else:
            problem = "contradicts queue, expected one of the two" if given else "is missing, expected queue or topic"
            self.draft.fault(self.at(element), "topic" if given else "queue", f"{problem} in <policyEntry>")

    def entry(self, element: Element, kind: str, names: list[str]) -> None:
        """An entry: its attributes and children are settings of a layer."""
        self.no_text(element)
        raw = RawEntry(names[0], None, self.at(element))
        targets = dict.fromkeys(TARGETS, Attribute("", anything))
        for key, (value, attribute) in self.read_attributes(element, {**ENTRY_ATTRIBUTES, **targets}, TARGETS).items():
            self.set(raw, element, key, value, attribute)
        for child in self.each_once(element):
            if child.name == "deadLetterStrategy":
                self.dead_letters(raw, kind, child)
            elif child.name in STRATEGIES:
                self.strategy(raw, kind, child)
            elif child.name in ENTRY_OTHERS:
                self.draft.no_effect(self.at(child), child.name)
            else:
                known = (*STRATEGIES, "deadLetterStrategy", *ENTRY_OTHERS)
                self.draft.unknown(self.at(child), child.name, "<policyEntry>", known)
        for name in names:
            self.draft.add_destination(kind, replace(raw, match=name))
