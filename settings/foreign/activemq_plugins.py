"""ActiveMQ's plugins: those that change the delivery of messages become settings, or are refused; others do nothing.

`redeliveryPlugin` becomes address-settings: an entry for each redelivery policy, which sets everything about
redelivery, so that only the most specific one applies. Source: ActiveMQ's RedeliveryPlugin, RedeliveryPolicy.
"""

from typing import Any

from ..addresses.destinations import parse_destination
from ..addresses.matching import Match, MatchFault, Wildcards
from ..files.builder import OF_QUEUES, PLAIN, RawEntry
from ..rows.address_settings import BY_KEY
from ..values import LONG_MAX, shown
from .activemq_names import REDELIVERY, TARGETS, Attribute, anything, flag, ignored, milliseconds_or_off
from .activemq_source import ActivemqSource
from .activemq_strategies import SHARED_QUEUE
from .xml_tree import Element

_DISCARDING = "discardingDLQBrokerPlugin"
#: Plugins whose variables are replaced.
_READ = ("redeliveryPlugin", _DISCARDING, "timeStampingBrokerPlugin", "forcePersistencyModeBrokerPlugin")
_FLAGS = ("sendToDlqIfMaxRetriesExceeded", "fallbackToDeadLetter")
_TOPICS = "the queues of subscribers have their own names here: a policy of queues covers them"
_NOT_DONE = "is not done here, and would change which messages are delivered"

#: Children of <redeliveryPolicyMap>.
_PARTS = ("redeliveryPolicyEntries", "defaultEntry")

#: ActiveMQ's defaults of a redelivery policy.
_DEFAULTS: dict[str, Any] = {
    "maximumRedeliveries": 6,
    "initialRedeliveryDelay": 1000,
    "redeliveryDelay": 1000,
    "maximumRedeliveryDelay": -1,
    "backOffMultiplier": 5.0,
    "useExponentialBackOff": False,
    "collisionAvoidancePercent": 15,
    "useCollisionAvoidance": False,
}


def read_plugins(source: ActivemqSource, element: Element) -> None:
    source.refuse_text(element)
    for child in sorted(source.children_of(element), key=lambda child: child.name != _DISCARDING):  # that one first
        read_plugin(source, child)


def read_plugin(source: ActivemqSource, element: Element) -> None:
    """Read one of the elements in <plugins>."""
    builder, origin = source.builder, source.origin_of(element)
    if element.name in _READ:
        source.expand(element)
    if element.name == "redeliveryPlugin":
        _redelivery(source, element)
    elif element.name == _DISCARDING:
        if element.attributes.get("dropOnly", "").strip() or not _flag(source, element, "dropAll", True):
            source.fault(element, "dropOnly", f"{_NOT_DONE}; set an empty dead-letter-address for these queues")
        else:
            builder.discarded |= {"dead_letter_address", "expiry_address"}
    elif element.name == "timeStampingBrokerPlugin":
        _time_stamping(source, element)
    elif element.name == "forcePersistencyModeBrokerPlugin":
        if _flag(source, element, "persistenceFlag", False):
            builder.imply(origin, "journal", "scope", "all")
        else:
            source.fault(element, element.name, f"{_NOT_DONE} after a restart")
    elif element.name == "camelRoutesBrokerPlugin":
        source.fault(element, element.name, _NOT_DONE)
    elif element.name == "bean" and element.attributes.get("class", "").endswith("RedeliveryPlugin"):
        source.fault(element, "bean", "is not read; write it as <redeliveryPlugin>")
    else:
        source.no_effect(element, element.name)


def read_policies(source: ActivemqSource, element: Element, dead_letters: str = SHARED_QUEUE) -> None:
    """Read <redeliveryPolicyMap>, which may hold another one. `dead_letters`: the address of messages after their last
    attempt; empty: they are dropped.
    """
    inner = source.inner(element)
    source.attributes(inner, ("id",))
    for part in source.each_once(inner):
        if part.name not in _PARTS:
            source.unknown(part, part.name, "<redeliveryPolicyMap>", _PARTS)
            continue
        source.refuse_text(part)
        source.attributes(part, ())
        for policy in source.children_of(part):
            if policy.name != "redeliveryPolicy":
                source.unknown(policy, policy.name, f"<{part.name}>", ("redeliveryPolicy",))
            else:
                _policy(source, policy, dead_letters, is_default=part.name == "defaultEntry")


def parse_policy(text: str, wildcards: Wildcards) -> Match:
    """The match of an entry, whose wildcards are ActiveMQ's, whatever `wildcards` are. Raises: MatchFault."""
    return parse_destination(text)


def _redelivery(source: ActivemqSource, element: Element) -> None:
    builder = source.builder
    source.refuse_text(element)
    source.read_attributes(element, dict.fromkeys((*_FLAGS, "id"), ignored(anything)), (*_FLAGS, "id"))
    keeps = _flag(source, element, "sendToDlqIfMaxRetriesExceeded", True)
    if not _flag(source, element, "fallbackToDeadLetter", True):
        why = "queues that no redelivery policy covers have the attempts and dead letters of their policyEntry"
        source.no_effect(element, "fallbackToDeadLetter", why)
    if not keeps:
        builder.discarded.add("dead_letter_address")
    for child in source.each_once(element):
        if child.name == "redeliveryPolicyMap":
            read_policies(source, child, "" if "dead_letter_address" in builder.discarded else SHARED_QUEUE)
        else:
            source.unknown(child, child.name, "<redeliveryPlugin>", ("redeliveryPolicyMap",))


def _policy(source: ActivemqSource, element: Element, dead_letters: str, *, is_default: bool) -> None:
    builder, origin = source.builder, source.origin_of(element)
    targets = dict.fromkeys(TARGETS, ignored(anything))
    given = source.read_attributes(element, {**REDELIVERY, **targets}, (*TARGETS, "id"))
    for child in source.children_of(element):
        source.unknown(child, child.name, "<redeliveryPolicy>", REDELIVERY)
    values = _DEFAULTS | {name: value for value, name in given.values()}
    if is_default:
        names, rank = [">"], PLAIN
    elif "queue" in element.attributes:
        names, rank = source.names_of(element, "queue"), OF_QUEUES
    elif any(target in element.attributes for target in TARGETS):
        source.warn(element, "topic" if "topic" in element.attributes else "redeliveryPolicy", f"no effect: {_TOPICS}")
        return
    else:
        source.fault(element, "queue", "is missing, expected queue or topic in <redeliveryPolicy>")
        return
    settings = _settings(source, element, values)
    if dead_letters:
        source.declare_queue(element, dead_letters)
    for name in names:
        try:
            parse_destination(name)
        except MatchFault as error:
            source.fault(element, "queue", f"{shown(name)}: {error}")
            continue
        in_file = "the default redelivery policy" if is_default else f"redelivery policy {name}"
        raw = RawEntry(name, None, origin, in_file=in_file, rank=rank, parse=parse_policy)
        for key, value in {**settings, "dead-letter-address": dead_letters}.items():
            builder.set_field(raw, origin, key, BY_KEY[key], value, as_text=False)
        builder.replace_entry(raw)


def _settings(source: ActivemqSource, element: Element, values: dict[str, Any]) -> dict[str, object]:
    """The address settings of a policy. ActiveMQ waits the initial delay, then `redeliveryDelay` or growing delays."""
    redeliveries, other = values["maximumRedeliveries"], values["redeliveryDelay"]
    first = values["initialRedeliveryDelay"] or other
    cap, factor = values["maximumRedeliveryDelay"], values["backOffMultiplier"]
    percent = values["collisionAvoidancePercent"] if values["useCollisionAvoidance"] else 0
    if values["useExponentialBackOff"] and factor > 1:
        multiplier, longest = factor, LONG_MAX if cap < 0 else max(cap, other, first)
    elif other > first:
        multiplier, longest = float(-(-other // first)), other  # rounded up: the second wait is the longest already
    else:
        multiplier, longest = 1.0, LONG_MAX
        if other < first:
            what = f"every wait is {first} ms; ActiveMQ's would be {other} ms from the second on"
            source.warn(element, "redeliveryDelay", what)
    return {
        "max-delivery-attempts": -1 if redeliveries < 0 else redeliveries + 1,
        "redelivery-delay": first,
        "redelivery-delay-multiplier": multiplier,
        "max-redelivery-delay": longest,
        "redelivery-collision-avoidance-factor": percent / 100,
    }


def _time_stamping(source: ActivemqSource, element: Element) -> None:
    """Read the times to live: the one of messages without an expiration, and the maximum of all."""
    others = ("futureOnly", "processNetworkMessages", "id")
    known = {
        "zeroExpirationOverride": Attribute("expiry-delay", milliseconds_or_off),
        "ttlCeiling": Attribute("max-expiry-delay", milliseconds_or_off),
        **dict.fromkeys(others, ignored(anything)),
    }
    raw = RawEntry(">", None, source.origin_of(element), in_file=element.name, parse=parse_policy)
    for key, (value, name) in source.read_attributes(element, known, others).items():
        if isinstance(value, int) and value > 0:
            source.set(raw, element, key, value, name)
    if raw.values:
        source.builder.add_entry(raw)


def _flag(source: ActivemqSource, element: Element, name: str, default: bool) -> bool:
    text = element.attributes.get(name)
    if text is None:
        return default
    try:
        return flag(text)
    except ValueError as error:
        source.invalid(element, f"{element.name}/{name}", text, error)
        return default
