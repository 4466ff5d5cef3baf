"""ActiveMQ's `destinationInterceptors`: composite destinations are diverts; other virtual ones are refused or skipped.

Source: ActiveMQ's CompositeDestination, FilteredDestination, VirtualTopic, MirroredQueue.
"""

from dataclasses import replace

from ..declared.declarations import Divert, ExchangeDeclaration
from ..values import shown
from .activemq_names import Attribute, any_name, anything, flag, ignored
from .activemq_source import ActivemqSource
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


def read_interceptors(source: ActivemqSource, element: Element) -> None:
    """Read <destinationInterceptors>, and the elements between it and the virtual destinations."""
    source.refuse_text(element)
    for child in source.children_of(element):
        if child.name in ("virtualDestinationInterceptor", "virtualDestinations"):
            read_interceptors(source, child)
        elif child.name in ("compositeQueue", "compositeTopic"):
            _composite(source, child)
        elif child.name == "virtualTopic":
            source.no_effect(child, child.name, _CLIENTS_BIND)
        elif child.name == "mirroredQueue":
            problem = "is not done here, and would give copies to subscribers; use a [[divert]] for each queue"
            source.fault(child, child.name, problem)
        else:
            source.no_effect(child, child.name)


def _composite(source: ActivemqSource, element: Element) -> None:
    """A composite destination forwards its messages: one divert for all targets without a selector, one for each other.

    If messages are only forwarded, the diverts are exclusive. Then the one without a selector exists even without a
    target, so that messages that match no selector are not kept either.
    """
    builder, origin = source.builder, source.origin_of(element)
    values = {key: value for key, (value, _) in source.read_attributes(element, _COMPOSITE, ("id",)).items()}
    address = str(values.get("name", ""))
    if not address or "*" in address or ">" in address:
        what = f"{shown(address)} covers several" if address else "is missing"
        source.fault(element, "name", f"{what}, expected the name of one destination in <{element.name}>")
        return
    only_unmatched = values.get("sendWhenNotMatched", False)
    is_exclusive = bool(only_unmatched or values.get("forwardOnly", True))
    plain: list[str] = []
    filtered: list[tuple[str, str, Element]] = []
    for part in source.each_once(element):
        if part.name != "forwardTo":
            source.unknown(part, part.name, f"<{element.name}>", ("forwardTo",))
            continue
        for child in source.children_of(part):
            selector, target = _target(source, child)
            if target and selector:
                filtered.append((selector, target, child))
            elif target:
                plain.append(target)
    if element.name == "compositeTopic":
        builder.add_exchange(ExchangeDeclaration(address, origin=origin))
    if plain or (is_exclusive and not only_unmatched):
        divert = Divert(address, address, tuple(plain), is_exclusive=is_exclusive, routing_name=address, origin=origin)
        builder.add_divert(divert)
    for number, (selector, target, child) in enumerate(filtered, 1):
        name, origin = f"{address} {number}", source.origin_of(child)
        divert = Divert(name, address, (target,), is_exclusive=is_exclusive, routing_name=name, origin=origin)
        builder.add_divert(replace(divert, filter=selector))


def _target(source: ActivemqSource, element: Element) -> tuple[str, str]:
    """Selector (empty: all messages) and address of one element in <forwardTo>; no address: a fault."""
    builder, origin = source.builder, source.origin_of(element)
    if element.name == "filteredDestination":
        given = {key: str(value) for key, (value, _) in source.read_attributes(element, _FILTERED, ("id",)).items()}
        selector, queue, topic = (given.get(key, "") for key in ("selector", "queue", "topic"))
    elif element.name in ("queue", "topic"):
        physical = element.attributes.get("physicalName", "").strip()
        selector = queue = topic = ""
        if element.name == "queue":
            queue = physical
        else:
            topic = physical
    else:
        source.unknown(element, element.name, "<forwardTo>", ("queue", "topic", "filteredDestination"))
        return "", ""
    if bool(queue) == bool(topic):
        source.fault(element, element.name, "expected the name of one queue or topic")
        return "", ""
    if queue:
        source.declare_queue(element, queue)
        return selector, f"queue:{queue}"
    builder.add_exchange(ExchangeDeclaration(topic, origin=origin))
    return selector, f"exchange:{topic}"
