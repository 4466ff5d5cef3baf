"""Queue and consumer arguments: which are known, what values they take, when two declarations agree.

One row an argument, in the order in which RabbitMQ 3.10 looks at them: of several faults it tells the first. Reasons
are facts; their wording is the frontend's.
Source: behaviour page 2.4.1, 3.1.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from math import isfinite

from ...settings.addresses.queue_arguments import selector_text
from ...settings.leases import AMPS as LEASED
from ...settings.leases import BY_ARGUMENT, LeasedFault, leased_settings
from ...settings.queue_types import QUEUE_TYPES
from ...settings.rows.queue_attributes import SELECTOR
from ..errors import (
    InequivalentArgument,
    InequivalentField,
    InvalidArgument,
    InvalidDeadLetterExchange,
    InvalidExpiration,
    UnsupportedArgument,
)
from ..messages.content import OFFSET
from ..messages.field_table import INTEGER_TAGS, NUMBER_TAGS, Field, FieldTable, number_of
from .stream_offset import start_of

TEN_YEARS_MS = 315_360_000_000
CLASSIC, QUORUM, STREAM, AMPS = "classic", "quorum", "stream", LEASED
#: Of a consumer: which messages it gets (see consumer_filter.py).
CONSUMER_FILTERS = ("x-filter", "x-selector")
#: Argument of a consumer that takes the place of one with its tag, on a leased queue.
REPLACE = "x-replace"
#: What consumers may ask for; some of it of some queues only.
CONSUMER_ARGUMENTS = frozenset(
    {
        *CONSUMER_FILTERS,
        REPLACE,
        OFFSET,
        "x-priority",
        "x-consumer-timeout",
        "x-cancel-on-ha-failover",  # of RabbitMQ's mirrored queues: there are none, so none fails over
        "x-bookmark",
        "x-rate",
        "x-rate-max-gap",
        "x-max-backlog",
        "x-top-n",
        "x-browse",
        "x-lease-auto-renew",
    }
)
EXCHANGE_ARGUMENTS = frozenset({"alternate-exchange", "x-delayed-type", "hash-header", "hash-property"})


@dataclass(slots=True, frozen=True)
class Reason:
    """Why a value is refused. `kind` is one of: type (expected an integer), unacceptable, text, tuple, atom, whole."""

    kind: str
    word: str = ""
    value: object = None


Check = Callable[[Field], Reason | None]


def _integer(low: int = 0, high: int | None = None, too_large: str = "value_too_large") -> Check:
    def check(field: Field) -> Reason | None:
        if field.tag not in INTEGER_TAGS:
            return Reason("type", field.type_name)
        value = field.value
        assert isinstance(value, int)
        if value < 0:
            return Reason("tuple", "value_negative", value)
        if value < low:
            return Reason("tuple", "value_zero", value)
        if high is not None and value > high:
            return Reason("tuple", too_large, value)
        return None

    return check


def _string(field: Field) -> Reason | None:
    return None if field.tag == "S" else Reason("unacceptable", field.type_name)


def _boolean(field: Field) -> Reason | None:
    return None if field.tag == "t" else Reason("unacceptable", field.type_name)


def _one_of(values: tuple[bytes, ...], refusal: Callable[[str], Reason]) -> Check:
    def check(field: Field) -> Reason | None:
        return _string(field) or (None if field.value in values else refusal(field.text))

    return check


def _type(field: Field) -> Reason | None:
    wrong_type = _string(field)
    if wrong_type is not None:
        return wrong_type
    return None if field.text in QUEUE_TYPES else Reason("text", f"unsupported queue type '{field.text}'")


def _version(field: Field) -> Reason | None:
    wrong_type = _integer()(field)
    if wrong_type is not None:
        return wrong_type
    return None if field.value in (1, 2) else Reason("text", f"unsupported queue version '{field.value!r}'")


_AGE = re.compile(rb"[0-9]+[YMDhms]")


def _age(field: Field) -> Reason | None:
    if field.tag != "S":
        return Reason("unacceptable", field.type_name)
    assert isinstance(field.value, bytes)
    return None if _AGE.fullmatch(field.value) else Reason("atom", "invalid_max_age")


def _limit(field: Field) -> Reason | None:
    if field.tag not in INTEGER_TAGS:
        return Reason("type", field.type_name)
    value = field.value
    assert isinstance(value, int)
    return None if value == -1 or value >= 1 else Reason("tuple", "expected_minus_one_or_positive", value)


def _or_minus_one(field: Field) -> Reason | None:
    if field.tag not in INTEGER_TAGS:
        return Reason("type", field.type_name)
    value = field.value
    assert isinstance(value, int)
    return None if -1 <= value <= TEN_YEARS_MS else Reason("tuple", "value_out_of_range", value)


def _number(low: float, high: float, *, above: bool = False) -> Check:
    """A finite number from `low` (`above`: greater than it) to `high`."""

    def check(field: Field) -> Reason | None:
        if field.tag not in NUMBER_TAGS:
            return Reason("text", f"expected number, got {field.type_name}")
        value = number_of(field)
        if isfinite(value) and low <= value <= high and not (above and value == low):
            return None
        return Reason("tuple", "value_out_of_range", value)

    return check


def _any_integer(field: Field) -> Reason | None:
    return None if field.tag in INTEGER_TAGS else Reason("type", field.type_name)


def _selector(field: Field) -> Reason | None:
    if field.tag != "S":
        return Reason("unacceptable", field.type_name)
    try:
        selector_text(field.text)
    except ValueError as error:
        return Reason("text", f"expected {error}")
    return None


def _anything(field: Field) -> Reason | None:
    return None


@dataclass(slots=True, frozen=True)
class Argument:
    """One known queue argument: the queue types that take it, its check, whether a redeclaration compares it.

    Other types take what the type takes that `QUEUE_TYPES` names for them.
    """

    types: frozenset[str]
    check: Check
    compared: bool = True


_C, _Q, _S, _L = frozenset({CLASSIC}), frozenset({QUORUM}), frozenset({STREAM}), frozenset({AMPS})

ARGUMENTS: dict[str, Argument] = {
    "x-expires": Argument(_C | _Q | _L, _integer(1, TEN_YEARS_MS)),
    "x-message-ttl": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-dead-letter-exchange": Argument(_C | _Q | _L, _anything),
    "x-dead-letter-routing-key": Argument(_C | _Q | _L, _string),
    "x-dead-letter-strategy": Argument(
        _Q, _one_of((b"at-most-once", b"at-least-once"), lambda _: Reason("atom", "invalid_dlx_strategy"))
    ),
    "x-max-length": Argument(_C | _Q, _integer()),
    "x-max-length-bytes": Argument(_C | _Q | _S, _integer()),
    "x-max-priority": Argument(_C, _integer(0, 255, "max_value_exceeded")),
    "x-overflow": Argument(
        _C | _Q,
        _one_of((b"drop-head", b"reject-publish", b"reject-publish-dlx"), lambda _: Reason("atom", "invalid_overflow")),
    ),
    "x-queue-mode": Argument(
        _C, _one_of((b"default", b"lazy"), lambda text: Reason("text", f"unsupported queue mode '{text}'"))
    ),
    "x-queue-version": Argument(_C, _version),
    "x-single-active-consumer": Argument(_C | _Q, _boolean),
    "x-queue-type": Argument(_C | _Q | _S | _L, _type),
    "x-queue-master-locator": Argument(
        _C,
        _one_of((b"min-masters", b"client-local", b"random"), lambda _: Reason("atom", "invalid_queue_locator_arg")),
    ),
    "x-queue-leader-locator": Argument(
        _Q | _S,
        _one_of(
            (b"client-local", b"balanced", b"random", b"least-leaders"),
            lambda _: Reason("atom", "invalid_queue_locator_arg"),
        ),
    ),
    "x-delivery-limit": Argument(_Q, _any_integer),
    "x-quorum-initial-group-size": Argument(_Q, _integer(1)),
    "x-initial-cluster-size": Argument(_S, _integer(1)),
    "x-max-in-memory-length": Argument(_Q, _integer()),
    "x-max-in-memory-bytes": Argument(_Q, _integer()),
    "x-consumer-timeout": Argument(_C | _Q | _S | _L, _integer()),
    "x-max-age": Argument(_S, _age),
    "x-stream-max-segment-size-bytes": Argument(_S, _integer(0, 3_000_000_000)),
    # Ours, on every queue but streams (address-settings page 6.6; a deviation listed in docs/DEVIATIONS.md).
    "x-ring-size": Argument(_C | _Q, _limit),
    "x-redelivery-delay": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-redelivery-delay-multiplier": Argument(_C | _Q, _number(0, 1e308, above=True)),
    "x-redelivery-collision-avoidance-factor": Argument(_C | _Q, _number(0, 1)),
    "x-max-redelivery-delay": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-max-delivery-attempts": Argument(_C | _Q, _limit),
    "x-max-deliveries": Argument(_C | _Q, _limit),
    "x-dead-letter-address": Argument(_C | _Q | _L, _string),
    "x-expiry-address": Argument(_C | _Q | _L, _string),
    "x-address": Argument(_C | _Q | _L, _string, compared=False),  # consumers of a configured queue need not know it
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
    # RabbitMQ 4.3's, there on quorum queues alone, and LavinMQ's multiplier.
    "x-delayed-retry-type": Argument(
        _C | _Q,
        _one_of((b"disabled", b"failed", b"returned", b"all"), lambda _: Reason("atom", "invalid_delayed_retry_type")),
    ),
    "x-delayed-retry-min": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-delayed-retry-max": Argument(_C | _Q, _integer(0, TEN_YEARS_MS)),
    "x-delayed-retry-multiplier": Argument(_C | _Q, _number(0, 1e308, above=True)),
}
# Those of leased queues, two of which others have, too, are read by `settings/leases.py` (queues page A.3).
for _name in BY_ARGUMENT:
    _shared = ARGUMENTS.get(_name)
    ARGUMENTS[_name] = Argument(_L, _anything) if _shared is None else replace(_shared, types=_shared.types | _L)

#: In which order a redeclaration is compared where it isn't that above; what is not named here comes behind.
_COMPARED_FIRST: dict[str, tuple[str, ...]] = {
    CLASSIC: (),
    AMPS: (),
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
    for queue_type, first in _COMPARED_FIRST.items()
}


def queue_type_of(arguments: FieldTable) -> str:
    """One of `QUEUE_TYPES`; classic when unsaid or unreadable."""
    field = arguments.get("x-queue-type")
    if field is None or field.tag != "S" or field.text not in QUEUE_TYPES:
        return CLASSIC
    return field.text


def with_default_type(
    arguments: FieldTable, default: str | None, *, durable: bool, exclusive: bool, auto_delete: bool
) -> FieldTable:
    """The arguments of a client's declaration in a virtual host with a default type: it is as if they had said it.

    Quorum and stream queues are durable, of nobody, and stay: others are classic whatever the default is.
    """
    if default is None or "x-queue-type" in arguments:
        return arguments
    if default != CLASSIC and (not durable or exclusive or auto_delete):
        return arguments
    return {"x-queue-type": Field("S", default.encode()), **arguments}


def check_queue_arguments(arguments: FieldTable, *, name: str, vhost: str) -> None:
    """Refuse impossible values of known arguments; unknown ones are accepted as they are.

    Raises: InvalidDeadLetterExchange, UnsupportedArgument, InvalidArgument.
    """
    if not arguments:  # as most queues: 6 us
        return
    exchange = arguments.get("x-dead-letter-exchange")
    if exchange is not None and exchange.tag != "S":
        raise InvalidDeadLetterExchange(
            type=exchange.type_name, key="x-dead-letter-exchange", kind="queue", name=name, vhost=vhost
        )
    queue_type = queue_type_of(arguments)
    takes = QUEUE_TYPES[queue_type]
    # The type, then the values of what it knows, then what only other types know, in the order in which it was sent.
    for key, argument in (("x-queue-type", ARGUMENTS["x-queue-type"]), *ARGUMENTS.items()):
        field = arguments.get(key)
        if field is None or takes not in argument.types or (queue_type == AMPS and key in BY_ARGUMENT):
            continue
        reason = argument.check(field)
        if reason is None and key == "x-dead-letter-routing-key" and exchange is None:
            reason = Reason("atom", "routing_key_but_no_dlx_defined")
        if reason is not None:
            raise InvalidArgument(key=key, name=name, vhost=vhost, reason=reason)
    for key in arguments:
        if key in ARGUMENTS and takes not in ARGUMENTS[key].types:
            raise UnsupportedArgument(key=key, name=name, vhost=vhost, queue_type=queue_type)
    if queue_type == AMPS:
        try:
            leased_settings(name, plain_arguments(arguments))
        except LeasedFault as fault:
            reason = Reason("text", str(fault))
            raise InvalidArgument(key=fault.argument, name=name, vhost=vhost, reason=reason) from None


def unknown_arguments(names: Iterable[str], known: Collection[str] | None = None) -> dict[str, str]:
    """Arguments `x-..` that nobody reads, each with the one that it looks like, or an empty text.

    `known`: what is read; if not given, what queues of any type read.
    """
    known = ARGUMENTS if known is None else known
    unknown = [name for name in names if name.startswith("x-") and name not in known]
    if not unknown:
        return {}
    from difflib import get_close_matches  # only for mistakes

    return {name: next(iter(get_close_matches(name[:100], known, 1, 0.8)), "") for name in unknown}


def plain_arguments(arguments: FieldTable) -> dict[str, object]:
    """A queue's arguments as settings read them: int, bool, float, str; tables and arrays as they are."""
    return {key: _plain(field) for key, field in arguments.items()}


def _plain(field: Field) -> object:
    return field.text if isinstance(field.value, bytes) else number_of(field) if field.tag in "fdD" else field.value


def check_same_fields(kind: str, current: object, fields: dict[str, object], *, name: str, vhost: str) -> None:
    """The first field that differs refuses a redeclaration. Raises: InequivalentField."""
    for field, received in fields.items():
        is_now = getattr(current, field)
        if received != is_now:
            raise InequivalentField(
                field=field, kind=kind, name=name, vhost=vhost, received=_word(received), current=_word(is_now)
            )


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def check_same_arguments(current: FieldTable, received: FieldTable, *, name: str, vhost: str) -> None:
    """Refuse a redeclaration whose arguments, of those that the queue's type knows, differ.

    Raises: InequivalentArgument.
    """
    for key in _COMPARED[QUEUE_TYPES[queue_type_of(current)]]:
        _check_same(key, current.get(key), received.get(key), "queue", name, vhost)


def check_same_alternate(current: FieldTable, received: FieldTable, *, name: str, vhost: str) -> None:
    """The one argument that an exchange's redeclaration compares. Raises: InequivalentArgument."""
    key = "alternate-exchange"
    _check_same(key, current.get(key), received.get(key), "exchange", name, vhost)


def _check_same(key: str, old: Field | None, new: Field | None, kind: str, name: str, vhost: str) -> None:
    if key == "x-queue-type" and (old is None or new is None):
        # An explicit classic is the same as none; beside another type it is told as it was sent.
        old, new = (None if field is not None and field.value == b"classic" else field for field in (old, new))
    if (old is None) != (new is None) or (old is not None and new is not None and _differ(old, new)):
        raise InequivalentArgument(key=key, kind=kind, name=name, vhost=vhost, received=new, current=old)


def _differ(old: Field, new: Field) -> bool:
    if old.tag in "fd" or new.tag in "fd":  # floats equal floats only, integers of any width each other
        return (old.tag in "fd") != (new.tag in "fd") or old.value != new.value
    return old.comparable() != new.comparable()


_LEADING_DIGITS = re.compile(rb"-?[0-9]+")


def check_expiration(value: bytes | None) -> None:
    """Refuse an expiration property that is no decimal number of milliseconds from 0 to ten years.

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
    """Raises: InvalidArgument, UnsupportedArgument."""
    priority = arguments.get("x-priority")
    if priority is not None and priority.tag not in INTEGER_TAGS:
        raise InvalidArgument(key="x-priority", name=name, vhost=vhost, reason=Reason("type", priority.type_name))
    timeout = arguments.get("x-consumer-timeout")
    reason = None if timeout is None else _integer()(timeout)
    if reason is not None:
        raise InvalidArgument(key="x-consumer-timeout", name=name, vhost=vhost, reason=reason)
    offset = arguments.get(OFFSET)
    if offset is None or queue_type == AMPS:  # there it replays, beside other arguments
        return
    if queue_type != STREAM:
        raise UnsupportedArgument(key=OFFSET, name=name, vhost=vhost, queue_type=queue_type)
    if start_of(offset) is None:
        text = f'<<"{offset.text}">>' if isinstance(offset.value, bytes) else str(offset.value).lower()
        bad = Reason("tuple", "invalid_stream_offset_arg", f"{{{offset.type_name},{text}}}")
        raise InvalidArgument(key=OFFSET, name=name, vhost=vhost, reason=bad)
