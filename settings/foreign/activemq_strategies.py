"""The children of ActiveMQ's `policyEntry`: strategies, cursors, dead-letter destinations. Source: queues page H.3."""

from ..addresses.destinations import DEFAULT_ENTRY, QUEUE_ENTRY, TOPIC_ENTRY
from ..files.builder import RawEntry
from .activemq_names import DEAD_LETTERS, QUEUES_ONLY, STRATEGIES, TOPICS_ONLY
from .activemq_source import ActivemqSource
from .xml_tree import Element

#: ActiveMQ's shared dead-letter queue, and the prefix of individual ones.
SHARED_QUEUE, INDIVIDUAL_PREFIX = "ActiveMQ.DLQ", "ActiveMQ.DLQ.Queue."


def read_strategy(source: ActivemqSource, raw: RawEntry, kind: str, element: Element) -> None:
    """Read a child of the entry that holds a single element, the chosen strategy."""
    chosen = source.only_child(element, STRATEGIES[element.name])
    if chosen is None:
        return
    choice = STRATEGIES[element.name][chosen.name]
    given = source.read_attributes(chosen, choice.attributes)
    if choice.required and choice.required not in chosen.attributes:
        source.fault(chosen, choice.required, f"is missing in <{chosen.name}>")
    for child in chosen.children:
        source.no_effect(child, child.name)
    if not _has_meaning(source, kind, element):
        return
    if not choice.gives:
        source.no_effect(element, element.name)
    for key, value in choice.gives.items():
        source.set(raw, chosen, key, value, chosen.name)
    for key, (value, name) in given.items():
        source.set(raw, chosen, key, value, name)


def read_dead_letters(source: ActivemqSource, raw: RawEntry, kind: str, element: Element) -> None:
    """Read `deadLetterStrategy` as a dead-letter address, also for expired messages unless it excludes them."""
    strategy = source.only_child(element, DEAD_LETTERS)
    if strategy is None:
        return
    source.read_attributes(strategy, DEAD_LETTERS[strategy.name], ("queuePrefix", "queueSuffix", "processExpired"))
    given = strategy.attributes
    queue = _dead_letter_queue(source, strategy)
    if not _has_meaning(source, kind, element):
        return
    prefix = given.get("queuePrefix", INDIVIDUAL_PREFIX)
    suffix = given.get("queueSuffix", "")
    values: dict[str, object] = {}
    if strategy.name == "sharedDeadLetterStrategy":
        values = {"dead-letter-address": queue}
        source.declare_queue(strategy, queue)  # ActiveMQ creates it on demand
    elif strategy.name == "individualDeadLetterStrategy":
        if not prefix + suffix:
            source.fault(strategy, "queuePrefix", "is empty, and so is queueSuffix")
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
        source.set(raw, strategy, key, value, strategy.name)


def _dead_letter_queue(source: ActivemqSource, strategy: Element) -> str:
    """The name in `<deadLetterQueue><queue physicalName="..."/></deadLetterQueue>`; without it `SHARED_QUEUE`."""
    found = SHARED_QUEUE
    for child in strategy.children:
        names = [one.attributes.get("physicalName", "") for one in child.children if one.name == "queue"]
        if strategy.name != "sharedDeadLetterStrategy" or child.name != "deadLetterQueue":
            source.unknown(child, child.name, f"<{strategy.name}>", ("deadLetterQueue",))
        elif len(child.children) != 1 or not any(names):
            source.fault(child, "deadLetterQueue", 'expected a single <queue physicalName="...">')
        else:
            found = names[0]
    return found


def _has_meaning(source: ActivemqSource, kind: str, element: Element) -> bool:
    """Whether a child has a meaning in an entry of this kind. Warns if it has none."""
    if kind == DEFAULT_ENTRY and element.name == "pendingSubscriberPolicy":  # an entry has one cursor
        source.warn(element, element.name, "the default entry takes the cursor of pendingQueuePolicy")
        return False
    misplaced = {QUEUE_ENTRY: TOPICS_ONLY, TOPIC_ENTRY: QUEUES_ONLY}.get(kind, frozenset())
    if element.name in misplaced:
        other = "topics" if kind == QUEUE_ENTRY else "queues"
        source.warn(element, element.name, f"without effect in this entry: it is for {other}")
    return element.name not in misplaced
