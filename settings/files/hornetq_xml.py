"""What HornetQ's files have that Artemis' have not: addresses with a JMS prefix, and queues and topics by JMS name.

Source: address-settings page 6.1; ruling 18; seed 004.
"""

from types import MappingProxyType

from ..addresses.queue_arguments import SELECTOR
from ..declared.declarations import ANYCAST, MULTICAST, ExchangeDeclaration, QueueDeclaration
from ..faults import Origin
from ..values import BOOLEAN
from .draft import Draft
from .xml_tree import Element

QUEUE_PREFIX, TOPIC_PREFIX = "jms.queue.", "jms.topic."


def without_jms_prefix(address: str) -> str:
    """`jms.queue.exampleQueue` -> `exampleQueue`; what is left must be something."""
    for prefix in (QUEUE_PREFIX, TOPIC_PREFIX):
        if address.startswith(prefix) and len(address) > len(prefix):
            return address[len(prefix) :]
    return address


def routing_type_of(address: str, default: str) -> str:
    """JMS queues are anycast, JMS topics multicast."""
    if address.startswith(QUEUE_PREFIX):
        return ANYCAST
    return MULTICAST if address.startswith(TOPIC_PREFIX) else default


def load_jms_queue(draft: Draft, file: str, element: Element, name: str) -> None:
    """`<queue name="x"><entry name="/queue/x"/></queue>` of hornetq-jms.xml: the queue x."""
    durable = True
    arguments: dict[str, object] = {}
    origins: dict[str, Origin] = {}
    written: dict[str, str] = {}
    for child in element.children:
        origin = Origin(file, child.line)
        if child.name == "durable":
            try:
                durable = BOOLEAN.read_text(child.text)
            except ValueError as error:
                draft.wrong(origin, child.name, child.value, error)
        elif child.name in ("selector", "filter"):
            if text := child.attributes.get("string", child.text).strip():
                arguments[SELECTOR], origins[SELECTOR], written = text, origin, {SELECTOR: child.name}
        elif child.name == "entry":
            draft.no_effect(origin, child.name)
        else:
            draft.unknown(origin, child.name, "<queue>", ("entry", "durable", "selector"))
    origin = Origin(file, element.line)
    queue = QueueDeclaration(
        name, name, "/", ANYCAST, durable, True, MappingProxyType(arguments), origin, MappingProxyType(origins)
    )
    draft.add_queue(queue, written)


def load_jms_topic(draft: Draft, file: str, element: Element, name: str) -> None:
    """`<topic name="x">`: a fanout exchange x."""
    for child in element.children:
        if child.name != "entry":
            draft.unknown(Origin(file, child.line), child.name, "<topic>", ("entry",))
    draft.add_exchange(ExchangeDeclaration(name, origin=Origin(file, element.line)))
