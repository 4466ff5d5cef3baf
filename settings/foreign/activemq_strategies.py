"""The children of ActiveMQ's `policyEntry`: strategies, cursors, dead-letter destinations. Source: queues page H.3."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ..addresses.destinations import DEFAULT_ENTRY, QUEUE_ENTRY, TOPIC_ENTRY
from ..declared.declarations import ANYCAST, QueueDeclaration
from ..files.builder import RawEntry
from ..rows.address_settings import BY_KEY
from .activemq_names import DEAD_LETTERS, QUEUES_ONLY, STRATEGIES, TOPICS_ONLY, Attribute
from .xml_source import XmlSource
from .xml_tree import ELLIPSIS, Element

#: ActiveMQ's shared dead-letter queue, and the prefix of individual ones.
SHARED_QUEUE, INDIVIDUAL_PREFIX = "ActiveMQ.DLQ", "ActiveMQ.DLQ.Queue."


class Strategies(XmlSource):
    """Reads strategies into the layer of an entry."""

    def strategy(self, raw: RawEntry, kind: str, element: Element) -> None:
        """Read a child of the entry that holds a single element, the chosen strategy."""
        chosen = self.only_child(element, STRATEGIES[element.name])
        if chosen is None:
            return
        choice = STRATEGIES[element.name][chosen.name]
        given = self.read_attributes(chosen, choice.attributes)
        if choice.required and choice.required not in chosen.attributes:
            self.builder.fault(self.at(chosen), choice.required, f"is missing in <{chosen.name}>")
        for child in chosen.children:
            self.builder.no_effect(self.at(child), child.name)
        if not self.acts(kind, element):
            return
        if not choice.gives:
            self.builder.no_effect(self.at(element), element.name)
        for key, value in choice.gives.items():
            self.set(raw, chosen, key, value, chosen.name)
        for key, (value, name) in given.items():
            self.set(raw, chosen, key, value, name)

    def dead_letters(self, raw: RawEntry, kind: str, element: Element) -> None:
        """Read `deadLetterStrategy` as a dead-letter address, also for expired messages unless it excludes them."""
        strategy = self.only_child(element, DEAD_LETTERS)
        if strategy is None:
            return
        self.read_attributes(strategy, DEAD_LETTERS[strategy.name], ("queuePrefix", "queueSuffix", "processExpired"))
        given = strategy.attributes
        queue = self.dead_letter_queue(strategy)
        if not self.acts(kind, element):
            return
        prefix = given.get("queuePrefix", INDIVIDUAL_PREFIX)
        suffix = given.get("queueSuffix", "")
        values: dict[str, object] = {}
        if strategy.name == "sharedDeadLetterStrategy":
            values = {"dead-letter-address": queue}
            self.declare_queue(strategy, queue)  # ActiveMQ creates it on demand
        elif strategy.name == "individualDeadLetterStrategy":
            if not prefix + suffix:
                self.builder.fault(self.at(strategy), "queuePrefix", "is empty, and so is queueSuffix")
                return
            values = {
                "dead-letter-address": prefix or suffix,  # the name of an exchange, created with the first queue
                "auto-create-dead-letter-resources": True,
                "dead-letter-queue-prefix": prefix,
                "dead-letter-queue-suffix": suffix,
            }
        else:
            values = {"dead-letter-address": ""}
        if given.get("processExpired", "true").strip().lower() == "true":
            values |= {key.replace("dead-letter", "expiry"): value for key, value in values.items()}
        for key, value in values.items():
            self.set(raw, strategy, key, value, strategy.name)

    def dead_letter_queue(self, strategy: Element) -> str:
        """The name in `<deadLetterQueue><queue physicalName="..."/></deadLetterQueue>`."""
        found = SHARED_QUEUE
        for child in strategy.children:
            names = [one.attributes.get("physicalName", "") for one in child.children if one.name == "queue"]
            if strategy.name != "sharedDeadLetterStrategy" or child.name != "deadLetterQueue":
                self.builder.unknown(self.at(child), child.name, f"<{strategy.name}>", ("deadLetterQueue",))
            elif len(child.children) != 1 or not any(names):
                self.builder.fault(self.at(child), "deadLetterQueue", 'expected a single <queue physicalName="...">')
            else:
                found = names[0]
        return found

    def declare_queue(self, element: Element, name: str) -> None:
        """Declare a queue that exists from the start, unless it is declared already."""
        if ("/", name) not in self.builder.queues:
            origin = self.at(element)
            self.builder.add_queue(
                QueueDeclaration(name, name, "/", ANYCAST, True, True, MappingProxyType({}), origin), {}
            )

    def names_of(self, element: Element, target: str) -> list[str]:
        """The destinations in an attribute, separated by commas."""
        names = [name.strip().removeprefix(f"{target}://") for name in element.attributes[target].split(",")]
        return [name for name in names if name] or [""]

    def inner(self, outer: Element) -> Element:
        """The object that a property holds: ActiveMQ writes both as elements, often with the same name.

        Returns: the child of the same name; without such a child, the element itself.
        """
        self.no_text(outer)
        inside = [child for child in outer.children if child.name == outer.name]
        if not inside:
            return outer
        self.attributes(outer, ())
        self.no_text(inside[0])
        for child in outer.children:
            if child is not inside[0]:
                self.builder.fault(self.at(child), child.name, f"expected a single <{outer.name}> in <{outer.name}>")
        return inside[0]

    # -- leaves -------------------------------------------------------------------------------------------------------

    def acts(self, kind: str, element: Element) -> bool:
        """Whether a child has a meaning in an entry of this kind. Warns if it has none."""
        if kind == DEFAULT_ENTRY and element.name == "pendingSubscriberPolicy":  # an entry has one cursor
            self.builder.warn(
                self.at(element), element.name, "the default entry takes the cursor of pendingQueuePolicy"
            )
            return False
        misplaced = {QUEUE_ENTRY: TOPICS_ONLY, TOPIC_ENTRY: QUEUES_ONLY}.get(kind, frozenset())
        if element.name in misplaced:
            other = "topics" if kind == QUEUE_ENTRY else "queues"
            self.builder.warn(self.at(element), element.name, f"without effect in this entry: it is for {other}")
        return element.name not in misplaced

    def only_child(self, element: Element, known: Iterable[str]) -> Element | None:
        """The single element inside. None, with a fault: it is not one of the known ones, or there are several."""
        self.no_text(element)
        self.attributes(element, ())
        for child in element.children:
            if child.name not in known:
                self.builder.unknown(self.at(child), child.name, f"<{element.name}>", known)
                return None
        if len(element.children) != 1:
            expected = ", ".join(f"<{name}>" for name in known)
            self.builder.fault(
                self.at(element), element.name, f"holds {len(element.children)} elements, expected {expected}"
            )
            return None
        self.no_text(element.children[0])
        return element.children[0]

    def read_attributes(
        self, element: Element, known: Mapping[str, Attribute], ignored: Iterable[str] = ()
    ) -> dict[str, tuple[object, str]]:
        """Read attributes. Returns: key of an address-setting -> (value, attribute), for settings that they set."""
        given: dict[str, tuple[object, str]] = {}
        for name, text in element.attributes.items():
            attribute = known.get(name)
            if attribute is None:
                self.builder.unknown(self.at(element), name, f"<{element.name}>", known)
                continue
            try:
                value = attribute.read(text)
            except ValueError as error:
                self.builder.wrong(self.at(element), f"{element.name}/{name}", text, error)
                continue
            if attribute.key and value is not None:
                given[attribute.key] = value, name
            elif not attribute.key and name not in ignored:
                self.builder.no_effect(self.at(element), name)
        return given

    def set(self, raw: RawEntry, element: Element, key: str, value: object, name_in_file: str) -> None:
        """Set an address-setting of the entry. `name_in_file`: the name of its element or attribute."""
        self.builder.set_field(raw, self.at(element), name_in_file, BY_KEY[key], value, as_text=False)

    def no_text(self, element: Element) -> None:
        """Check that there is no text between elements, except the dots of an example."""
        if not element.value:
            return
        is_left_out = "..." in element.value or "\N{HORIZONTAL ELLIPSIS}" in element.value
        problem = ELLIPSIS if is_left_out else f"text means nothing in <{element.name}>"
        self.builder.fault(self.at(element), element.name, problem)
