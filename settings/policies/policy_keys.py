"""The keys of policies: their values, the objects they apply to, and the queue argument for each.

The refusals are RabbitMQ's, word for word. Source: behaviour page 3.12, probed on RabbitMQ 3.10.8.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from ..frozen import frozen
from ..queue_types import ADDED_TYPES, CLASSIC, QUORUM, STREAM
from ..rows.queue_attributes import LIVE_ARGUMENTS, QUEUE_ARGUMENTS
from ..values import LONG_MAX, Reader, integer, text, word

#: Policies apply to exchanges, besides the three types of queues.
EXCHANGE = "exchange"
SEGMENT_OCTETS_MAX = 3_000_000_000


def _is_right(read: Reader, value: object) -> bool:
    try:
        read(value)
    except ValueError:
        return False
    return True


@frozen
class PolicyKey:
    """One key.

    `on`: the queue types that have it, or exchanges; a policy with a key that a queue's type lacks does not apply to
    the queue. `refusal`: RabbitMQ's text after an invalid value. `argument`: the queue argument that it sets; empty for
    keys without an effect here. `by_minimum`: if declaration and policies differ, the smaller value applies.
    """

    on: frozenset[str]
    read: Reader
    refusal: str
    argument: str = ""
    by_minimum: bool = False
    is_for_operators: bool = False

    def plain(self, value: object) -> object:
        """A valid value as a client would send it: "5s" of a delay is 5000, an integer of a factor stays an integer."""
        read = self.read(value)
        return value if read == value else read


_AGE = re.compile(r"0*[1-9][0-9]*[YMDhms]")


def _age(value: object) -> object:
    if isinstance(value, str) and _AGE.fullmatch(value):
        return value
    raise ValueError


def _name(value: object) -> object:
    if isinstance(value, str) and value:
        return value
    raise ValueError


def _any_value(value: object) -> object:
    return value


_C, _Q, _S = frozenset({CLASSIC}), frozenset({QUORUM}), frozenset({STREAM})
_COUNT = integer(0, LONG_MAX)


def _limit(on: frozenset[str], read: Reader, refusal: str, argument: str) -> PolicyKey:
    return PolicyKey(on, read, refusal, argument, by_minimum=True, is_for_operators=True)


_ANY_QUEUE, _EXCHANGES = _C | _Q | _S, frozenset({EXCHANGE})
_NOT_STREAMS = _C | _Q | _EXCHANGES

# fmt: off
POLICY_KEYS: dict[str, PolicyKey] = {
    "alternate-exchange": PolicyKey(_EXCHANGES, text, "is not a valid alternate exchange name"),
    "dead-letter-exchange": PolicyKey(_C | _Q, text,
        "is not a valid dead letter exchange name", "x-dead-letter-exchange"),
    "dead-letter-routing-key": PolicyKey(_C | _Q, text,
        "is not a valid dead letter routing key", "x-dead-letter-routing-key"),
    "dead-letter-strategy": PolicyKey(_Q, word("at-most-once", "at-least-once"),
        "is not a valid dead letter strategy", "x-dead-letter-strategy"),
    "message-ttl": _limit(_C | _Q, _COUNT, "is not a valid message TTL", "x-message-ttl"),
    "expires": _limit(_C | _Q, integer(1, LONG_MAX), "is not a valid queue expiry", "x-expires"),
    "max-length": _limit(_C | _Q, _COUNT, "is not a valid maximum length", "x-max-length"),
    "max-length-bytes": _limit(_ANY_QUEUE, _COUNT, "is not a valid maximum length in bytes", "x-max-length-bytes"),
    "max-in-memory-length": _limit(_C | _Q, _COUNT, "is not a valid maximum memory in bytes", ""),
    "max-in-memory-bytes": _limit(_C | _Q, _COUNT, "is not a valid maximum memory in bytes", ""),
    "delivery-limit": _limit(_Q, integer(-LONG_MAX - 1, LONG_MAX),
        "is not a valid delivery limit", "x-delivery-limit"),
    "overflow": PolicyKey(_C | _Q, word("drop-head", "reject-publish", "reject-publish-dlx"),
        "is not a valid overflow value", "x-overflow", is_for_operators=True),  # since 3.13
    "consumer-timeout": PolicyKey(_ANY_QUEUE, _COUNT,
        "is not a valid consumer timeout", "x-consumer-timeout"),  # since 3.12
    "max-age": PolicyKey(_S, _age, "is not a valid max age", "x-max-age"),
    "stream-max-segment-size-bytes": PolicyKey(_S, integer(0, SEGMENT_OCTETS_MAX),
        "is not a valid segment size", "x-stream-max-segment-size-bytes"),
    # The following ones have no effect: see `placement.py` for those of clusters.
    "queue-mode": PolicyKey(_C, word("default", "lazy"), "is not a valid queue-mode value"),
    "queue-version": PolicyKey(_C, integer(1, 2), "is not a valid queue-version value", is_for_operators=True),
    "queue-master-locator": PolicyKey(_C, word("min-masters", "client-local", "random"),
        "invalid queue-master-locator value", is_for_operators=True),
    "queue-leader-locator": PolicyKey(_Q | _S, word("client-local", "balanced", "random", "least-leaders"),
        "is not a valid queue leader locator value"),
    "initial-cluster-size": PolicyKey(_S, _COUNT, "is not a valid cluster size"),
    "target-group-size": PolicyKey(_Q, integer(1, LONG_MAX),
        "is not a valid qq target count value", is_for_operators=True),  # since 3.13
    "member-placement-tag": PolicyKey(_Q, _name,  # since 4.4
        "is not a valid member-placement-tag value. Must be a non-empty string", is_for_operators=True),
    "stream-filter-size-bytes": PolicyKey(_S, integer(16, 255),
        "is not a valid filter size. Valid range is 16-255"),  # since 3.13
    "consumer-disconnected-timeout": PolicyKey(_Q, _COUNT,
        "is not a valid consumer disconnected timeout"),  # since 4.3
    "shards-per-node": PolicyKey(_EXCHANGES, _COUNT,
        "is not a valid number of shards per node"),  # of the sharding plugin, as is routing-key
    "routing-key": PolicyKey(_EXCHANGES, text, "is not a valid routing key"),
    "ha-mode": PolicyKey(_C, word("all", "exactly", "nodes"), "is not a valid ha-mode value", is_for_operators=True),
    # `fault_of_mirroring` checks the keys that depend on ha-mode.
    "ha-params": PolicyKey(_C, _any_value, "", is_for_operators=True),
    "ha-sync-mode": PolicyKey(_C, _any_value, "", is_for_operators=True),
    "ha-sync-batch-size": PolicyKey(_C, _any_value, ""),
    "ha-promote-on-shutdown": PolicyKey(_C, _any_value, ""),
    "ha-promote-on-failure": PolicyKey(_C, _any_value, ""),
    "federation-upstream": PolicyKey(_NOT_STREAMS, text, "is not a valid federation upstream name"),
    "federation-upstream-set": PolicyKey(_NOT_STREAMS, text, "is not a valid federation upstream set name"),
    "federation-upstream-pattern": PolicyKey(_NOT_STREAMS, text, "is not a valid federation upstream pattern"),
    # Keys of RabbitMQ 4.3, which has them on quorum queues only.
    "delayed-retry-type": PolicyKey(_C | _Q, word("disabled", "failed", "returned", "all"),
        "is not a valid delayed retry type. Must be one of: all, failed, returned, disabled", "x-delayed-retry-type",
        is_for_operators=True),
    "delayed-retry-min": PolicyKey(_C | _Q, integer(1, LONG_MAX),
        "is not a valid delayed retry minimum delay. Must be a positive integer", "x-delayed-retry-min",
        is_for_operators=True),
    "delayed-retry-max": PolicyKey(_C | _Q, integer(1, LONG_MAX),
        "is not a valid delayed retry maximum delay. Must be a positive integer", "x-delayed-retry-max",
        is_for_operators=True),
}
# fmt: on
# Leveret's: queue arguments for settings that can change on an existing queue.
POLICY_KEYS |= {
    argument.removeprefix("x-"): PolicyKey(
        _C | _Q,
        QUEUE_ARGUMENTS[argument].read,
        f"is not a valid {argument.removeprefix('x-')}",
        argument,
    )
    for argument in sorted(LIVE_ARGUMENTS & QUEUE_ARGUMENTS.keys())
    if argument.removeprefix("x-") not in POLICY_KEYS
}
# Keys of types with their own arguments.
for _added in ADDED_TYPES.values():
    for _key in _added.policy_keys:
        POLICY_KEYS[_key] = replace(POLICY_KEYS[_key], on=POLICY_KEYS[_key].on | {_added.name})
    for _argument in sorted(_added.policy_arguments):
        _key = _argument.removeprefix("x-")
        if _key not in POLICY_KEYS:
            POLICY_KEYS[_key] = PolicyKey(
                frozenset({_added.name}), _added.rows[_argument].read, f"is not a valid {_key}", _argument
            )

#: Keys of mirrored queues besides ha-mode and ha-params, in RabbitMQ's order -> the reader of values, and the refusal.
_MIRRORING: dict[str, tuple[Reader, str]] = {
    "ha-sync-mode": (word("manual", "automatic"), 'must be "manual" or "automatic", got {}'),
    "ha-sync-batch-size": (integer(1, LONG_MAX), "takes an integer greater than 0, {} given"),
    "ha-promote-on-shutdown": (word("always", "when-synced"), 'must be "always" or "when-synced", got {}'),
    "ha-promote-on-failure": (word("always", "when-synced"), 'must be "always" or "when-synced", got {}'),
}


def as_accepted_now(definition: Mapping[str, object]) -> dict[str, object]:
    """A stored definition as it is checked now: earlier releases took 2.0 for the queue-version 2."""
    version = definition.get("queue-version")
    if isinstance(version, float) and version in (1, 2):
        return {**definition, "queue-version": int(version)}
    return dict(definition)


def fault_of_definition(definition: Mapping[str, object], *, is_operator: bool) -> str:
    """RabbitMQ's refusal of a definition; empty if it is valid."""
    if not definition:
        return "no policy provided"
    unknown = {}
    for key, value in sorted(definition.items()):
        row = POLICY_KEYS.get(key)
        if row is None or (is_operator and not row.is_for_operators):
            unknown[key] = value
        elif not _is_right(row.read, value):
            return f"{erlang(value)} {row.refusal}"
    return f"{erlang_list(unknown)} are not recognised policy settings" if unknown else ""


def fault_of_mirroring(definition: Mapping[str, object]) -> str:
    """RabbitMQ's refusal of keys of mirrored queues, which depend on each other; empty if they are valid."""
    if "ha-mode" not in definition:
        if "ha-params" not in definition and not any(key in definition for key in _MIRRORING):
            return ""
        return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
    fault = _fault_of_mirrors(definition["ha-mode"], definition)
    if fault:
        return fault
    for key, (read, refusal) in _MIRRORING.items():
        if key in definition and not _is_right(read, definition[key]):
            return f"{key} {refusal.format(erlang(definition[key]))}"
    return ""


def _fault_of_mirrors(mode: object, definition: Mapping[str, object]) -> str:
    """The fault of ha-params, which are a number, or names of nodes."""
    params, is_given = definition.get("ha-params"), "ha-params" in definition
    shown = erlang(params) if is_given else "none"
    if mode == "all":
        return 'ha-mode="all" does not take parameters' if is_given else ""
    if mode == "exactly":
        is_number = is_given and _is_right(integer(1, LONG_MAX), params)
        return "" if is_number else f'ha-mode="exactly" takes an integer, {shown} given'
    if not isinstance(params, list):
        return f'ha-mode="nodes" takes a list, {shown} given'
    if not params:
        return 'ha-mode="nodes" list must be non-empty'
    wrong = [one for one in params if not isinstance(one, str)]
    return f'ha-mode="nodes" takes a list of strings, {erlang(wrong)} was not a string' if wrong else ""


def erlang_list(definition: Mapping[str, object]) -> str:
    """Keys and values as Erlang prints them, in the order of the keys."""
    pairs = [f"{{{erlang(key)},{erlang(definition[key])}}}" for key in sorted(definition)]
    return f"[{','.join(pairs)}]"


def erlang(value: object) -> str:
    """A value of JSON as Erlang prints it."""
    if isinstance(value, str):
        return f'<<"{value}">>' if value else "<<>>"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(erlang, value))}]"
    if isinstance(value, dict):
        return f"#{{{','.join(f'{erlang(key)} => {erlang(item)}' for key, item in value.items())}}}"
    return str(value)
