"""XML configurations of Artemis (broker.xml) and HornetQ, whole or in fragments: any known element may be the root.

HornetQ's files have addresses with a JMS prefix, and queues and topics by their JMS names.
Source: address-settings page 3.7, 6.1, 6.3; ruling 18; seed 004.
"""

from collections.abc import Callable, Iterable
from functools import partial

from ..addresses.matching import parse_artemis_match
from ..addresses.queue_arguments import parse_argument
from ..declared.declarations import ANYCAST, MULTICAST, ExchangeDeclaration, QueueDeclaration
from ..faults import Origin, nearest
from ..files.builder import NO_TRANSFORMER, OF_QUEUES, OF_TOPICS, PLAIN, WILDCARD_KEYS, ConfigurationBuilder, RawEntry
from ..files.file_hooks import xml_formats
from ..rows.address_settings import BY_KEY, OLD_NAMES
from ..rows.broker_keys import Key
from ..rows.queue_attributes import QUEUE_ATTRIBUTES, SELECTOR
from ..values import BOOLEAN, shown
from .activemq import ACTIVEMQ_ROOTS
from .artemis_diverts import DIVERT_ROWS, declare_divert, missing_keys
from .artemis_names import GLOBALS, SETTINGS_WITHOUT_EFFECT, WITHOUT_EFFECT
from .xml_source import XmlSource
from .xml_tree import Element

QUEUE_PREFIX, TOPIC_PREFIX = "jms.queue.", "jms.topic."


def without_jms_prefix(address: str) -> str:
    """`jms.queue.exampleQueue` -> `exampleQueue`; the rest must not be empty."""
    for prefix in (QUEUE_PREFIX, TOPIC_PREFIX):
        if address.startswith(prefix) and len(address) > len(prefix):
            return address[len(prefix) :]
    return address


def routing_type_of(address: str, default: str) -> str:
    """JMS queues are anycast, JMS topics multicast."""
    if address.startswith(QUEUE_PREFIX):
        return ANYCAST
    return MULTICAST if address.startswith(TOPIC_PREFIX) else default


_WILDCARD_CHILDREN = {"delimiter", "any-words", "single-word"}

#: Elements that may be repeated in <configuration> or <core>, besides those without a counterpart.
_REPEATABLE = ("queue", "topic", "address-setting", "core")

_IN_FILE = {argument: attribute for attribute, argument in QUEUE_ATTRIBUTES.items()}

_PATTERN_AS_NAME = (
    "covers other addresses in Artemis; here its queues get only messages to that very name: bind them to an exchange"
)

#: Further attributes or children of a `<queue>`.
_QUEUE_OTHERS = ("name", "enabled", "durable", "user", "address")


def load_artemis(builder: ConfigurationBuilder, file: str, root: Element) -> None:
    """Read one file into the builder."""
    _Loader(builder, file).root(root)


class _Loader(XmlSource):
    def __init__(self, builder: ConfigurationBuilder, file: str) -> None:
        super().__init__(builder, file)
        self.structures: dict[str, Callable[[Element], None]] = {
            "configuration": self.container,
            "core": self.container,
            "address-settings": partial(self.each, "address-setting", self.address_setting),
            "address-setting": self.address_setting,
            "addresses": partial(self.each, "address", self.address),
            "address": self.address,
            "queues": partial(self.each, "queue", self.queue_alone),  # the old form: <queue> with <address>
            "queue": self.queue_alone,
            "topic": self.topic,
            "wildcard-addresses": self.wildcard_addresses,
            "literal-match-markers": self.literal_match_markers,
            "diverts": partial(self.each, "divert", self.divert),
            "divert": self.divert,
        }

    def known(self) -> Iterable[str]:
        return (*self.structures, *GLOBALS, *WITHOUT_EFFECT)

    # -- the root ----------------------------------------------------------------------------------------------------

    def root(self, element: Element) -> None:
        if element.namespace.startswith("urn:hornetq"):
            self.builder.imply(self.origin_of(element), "broker", "legacy-hornetq-headers", True)
        if not self.read_top_level(element):
            known = (*self.known(), *ACTIVEMQ_ROOTS, *xml_formats())
            self.fault(
                element,
                element.name,
                f"unknown root{nearest(element.name, known)}, expected <configuration>, <core>, <address-settings>, "
                "<addresses> or another part of broker.xml, <beans> or <broker> of ActiveMQ 5, "
                "or <AMPSConfig> or <SOW> of AMPS",
            )

    def read_top_level(self, element: Element) -> bool:
        """Read an element of <configuration> or <core>. Returns False if it is unknown."""
        name = element.name
        if (read := self.structures.get(name)) is not None:
            if read != self.container:  # an ignored element may refer to missing variables
                self.expand(element)
            read(element)
        elif (key := GLOBALS.get(name)) is not None:
            self.expand(element)
            self.global_value(element, key)
        elif name in WITHOUT_EFFECT:
            self.no_effect(element, name)
        else:
            return False
        return True

    def container(self, element: Element) -> None:
        """Read the children of <configuration> or <core>, each once."""
        self.attributes(element, (), ignore=("schemaLocation", "version"))
        for child in self.each_once(element, (*_REPEATABLE, *WITHOUT_EFFECT)):
            if not self.read_top_level(child):
                self.unknown(child, child.name, f"<{element.name}>", self.known())

    def each_once(self, element: Element, repeatable: Iterable[str] = ()) -> list[Element]:
        self.refuse_text(element)
        return super().each_once(element, repeatable)

    def each(self, name: str, read: Callable[[Element], None], element: Element) -> None:
        """Read the children of an element without attributes, all of which have this name."""
        self.attributes(element, ())
        self.refuse_text(element)
        for child in self.children_of(element):
            if child.name == name:
                read(child)
            else:
                self.unknown(child, child.name, f"<{element.name}>", (name,))

    def global_value(self, element: Element, key: Key) -> None:
        parsed = key.kind.parse(element.text)
        self.builder.broker_value(self.origin_of(element), "broker", element.name, parsed)

    def wildcard_addresses(self, element: Element) -> None:
        self.attributes(element, ())
        for child in self.each_once(element):
            if child.name in _WILDCARD_CHILDREN:
                self.builder.set_wildcard(self.origin_of(child), child.name, child.value)
            elif child.name in ("routing-enabled", "enabled"):
                self.no_effect(child, child.name)
            else:
                self.unknown(child, child.name, "<wildcard-addresses>", (*WILDCARD_KEYS, "routing-enabled"))

    def literal_match_markers(self, element: Element) -> None:
        self.builder.set_wildcard(self.origin_of(element), element.name, element.value)

    # -- address-settings ---------------------------------------------------------------------------------------------

    def address_setting(self, element: Element) -> None:
        self.attributes(element, ("match",))
        match = element.attributes.get("match")
        if match is None:
            self.fault(element, "match", "is missing in <address-setting>")
        plain = self.without_prefix_at(element, match or "")
        in_file = match or "" if plain != match else ""
        rank = {ANYCAST: OF_QUEUES, MULTICAST: OF_TOPICS}.get(routing_type_of(match or "", ""), PLAIN)
        raw = RawEntry(plain, None, self.origin_of(element), in_file=in_file, rank=rank, parse=parse_artemis_match)
        for child in self.each_once(element):
            name = OLD_NAMES.get(child.name, child.name)
            row = BY_KEY.get(name)
            if name in SETTINGS_WITHOUT_EFFECT:
                self.no_effect(child, name)
                continue
            if row is None:
                self.unknown(child, child.name, "<address-setting>", BY_KEY)
                continue
            if row.attribute in raw.values:
                self.fault(child, child.name, f"the same as {name}, which is given as well")
                continue
            value = child.value
            if row.attribute in ("dead_letter_address", "expiry_address"):
                value = self.without_prefix_at(child, value)
            self.builder.set_field(raw, self.origin_of(child), child.name, row, value, as_text=True)
        if match is not None:
            self.builder.replace_entry(raw)

    # -- addresses and queues -----------------------------------------------------------------------------------------

    def address(self, element: Element) -> None:
        self.attributes(element, ("name", "retroactive-message-count"))
        name = self.name_of(element)
        kinds = {"anycast": ANYCAST, "multicast": MULTICAST}
        if not element.children:
            self.warn(element, "address", f"{shown(name)} has no queue and no routing type: nothing is made")
        for child in self.each_once(element):
            if child.name not in kinds:
                self.unknown(child, child.name, "<address>", kinds)
                continue
            if name is None:
                self.attributes(child, ())
                continue
            if child.children and not {"#", "*"}.isdisjoint(name.split(".")):
                self.warn(child, "address", f"{shown(name)} {_PATTERN_AS_NAME}")
            if child.name == "multicast":
                self.builder.add_exchange(ExchangeDeclaration(name, origin=self.origin_of(element)))
            self.each("queue", partial(self.queue, address=name, routing_type=kinds[child.name]), child)

    def queue_alone(self, element: Element) -> None:
        """Read a queue outside an address: of the old form, of hornetq-jms.xml, or a fragment of the new form."""
        name = self.name_of(element)
        address = next((child.value for child in element.children if child.name == "address"), None)
        if name is None:
            return
        if address is None and any(child.name in ("entry", "selector") for child in element.children):
            self.jms_queue(element, name)
        elif address is None or without_jms_prefix(address) == name:
            self.queue(element, name, routing_type_of(address or "", ANYCAST))
        else:
            self.queue(element, self.without_prefix_at(element, address), routing_type_of(address, MULTICAST))

    def jms_queue(self, element: Element, name: str) -> None:
        """Read `<queue name="x"><entry name="/queue/x"/></queue>` of hornetq-jms.xml: the queue x."""
        durable = True
        arguments: dict[str, object] = {}
        origins: dict[str, Origin] = {}
        in_file: dict[str, str] = {}
        for child in element.children:
            origin = self.origin_of(child)
            if child.name == "durable":
                durable = self.value(child.name, child.value, BOOLEAN, origin, True)
            elif child.name in ("selector", "filter"):
                if text := child.attributes.get("string", child.text).strip():
                    arguments[SELECTOR], origins[SELECTOR], in_file = text, origin, {SELECTOR: child.name}
            elif child.name == "entry":
                self.no_effect(child, child.name)
            else:
                self.unknown(child, child.name, "<queue>", ("entry", "durable", "selector"))
        queue = QueueDeclaration(
            name, name, durable=durable, arguments=arguments, origin=self.origin_of(element), origins=origins
        )
        self.builder.add_queue(queue, in_file)

    def topic(self, element: Element) -> None:
        """Read `<topic name="x">` of hornetq-jms.xml: a fanout exchange x."""
        name = self.name_of(element)
        if name is None:
            return
        for child in element.children:
            if child.name != "entry":
                self.unknown(child, child.name, "<topic>", ("entry",))
        self.builder.add_exchange(ExchangeDeclaration(name, origin=self.origin_of(element)))

    def queue(self, element: Element, address: str, routing_type: str) -> None:
        name = self.name_of(element)
        values: dict[str, tuple[str, Origin]] = {
            key: (value, self.origin_of(element)) for key, value in element.attributes.items()
        }
        for child in self.each_once(element):
            if child.name in values:
                self.fault(child, child.name, "is given twice")
            values[child.name] = (child.attributes.get("string", child.text), self.origin_of(child))
        arguments: dict[str, object] = {}
        origins: dict[str, Origin] = {}
        flags = {"durable": True, "enabled": True}
        for key, (value, origin) in values.items():
            if key in QUEUE_ATTRIBUTES:
                argument = QUEUE_ATTRIBUTES[key]
                if argument in arguments:
                    self.builder.fault(origin, key, f"sets {argument}, which another key sets as well")
                if argument == SELECTOR and not value.strip():
                    continue  # Artemis does the same
                arguments[argument] = parse_argument(argument, value)
                origins[argument] = origin
            elif key in flags:
                flags[key] = self.value(key, value, BOOLEAN, origin, True)
            elif key == "user":
                self.builder.no_effect(origin, key)
            elif key not in _QUEUE_OTHERS:
                self.builder.unknown(origin, key, "<queue>", (*QUEUE_ATTRIBUTES, *_QUEUE_OTHERS))
        if name is None:
            return
        if name != address:
            arguments["x-address"] = address
        earlier = self.builder.queues.get(("/", name))
        if (
            earlier is not None and earlier.origin.file == self.origin_of(element).file
        ):  # the same in <anycast> and <multicast>
            what = f"{shown(name)} is already declared at {earlier.origin}: only that one applies"
            self.warn(element, "queue", what)
            return
        queue = QueueDeclaration(
            name,
            address,
            routing_type=routing_type,
            durable=flags["durable"],
            is_enabled=flags["enabled"],
            arguments=arguments,
            origin=self.origin_of(element),
            origins=origins,
        )
        self.builder.add_queue(queue, _IN_FILE)

    # -- diverts ------------------------------------------------------------------------------------------------------

    def divert(self, element: Element) -> None:
        self.attributes(element, ("name",))
        name = self.name_of(element)
        texts: dict[str, str] = {}
        known = [row.key for row in DIVERT_ROWS]
        for child in self.each_once(element):
            if child.name in ("transformer-class-name", "transformer"):
                name_of_class = next((one.value for one in child.children if one.name == "class-name"), child.value)
                self.fault(child, child.name, f"{shown(name_of_class)}: {NO_TRANSFORMER}")
            elif child.name not in known:
                self.unknown(child, child.name, "<divert>", known)
            elif child.name in ("address", "forwarding-address"):
                texts[child.name] = ",".join(
                    self.without_prefix_at(element, one.strip()) for one in child.value.split(",")
                )
            else:
                texts[child.name] = child.attributes.get("string", child.text)  # of a filter: an attribute
        missing = missing_keys(texts)
        for key in missing:
            self.fault(element, key, "is missing in <divert>")
        if name is not None and not missing:
            declare_divert(self.builder, name, self.origin_of(element), texts, str)

    # -- leaves -------------------------------------------------------------------------------------------------------

    def name_of(self, element: Element) -> str | None:
        """The name, without JMS prefix; None, with a fault, if there is none."""
        name = element.attributes.get("name", "")
        if not name or len(name.encode()) > 255:
            problem = f"{shown(name)} is invalid, expected a name of 1 to 255 octets"
            self.fault(element, "name", problem if name else f"is missing in <{element.name}>")
            return None
        return self.without_prefix_at(element, name)

    def without_prefix_at(self, element: Element, address: str) -> str:
        """An address without its JMS prefix. In a fragment without a namespace, it shows that HornetQ wrote it."""
        plain = without_jms_prefix(address)
        if plain != address and not element.namespace:
            self.builder.imply(self.origin_of(element), "broker", "legacy-hornetq-headers", True)
        return plain
