"""The arguments of a consumer of a leased queue. Source: queues page A.2, A.4, A.7; docs/leases.md (renewal)."""

from dataclasses import dataclass

from ..errors import InvalidArgument
from ..messages.field_table import INTEGER_TAGS, FieldTable
from ..rules.arguments import REPLACE, Reason

BACKLOG, TOP_N, BROWSE, RENEWAL = "x-max-backlog", "x-top-n", "x-browse", "x-lease-auto-renew"


@dataclass(slots=True, frozen=True)
class ConsumerRequest:
    """What the arguments of one consumer ask for.

    `backlog`: maximum of leases; 0: only barriers; None: its prefetch decides. `top_n`: messages to show; None: all.
    `browses`: it gets copies of messages, without leases. `renews`: its leases are renewed while its connection is
    alive.
    """

    backlog: int | None
    top_n: int | None
    browses: bool
    renews: bool


def request_of(arguments: FieldTable, *, name: str, vhost: str) -> ConsumerRequest:
    """Read the arguments, except those of replays. Raises: InvalidArgument."""
    where = {"name": name, "vhost": vhost}
    _boolean(arguments, REPLACE, where)  # only checked here; `clients/subscriptions.py` acts on it
    browses = _boolean(arguments, BROWSE, where)
    top_n = _natural(arguments, TOP_N, where)
    if top_n is not None and not browses:
        raise InvalidArgument(key=TOP_N, **where, reason=Reason("text", f"expected {BROWSE} beside it"))
    return ConsumerRequest(_natural(arguments, BACKLOG, where), top_n, browses, _boolean(arguments, RENEWAL, where))


def _boolean(arguments: FieldTable, key: str, where: dict[str, str]) -> bool:
    field = arguments.get(key)
    if field is None:
        return False
    if field.tag != "t":
        raise InvalidArgument(key=key, **where, reason=Reason("unacceptable", field.type_name))
    return bool(field.value)


def _natural(arguments: FieldTable, key: str, where: dict[str, str]) -> int | None:
    """Read an argument that is an integer from 0 on; None: it is missing."""
    field = arguments.get(key)
    if field is None:
        return None
    if field.tag not in INTEGER_TAGS or not isinstance(field.value, int):
        raise InvalidArgument(key=key, **where, reason=Reason("type", field.type_name))
    if field.value < 0:
        raise InvalidArgument(key=key, **where, reason=Reason("tuple", "value_negative", field.value))
    return field.value
