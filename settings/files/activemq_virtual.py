"""ActiveMQ's virtual destinations: composite ones are diverts, others are refused by name or skipped.

Source: ActiveMQ's CompositeDestination, FilteredDestination, VirtualTopic, MirroredQueue.
"""

from ..declared.declarations import Divert, ExchangeDeclaration
from ..values import shown
from .activemq_names import Attribute
from .activemq_strategies import Strategies
from .activemq_values import anything, flag, name
from .xml_tree import Element

_COMPOSITE = {
    "name": Attribute("name", name),
    "forwardOnly": Attribute("forwardOnly", flag),
    "sendWhenNotMatched": Attribute("sendWhenNotMatched", flag),
    **dict.fromkeys(("copyMessage", "concurrentSend"), Attribute("", flag)),
    "id": Attribute("", anything),
}
_FILTERED = {key: Attribute(key, name) for key in ("selector", "queue", "topic")} | {"id": Attribute("", anything)}
_BOUND = "clients bind their queues to the exchange of the topic themselves"


def read_interceptors(source: Strategies, element: Element) -> None:
    """<destinationInterceptors>, and what may stand between it and the virtual destinations."""
    source.no_text(element)
    for child in source.children_of(element):
        if child.name in ("virtualDestinationInterceptor", "virtualDestinations"):
            read_interceptors(source, child)
        elif child.name in ("compositeQueue", "compositeTopic"):
            _composite(source, child)
        elif child.name == "virtualTopic":
            source.draft.no_effect(source.at(child), child.name, _BOUND)
        elif child.name == "mirroredQueue":
            problem = "is not done here, and would give copies to subscribers; use a [[divert]] for each queue"
            source.draft.fault(source.at(child), child.name, problem)
        else:
            source.draft.no_effect(source.at(child), child.name)


def _composite(source: Strategies, element: Element) -> None:
    """What is sent to it goes to others instead, or as well: a divert, and one for each selector.

    Of exclusive diverts all that take a message get it, so the one without a selector keeps it from the queue itself.
    """
    draft, at = source.draft, source.at(element)
    values = {key: value for key, (value, _) in source.read_attributes(element, _COMPOSITE, ("id",)).items()}
    address = str(values.get("name", ""))
    if not address or "*" in address or ">" in address:
        what = f"{shown(address)} covers several" if address else "is missing"
        draft.fault(at, "name", f"{what}, expected the name of one destination in <{element.name}>")
        return
    only_unmatched = values.get("sendWhenNotMatched", False)
    is_exclusive = bool(only_unmatched or values.get("forwardOnly", True))
    plain: list[str] = []
    filtered: list[tuple[str, str, Element]] = []
    for part in source.each_once(element):
        if part.name != "forwardTo":
            draft.unknown(source.at(part), part.name, f"<{element.name}>", ("forwardTo",))
            continue
        for child in source.children_of(part):
            selector, target = _target(source, child)
            if target and selector:
                filtered.append((selector, target, child))
            elif target:
                plain.append(target)
    if element.name == "compositeTopic":
        draft.add_exchange(ExchangeDeclaration(address, origin=at))
    if plain or (is_exclusive and not only_unmatched):
        draft.add_divert(Divert(address, address, tuple(plain), "/", is_exclusive, address, "STRIP", "", at))
    for number, (selector, target, child) in enumerate(filtered, 1):
        title = f"{address} {number}"
        draft.add_divert(
            Divert(title, address, (target,), "/", is_exclusive, title, "STRIP", selector, source.at(child))
        )


def _target(source: Strategies, element: Element) -> tuple[str, str]:
    """Selector (empty: all messages) and address of one element in <forwardTo>; no address: a fault."""
    draft, at = source.draft, source.at(element)
    if element.name == "filteredDestination":
        given = {key: str(value) for key, (value, _) in source.read_attributes(element, _FILTERED, ("id",)).items()}
        selector, queue, topic = (given.get(key, "") for key in ("selector", "queue", "topic"))
    elif element.name in ("queue", "topic"):
        physical = element.attributes.get("physicalName", "").strip()
        selector, queue, topic = "", *((physical, "") if element.name == "queue" else ("", physical))
    else:
        draft.unknown(at, element.name, "<forwardTo>", ("queue", "topic", "filteredDestination"))
        return "", ""
    if bool(queue) == bool(topic):
        draft.fault(at, element.name, "expected the name of one queue or topic")
        return "", ""
    if queue:
        source.declare_queue(element, queue)
        return selector, f"queue:{queue}"
    draft.add_exchange(ExchangeDeclaration(topic, origin=at))
    return selector, f"exchange:{topic}"
