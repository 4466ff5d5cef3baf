"""The keys of policies: their values, the objects they apply to, and the queue argument for each.

The refusals are RabbitMQ's, word for word. Source: behaviour page 3.12, probed on RabbitMQ 3.10.8.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..frozen import frozen
from ..queue_types import CLASSIC, OWN_TYPES, QUORUM, STREAM
from ..rows.queue_attributes import LIVE_ARGUMENTS, QUEUE_ARGUMENTS
from ..values import Reader

#: Policies apply to exchanges, beside the three types of queues.
EXCHANGE = "exchange"
SEGMENT_OCTETS_MAX = 3_000_000_000


@frozen
class PolicyKey:
    """One key.

    `on`: the queue types that have it, or exchanges; a policy with a key that a queue's type lacks does not apply to
    the queue. `accepts`: whether a value is valid; `refusal`: RabbitMQ's text after an invalid one. `argument`: the
    queue argument that it sets; empty for keys without an effect here. `by_minimum`: if declaration and policies
    differ, the smaller value applies. `read`: the reader of an argument that only one type of queues has.
    """

    on: frozenset[str]
    accepts: Callable[[object], bool]
    refusal: str
    argument: str = ""
    by_minimum: bool = False
    is_for_operators: bool = False
    read: Reader | None = None


def _integer(low: int, high: int | None = None) -> Callable[[object], bool]:
    def accepts(value: object) -> bool:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return is_number and low <= value and (high is None or value <= high)  # type: ignore[operator]

    return accepts


def _word(*words: object) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, bool | float) and value in words


def _any_value(value: object) -> bool:
    return True


def _text(value: object) -> bool:
    return isinstance(value, str)


_AGE = re.compile(r"[0-9]+[YMDhms]")


def _age(value: object) -> bool:
    return isinstance(value, str) and _AGE.fullmatch(value) is not None


def _accepted_by(read: Reader) -> Callable[[object], bool]:
    def accepts(value: object) -> bool:
        try:
            read(value)
        except ValueError:
            return False
        return True

    return accepts


_C, _Q, _S = frozenset({CLASSIC}), frozenset({QUORUM}), frozenset({STREAM})
_LONGEST = 2**63 - 1
_COUNT = _integer(0, _LONGEST)


def _limit(on: frozenset[str], accepts: Callable[[object], bool], refusal: str, argument: str) -> PolicyKey:
    return PolicyKey(on, accepts, refusal, argument, by_minimum=True, is_for_operators=True)


_ANY_QUEUE, _EXCHANGES = _C | _Q | _S, frozenset({EXCHANGE})
_EVERYTHING = _C | _Q | _EXCHANGES  # but streams

# fmt: off
POLICY_KEYS: dict[str, PolicyKey] = {
    "alternate-exchange": PolicyKey(_EXCHANGES, _text, "is not a valid alternate exchange name"),
    "dead-letter-exchange": PolicyKey(_C | _Q, _text,
        "is not a valid dead letter exchange name", "x-dead-letter-exchange"),
    "dead-letter-routing-key": PolicyKey(_C | _Q, _text,
        "is not a valid dead letter routing key", "x-dead-letter-routing-key"),
    "dead-letter-strategy": PolicyKey(_Q, _word("at-most-once", "at-least-once"),
        "is not a valid dead letter strategy", "x-dead-letter-strategy"),
    "message-ttl": _limit(_C | _Q, _COUNT, "is not a valid message TTL", "x-message-ttl"),
    "expires": _limit(_C | _Q, _integer(1, _LONGEST), "is not a valid queue expiry", "x-expires"),
    "max-length": _limit(_C | _Q, _COUNT, "is not a valid maximum length", "x-max-length"),
    "max-length-bytes": _limit(_ANY_QUEUE, _COUNT, "is not a valid maximum length in bytes", "x-max-length-bytes"),
    "max-in-memory-length": _limit(_C | _Q, _COUNT, "is not a valid maximum memory in bytes", ""),
    "max-in-memory-bytes": _limit(_C | _Q, _COUNT, "is not a valid maximum memory in bytes", ""),
    "delivery-limit": _limit(_Q, _integer(-_LONGEST - 1, _LONGEST),
        "is not a valid delivery limit", "x-delivery-limit"),
    "overflow": PolicyKey(_C | _Q, _word("drop-head", "reject-publish", "reject-publish-dlx"),
        "is not a valid overflow value", "x-overflow", is_for_operators=True),  # since 3.13
    "consumer-timeout": PolicyKey(_ANY_QUEUE, _COUNT,
        "is not a valid consumer timeout", "x-consumer-timeout"),  # since 3.12
    "max-age": PolicyKey(_S, _age, "is not a valid max age", "x-max-age"),
    "stream-max-segment-size-bytes": PolicyKey(_S, _integer(0, SEGMENT_OCTETS_MAX),
        "is not a valid segment size", "x-stream-max-segment-size-bytes"),
    # The following ones have no effect: see `placement.py` for those of clusters.
    "queue-mode": PolicyKey(_C, _word("default", "lazy"), "is not a valid queue-mode value"),
    "queue-version": PolicyKey(_C, _word(1, 2), "is not a valid queue-version value", is_for_operators=True),
    "queue-master-locator": PolicyKey(_C, _word("min-masters", "client-local", "random"),
        "invalid queue-master-locator value", is_for_operators=True),
    "queue-leader-locator": PolicyKey(_Q | _S, _word("client-local", "balanced", "random", "least-leaders"),
        "is not a valid queue leader locator value"),
    "initial-cluster-size": PolicyKey(_S, _COUNT, "is not a valid cluster size"),
    "target-group-size": PolicyKey(_Q, _integer(1),
        "is not a valid qq target count value", is_for_operators=True),  # since 3.13
    "member-placement-tag": PolicyKey(_Q, lambda value: isinstance(value, str) and value != "",  # since 4.4
        "is not a valid member-placement-tag value. Must be a non-empty string", is_for_operators=True),
    "stream-filter-size-bytes": PolicyKey(_S, _integer(16, 255),
        "is not a valid filter size. Valid range is 16-255"),  # since 3.13
    "consumer-disconnected-timeout": PolicyKey(_Q, _COUNT,
        "is not a valid consumer disconnected timeout"),  # since 4.3
    "shards-per-node": PolicyKey(_EXCHANGES, _COUNT,
        "is not a valid number of shards per node"),  # of the sharding plugin, as is routing-key
    "routing-key": PolicyKey(_EXCHANGES, _text, "is not a valid routing key"),
    "ha-mode": PolicyKey(_C, _word("all", "exactly", "nodes"), "is not a valid ha-mode value", is_for_operators=True),
    # `fault_of_mirroring` checks those that depend on it.
    "ha-params": PolicyKey(_C, _any_value, "", is_for_operators=True),
    "ha-sync-mode": PolicyKey(_C, _any_value, "", is_for_operators=True),
    "ha-sync-batch-size": PolicyKey(_C, _any_value, ""),
    "ha-promote-on-shutdown": PolicyKey(_C, _any_value, ""),
    "ha-promote-on-failure": PolicyKey(_C, _any_value, ""),
    "federation-upstream": PolicyKey(_EVERYTHING, _text, "is not a valid federation upstream name"),
    "federation-upstream-set": PolicyKey(_EVERYTHING, _text, "is not a valid federation upstream set name"),
    "federation-upstream-pattern": PolicyKey(_EVERYTHING, _text, "is not a valid federation upstream pattern"),
    # RabbitMQ 4.3's, which has them on quorum queues only.
    "delayed-retry-type": PolicyKey(_C | _Q, _word("disabled", "failed", "returned", "all"),
        "is not a valid delayed retry type. Must be one of: all, failed, returned, disabled", "x-delayed-retry-type",
        is_for_operators=True),
    "delayed-retry-min": PolicyKey(_C | _Q, _integer(1, _LONGEST),
        "is not a valid delayed retry minimum delay. Must be a positive integer", "x-delayed-retry-min",
        is_for_operators=True),
    "delayed-retry-max": PolicyKey(_C | _Q, _integer(1, _LONGEST),
        "is not a valid delayed retry maximum delay. Must be a positive integer", "x-delayed-retry-max",
        is_for_operators=True),
}
# fmt: on
# Leveret's: queue arguments for settings that can change on an existing queue.
POLICY_KEYS |= {
    argument.removeprefix("x-"): PolicyKey(
        _C | _Q,
        _accepted_by(QUEUE_ARGUMENTS[argument].read),
        f"is not a valid {argument.removeprefix('x-')}",
        argument,
    )
    for argument in sorted(LIVE_ARGUMENTS & QUEUE_ARGUMENTS.keys())
    if argument.removeprefix("x-") not in POLICY_KEYS
}
# Those of types with arguments of their own.
for _own in OWN_TYPES.values():
    for _key in _own.policy_keys:
        POLICY_KEYS[_key] = replace(POLICY_KEYS[_key], on=POLICY_KEYS[_key].on | {_own.name})
    for _argument in sorted(_own.policy_arguments):
        _key = _argument.removeprefix("x-")
        _read = _own.rows[_argument].read
        if _key not in POLICY_KEYS:
            POLICY_KEYS[_key] = PolicyKey(
                frozenset({_own.name}), _accepted_by(_read), f"is not a valid {_key}", _argument, read=_read
            )

#: Keys of mirrored queues beside ha-mode and ha-params, in RabbitMQ's order -> what is right, and the refusal.
_MIRRORING: dict[str, tuple[Callable[[object], bool], str]] = {
    "ha-sync-mode": (_word("manual", "automatic"), 'must be "manual" or "automatic", got {}'),
    "ha-sync-batch-size": (_integer(1), "takes an integer greater than 0, {} given"),
    "ha-promote-on-shutdown": (_word("always", "when-synced"), 'must be "always" or "when-synced", got {}'),
    "ha-promote-on-failure": (_word("always", "when-synced"), 'must be "always" or "when-synced", got {}'),
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
        elif not row.accepts(value):
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
    for key, (accepts, refusal) in _MIRRORING.items():
        if key in definition and not accepts(definition[key]):
            return f"{key} {refusal.format(erlang(definition[key]))}"
    return ""


def _fault_of_mirrors(mode: object, definition: Mapping[str, object]) -> str:
    """The fault of ha-params, which are a number, or names of nodes."""
    params, is_given = definition.get("ha-params"), "ha-params" in definition
    shown = erlang(params) if is_given else "none"
    if mode == "all":
        return 'ha-mode="all" does not take parameters' if is_given else ""
    if mode == "exactly":
        return "" if is_given and _integer(1)(params) else f'ha-mode="exactly" takes an integer, {shown} given'
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
