"""The known arguments of queues and consumers, their valid values, and when two declarations are equivalent.

The table has a row for each argument, in the order in which RabbitMQ 3.10 checks them, because the first fault is
reported. The frontend makes the text of a `Reason`.
Source: behaviour page 2.4.1, 3.1.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

from ...settings.addresses.queue_arguments import check_selector
from ...settings.frozen import frozen
from ...settings.policies.policy_keys import SEGMENT_OCTETS_MAX
from ...settings.queue_types import ADDED_TYPES, QUEUE_TYPES
from ...settings.rows.queue_attributes import SELECTOR
from ..errors import (
    InequivalentArgument,
    InequivalentField,
    InvalidArgument,
    InvalidDeadLetterExchange,
    InvalidExpiration,
    SegmentSizeTooLarge,
    UnsupportedArgument,
)
from ..messages.content import OFFSET
from ..messages.field_table import INTEGER_TAGS, NUMBER_TAGS, Field, FieldTable, number_of

#: Prefix of the keys under which the journal keeps notes between the arguments of a queue: no argument may have it.
NOTE_PREFIX = "leveret "
#: Maximum length of a name in AMQP, in octets.
NAME_OCTETS_MAX = 255
TEN_YEARS_MS = 315_360_000_000
CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
SEGMENT_SIZE = "x-stream-max-segment-size-bytes"
#: Consumer arguments that are filters (consumer_filter.py).
CONSUMER_FILTERS = ("x-filter", "x-selector")
#: Consumer argument for some kinds of queue: the consumer replaces the one with its tag.
REPLACE = "x-replace"
#: The known consumer arguments, of all kinds of queue.
CONSUMER_ARGUMENTS = frozenset(
    {
        *CONSUMER_FILTERS,
        REPLACE,
        OFFSET,
        "x-priority",
        "x-consumer-timeout",
        "x-cancel-on-ha-failover",  # for RabbitMQ's mirrored queues; has no effect
    }.union(*(added.consumer_arguments for added in ADDED_TYPES.values()))
)
EXCHANGE_ARGUMENTS = frozenset({"alternate-exchange", "x-delayed-type", "hash-header", "hash-property"})


@frozen
class Reason:
    """Why a value is refused. `kind`: how the reply's text is made of `word` and `value`.

    type: an integer is expected, and `word` is the type found. unacceptable: `word` is a type that is not accepted.
    text: `word` is a sentence. tuple: (`word`, `value`). atom: `word` alone.
    """

    kind: str
    word: str = ""
    value: object = None


Check = Callable[[Field], Reason | None]


def _integer_with(fault: Callable[[int], Reason | None]) -> Check:
    """A check for an integer of any width in which `fault` finds no fault."""

    def check(field: Field) -> Reason | None:
        if field.tag not in INTEGER_TAGS:
            return Reason("type", field.type_name)
        assert isinstance(field.value, int)
        return fault(field.value)

    return check


def _string_with(fault: Callable[[str], Reason | None]) -> Check:
    """A check for a string in which `fault` finds no fault."""
    return lambda field: fault(field.text) if field.tag == "S" else Reason("unacceptable", field.type_name)


def _integer(low: int = 0, high: int | None = None, too_large: str = "value_too_large") -> Check:
    def fault(value: int) -> Reason | None:
        if value < 0:
            return Reason("tuple", "value_negative", value)
        if value < low:
            return Reason("tuple", "value_zero", value)
        if high is not None and value > high:
            return Reason("tuple", too_large, value)
        return None

    return _integer_with(fault)


def _one_of(values: tuple[str, ...], refusal: Callable[[str], Reason]) -> Check:
    return _string_with(lambda text: None if text in values else refusal(text))


def _version(field: Field) -> Reason | None:
    wrong_type = _integer()(field)
    if wrong_type is not None:
        return wrong_type
    return None if field.value in (1, 2) else Reason("text", f"unsupported queue version '{field.value!r}'")


def _number(low: float, high: float, *, above: bool = False) -> Check:
    """A check for a finite number from `low` (`above`: greater than `low`) to `high`."""

    def check(field: Field) -> Reason | None:
        if field.tag not in NUMBER_TAGS:
            return Reason("text", f"expected number, got {field.type_name}")
        value = number_of(field)
        if isfinite(value) and low <= value <= high and not (above and value == low):
            return None
        return Reason("tuple", "value_out_of_range", value)

    return check


def _selector_fault(text: str) -> Reason | None:
    try:
        check_selector(text)
    except ValueError as error:
        return Reason("text", f"expected {error}")
    return None


_AGE = re.compile("0*[1-9][0-9]*[YMDhms]")

_any_integer = _integer_with(lambda value: None)
_limit = _integer_with(
    lambda value: None if value == -1 or value >= 1 else Reason("tuple", "expected_minus_one_or_positive", value)
)
_or_minus_one = _integer_with(
    lambda value: None if -1 <= value <= TEN_YEARS_MS else Reason("tuple", "value_out_of_range", value)
)
_string = _string_with(lambda text: None)
_selector = _string_with(_selector_fault)
_age = _string_with(lambda text: None if _AGE.fullmatch(text) else Reason("atom", "invalid_max_age"))
_type = _string_with(lambda text: None if text in QUEUE_TYPES else Reason("text", f"unsupported queue type '{text}'"))


def _boolean(field: Field) -> Reason | None:
    return None if field.tag == "t" else Reason("unacceptable", field.type_name)


def _anything(field: Field) -> Reason | None:
    return None


@frozen
class Argument:
    """A known queue argument. `types`: the base types (the values of `QUEUE_TYPES`) that accept it. Each queue type
    accepts the arguments of its base type. `compared`: redeclarations must repeat the argument.
    """

    types: frozenset[str]
    check: Check
    compared: bool = True


_C, _Q, _S = frozenset({CLASSIC}), frozenset({QUORUM}), frozenset({STREAM})

ARGUMENTS: dict[str, Argument] = {
    "x-expires": Argument(_C | _Q, _integer(1, TEN_YEARS_MS)),
    "x-message-ttl": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-dead-letter-exchange": Argument(_C | _Q, _anything),
    "x-dead-letter-routing-key": Argument(_C | _Q, _string),
    "x-dead-letter-strategy": Argument(
        _Q, _one_of(("at-most-once", "at-least-once"), lambda _: Reason("atom", "invalid_dlx_strategy"))
    ),
    "x-max-length": Argument(_C | _Q, _integer()),
    "x-max-length-bytes": Argument(_C | _Q | _S, _integer()),
    "x-max-priority": Argument(_C, _integer(0, 255, "max_value_exceeded")),
    "x-overflow": Argument(
        _C | _Q,
        _one_of(("drop-head", "reject-publish", "reject-publish-dlx"), lambda _: Reason("atom", "invalid_overflow")),
    ),
    "x-queue-mode": Argument(
        _C, _one_of(("default", "lazy"), lambda text: Reason("text", f"unsupported queue mode '{text}'"))
    ),
    "x-queue-version": Argument(_C, _version),
    "x-single-active-consumer": Argument(_C | _Q, _boolean),
    "x-queue-type": Argument(_C | _Q | _S, _type),
    "x-queue-master-locator": Argument(
        _C, _one_of(("min-masters", "client-local", "random"), lambda _: Reason("atom", "invalid_queue_locator_arg"))
    ),
    "x-queue-leader-locator": Argument(
        _Q | _S,
        _one_of(
            ("client-local", "balanced", "random", "least-leaders"),
            lambda _: Reason("atom", "invalid_queue_locator_arg"),
        ),
    ),
    "x-delivery-limit": Argument(_Q, _any_integer),
    "x-quorum-initial-group-size": Argument(_Q, _integer(1)),
    "x-initial-cluster-size": Argument(_S, _integer(1)),
    "x-max-in-memory-length": Argument(_Q, _integer()),
    "x-max-in-memory-bytes": Argument(_Q, _integer()),
    "x-consumer-timeout": Argument(_C | _Q | _S, _integer()),
    "x-max-age": Argument(_S, _age),
    SEGMENT_SIZE: Argument(_S, _integer()),
    # Leveret's, for all queues but streams (address-settings page 6.6; a deviation listed in docs/DEVIATIONS.md).
    "x-ring-size": Argument(_C | _Q, _limit),
    "x-redelivery-delay": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-redelivery-delay-multiplier": Argument(_C | _Q, _number(0, 1e308, above=True)),
    "x-redelivery-collision-avoidance-factor": Argument(_C | _Q, _number(0, 1)),
    "x-max-redelivery-delay": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-max-delivery-attempts": Argument(_C | _Q, _limit),
    "x-max-deliveries": Argument(_C | _Q, _limit),
    "x-dead-letter-address": Argument(_C | _Q, _string),
    "x-expiry-address": Argument(_C | _Q, _string),
    "x-address": Argument(_C | _Q, _string, compared=False),  # clients of a configured queue do not know it
    "x-last-value": Argument(_C | _Q, _boolean),
    "x-last-value-key": Argument(_C | _Q, _string),
    "x-non-destructive": Argument(_C | _Q, _boolean),
    "x-max-consumers": Argument(_C | _Q, _limit),
    "x-purge-on-no-consumers": Argument(_C | _Q, _boolean),
    "x-consumers-before-dispatch": Argument(_C | _Q, _integer(0, 2**31 - 1)),
    "x-delay-before-dispatch": Argument(_C | _Q, _or_minus_one),
    "x-group-buckets": Argument(_C | _Q, _or_minus_one),
    "x-group-rebalance": Argument(_C | _Q, _boolean),
    "x-group-rebalance-pause-dispatch": Argument(_C | _Q, _boolean),
    "x-group-first-key": Argument(_C | _Q, _string),
    SELECTOR: Argument(_C | _Q, _selector),
    # Those of RabbitMQ 4.3, where only quorum queues have them, and LavinMQ's multiplier.
    "x-delayed-retry-type": Argument(
        _C | _Q,
        _one_of(("disabled", "failed", "returned", "all"), lambda _: Reason("atom", "invalid_delayed_retry_type")),
    ),
    "x-delayed-retry-min": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-delayed-retry-max": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-delayed-retry-multiplier": Argument(_C | _Q, _number(0, 1e308, above=True)),
}
# A type that a package adds checks its own arguments (`QueueType.read`), and may share some with other types.
for _added in ADDED_TYPES.values():
    for _name in (*_added.rows, *_added.shared_arguments):  # a redeclaration compares rows first
        _argument = ARGUMENTS.get(_name) or Argument(frozenset(), _anything)
        ARGUMENTS[_name] = replace(_argument, types=_argument.types | {_added.name})

#: The arguments that a redeclaration compares first, in this order. The others follow in the order of the table.
_COMPARED_FIRST: dict[str, tuple[str, ...]] = {
    CLASSIC: (),
    QUORUM: (
        *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-expires"),
        *("x-max-length", "x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-overflow"),
        *("x-single-active-consumer", "x-queue-type", "x-quorum-initial-group-size", "x-delivery-limit"),
        *("x-message-ttl", "x-queue-leader-locator"),
    ),
    STREAM: (
        *("x-max-length-bytes", "x-queue-type", "x-max-age", "x-stream-max-segment-size-bytes"),
        *("x-initial-cluster-size", "x-queue-leader-locator"),
    ),
}
_COMPARED: dict[str, tuple[str, ...]] = {
    queue_type: tuple(
        key
        for key in dict.fromkeys((*first, *ARGUMENTS))
        if ARGUMENTS[key].compared and queue_type in ARGUMENTS[key].types
    )
    for queue_type, first in {**dict.fromkeys(ADDED_TYPES, ()), **_COMPARED_FIRST}.items()
}


def queue_type_of(arguments: FieldTable) -> str:
    """The queue type; classic if the argument is missing or invalid."""
    field = arguments.get("x-queue-type")
    if field is None or field.tag != "S" or field.text not in QUEUE_TYPES:
        return CLASSIC
    return field.text


def with_default_type(
    arguments: FieldTable, default: str | None, *, durable: bool, exclusive: bool, auto_delete: bool
) -> FieldTable:
    """The arguments of a declaration, with the virtual host's default type if they have no type.

    Transient, exclusive and auto-delete queues are classic by default.
    """
    if default is None or "x-queue-type" in arguments:
        return arguments
    if default != CLASSIC and (not durable or exclusive or auto_delete):
        return arguments
    return {"x-queue-type": Field("S", default.encode()), **arguments}


def check_queue_arguments(arguments: FieldTable, *, name: str, vhost: str) -> None:
    """Refuse invalid values of known arguments.

    Raises: InvalidDeadLetterExchange, UnsupportedArgument, InvalidArgument, SegmentSizeTooLarge.
    """
    if not arguments:  # true for most queues; saves 6 us
        return
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange is not None and exchange.tag != "S":
        raise InvalidDeadLetterExchange(
            type=exchange.type_name, key="x-dead-letter-exchange", kind="queue", name=name, vhost=vhost
        )
    queue_type = queue_type_of(arguments)
    base_type, added = QUEUE_TYPES[queue_type], ADDED_TYPES.get(queue_type)
    # First the type, then the arguments of this type, then those of other types in the order of the declaration.
    for key, argument in (("x-queue-type", ARGUMENTS["x-queue-type"]), *ARGUMENTS.items()):
        field = arguments.get(key)
        if field is None or base_type not in argument.types or (added is not None and key in added.rows):
            continue
        reason = argument.check(field)
        if reason is None and key == "x-dead-letter-routing-key" and exchange is None:
            reason = Reason("atom", "routing_key_but_no_dlx_defined")
        if reason is not None:
            raise InvalidArgument(key=key, name=name, vhost=vhost, reason=reason)
    for key in arguments:
        if key.startswith(NOTE_PREFIX):
            why = f"names that begin with '{NOTE_PREFIX}' are reserved"
            raise InvalidArgument(key=key, name=name, vhost=vhost, reason=Reason("text", why))
        if key in ARGUMENTS and base_type not in ARGUMENTS[key].types:
            refusal = next((other.refusals[key] for other in ADDED_TYPES.values() if key in other.refusals), None)
            if refusal is not None:
                raise InvalidArgument(key=key, name=name, vhost=vhost, reason=Reason("text", refusal))
            raise UnsupportedArgument(key=key, name=name, vhost=vhost, queue_type=queue_type)
    segment_size = arguments.get(SEGMENT_SIZE)
    if segment_size is not None and number_of(segment_size) > SEGMENT_OCTETS_MAX:
        raise SegmentSizeTooLarge(key=SEGMENT_SIZE)
    faults = () if added is None else added.read(name, plain_arguments(arguments))[1]
    if faults:
        raise InvalidArgument(key=faults[0].key, name=name, vhost=vhost, reason=Reason("text", faults[0].problem))


def unknown_arguments(names: Iterable[str], known: Collection[str] | None = None) -> dict[str, str]:
    """The unknown arguments `x-..`, each with the most similar known one, or an empty text.

    `known`: the known arguments; None: those of queues of any type.
    """
    known = ARGUMENTS if known is None else known
    unknown = [name for name in names if name.startswith("x-") and name not in known]
    if not unknown:
        return {}
    from difflib import get_close_matches  # loaded only for unknown arguments

    return {name: next(iter(get_close_matches(name[:100], known, 1, 0.8)), "") for name in unknown}


def plain_arguments(arguments: FieldTable) -> dict[str, object]:
    """A queue's arguments as values for settings: int, bool, float, str. Tables and arrays are not converted."""
    return {key: _plain(field) for key, field in arguments.items()}


def _plain(field: Field) -> object:
    return field.text if isinstance(field.value, bytes) else number_of(field) if field.tag in "fdD" else field.value


def check_same_fields(kind: str, current: object, fields: Mapping[str, object], *, name: str, vhost: str) -> None:
    """Refuse a redeclaration with a different field. Raises: InequivalentField, for the first one."""
    for field, received in fields.items():
        present = getattr(current, field)
        if received != present:
            raise InequivalentField(
                field=field, kind=kind, name=name, vhost=vhost, received=_atom(received), current=_atom(present)
            )


def _atom(value: object) -> str:
    """A flag or the type of an exchange, as RabbitMQ writes it: quoted if it is not a plain word, such as x-random."""
    word = str(value).lower() if isinstance(value, bool) else str(value)
    return word if word.isidentifier() else f"'{word}'"


def check_same_arguments(current: FieldTable, received: FieldTable, *, name: str, vhost: str) -> None:
    """Refuse a redeclaration with a different argument of the queue's type. Raises: InequivalentArgument."""
    for key in _COMPARED[QUEUE_TYPES[queue_type_of(current)]]:
        _check_same(key, current.get(key), received.get(key), "queue", name, vhost)


def check_same_alternate(current: FieldTable, received: FieldTable, *, name: str, vhost: str) -> None:
    """Refuse an exchange's redeclaration with a different alternate exchange; other arguments are not compared.

    Raises: InequivalentArgument.
    """
    key = "alternate-exchange"
    _check_same(key, current.get(key), received.get(key), "exchange", name, vhost)


def _check_same(key: str, old: Field | None, new: Field | None, kind: str, name: str, vhost: str) -> None:
    if key == "x-queue-type" and (old is None or new is None):
        # A declaration without a type is one of a classic queue.
        old, new = (None if field == _EXPLICIT_CLASSIC else field for field in (old, new))
    if (old is None) != (new is None) or (old is not None and new is not None and _differ(old, new)):
        raise InequivalentArgument(key=key, kind=kind, name=name, vhost=vhost, received=new, current=old)


_EXPLICIT_CLASSIC = Field("S", CLASSIC.encode())
#: Tags whose values are compared: integers of any width and timestamps; floats; strings and byte arrays.
_ALIKE = dict.fromkeys((*INTEGER_TAGS, "T"), "integer") | {"f": "float", "d": "float", "S": "string", "x": "string"}


def _differ(old: Field, new: Field) -> bool:
    if _ALIKE.get(old.tag, old.tag) != _ALIKE.get(new.tag, new.tag):
        return True
    return old.value != new.value if old.tag in _ALIKE else old.comparable() != new.comparable()


_LEADING_DIGITS = re.compile(rb"[+-]?[0-9]+")


def check_expiration(value: bytes | None) -> None:
    """Refuse an expiration property that is not a decimal number of milliseconds from 0 to ten years.

    Raises: InvalidExpiration. Source: behaviour page 2.10.
    """
    if value is None or (value.isdigit() and len(value) < 12):
        return
    text = value.decode("utf-8", "replace")
    digits = _LEADING_DIGITS.match(value)
    if digits is None:
        raise InvalidExpiration(value=text, reason="no_integer")
    if rest := value[digits.end() :]:
        raise InvalidExpiration(value=text, reason=f'{{leftover_string,"{rest.decode("utf-8", "replace")}"}}')
    number = int(value)
    if number < 0:
        raise InvalidExpiration(value=text, reason=f"{{value_negative,{number}}}")
    if number > TEN_YEARS_MS:
        raise InvalidExpiration(value=text, reason=f"{{value_too_large,{number}}}")


def check_consumer_arguments(arguments: FieldTable, *, name: str, vhost: str, queue_type: str) -> None:
    """Check the values of those that this kind of queue has, then, in their order, that there are no others.

    Raises: InvalidArgument, UnsupportedArgument.
    """
    added = ADDED_TYPES.get(queue_type)
    for key, argument in _CONSUMER_ARGUMENTS.items():
        field = arguments.get(key)
        if field is None or not _has_consumer_argument(key, argument, queue_type):
            continue
        if added is not None and key in added.consumer_arguments:  # this kind of queue checks it
            continue
        reason = argument.check(field)
        if reason is not None:
            raise InvalidArgument(key=key, name=name, vhost=vhost, reason=reason)
    for key in arguments:
        known = _CONSUMER_ARGUMENTS.get(key)
        if known is not None and not _has_consumer_argument(key, known, queue_type):
            raise UnsupportedArgument(key=key, name=name, vhost=vhost, queue_type=queue_type)


def _has_consumer_argument(key: str, argument: Argument, queue_type: str) -> bool:
    added = ADDED_TYPES.get(queue_type)
    if added is None:
        return queue_type in argument.types
    return key != OFFSET or OFFSET in added.consumer_arguments


def _offset_fault(field: Field) -> Reason | None:
    if start_of(field) is not None:
        return None
    if isinstance(field.value, bytes):
        shown = f'{{{field.type_name},<<"{field.text}">>}}'
    else:
        is_plain = isinstance(field.value, bool | int | float)
        shown = f"{{{field.type_name},{str(field.value).lower()}}}" if is_plain else field.type_name
    return Reason("tuple", "invalid_stream_offset_arg", shown)


#: The consumer arguments whose values are checked, in the order in which RabbitMQ checks them.
_CONSUMER_ARGUMENTS = {
    "x-priority": Argument(_C | _Q, _any_integer),
    "x-cancel-on-ha-failover": Argument(_C, _boolean),
    "x-consumer-timeout": Argument(_C | _Q | _S, _integer()),
    OFFSET: Argument(_S, _offset_fault),
}


_TIME_SPAN = re.compile(rb"([0-9]{1,12})([YMDhms])")
_UNIT_MS = {b"Y": 365 * 86_400_000, b"M": 30 * 86_400_000, b"D": 86_400_000, b"h": 3_600_000, b"m": 60_000, b"s": 1000}
#: Kinds of `Start`.
FIRST, LAST, NEXT, AT_OFFSET, AT_TIME, AGO = "first", "last", "next", "offset", "time", "ago"


class Start(NamedTuple):
    """Where a consumer of a stream starts. `value`: offset (AT_OFFSET), wall time in ms (AT_TIME), age in ms (AGO)."""

    kind: str
    value: int = 0


def start_of(field: Field | None) -> Start | None:
    """Where a consumer with this x-stream-offset starts; without it: at the end. Returns None if it is invalid."""
    if field is None:
        return Start(NEXT)
    value = field.value
    if field.tag in ("S", "x"):
        assert isinstance(value, bytes)
        if value in (b"first", b"last", b"next"):
            return Start(value.decode())
        ago = age_ms(value) if field.tag == "S" else None
        return Start(AGO, ago) if ago else None
    if field.tag == "T":
        assert isinstance(value, int)
        return Start(AT_TIME, value * 1000)
    if field.tag in INTEGER_TAGS:
        assert isinstance(value, int)
        return Start(AT_OFFSET, value)
    return None


def age_ms(text: bytes) -> int | None:
    """Parse a time span such as 7D or 5m into ms; None: invalid. M is a month of 30 days, m a minute."""
    match = _TIME_SPAN.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_MS[match[2]]
