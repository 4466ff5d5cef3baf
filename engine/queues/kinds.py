"""The kinds of queue and the parts of each. Source: behaviour page 3.6, 3.7, 3.10; address-settings page 3.4."""

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

from ...settings.queue_types import PACKAGES, QUEUE_TYPES
from ..exchanges.exchange import Exchange
from ..messages.content import REPLY_TO_ME
from ..messages.levels import ONE_LEVEL
from ..rules.arguments import CLASSIC as CLASSIC_TYPE
from ..rules.arguments import QUORUM as QUORUM_TYPE
from ..rules.arguments import STREAM as STREAM_TYPE
from ..rules.queue_rules import NO_RULES, QueueRules
from ..stores.last_value_store import LastValueStore, header_value
from ..stores.non_destructive_store import NonDestructiveStore
from ..stores.stream_store import StreamStore
from ..stores.tailed_store import TailedStore
from . import stream
from .bounds import bounds_of, forecast
from .classic import DISPATCH, INTAKE, SETTLEMENT
from .non_destructive import NonDestructiveDispatch, NonDestructiveIntake, NonDestructiveSettlement, ReadPositions
from .parts import Kind, Parts, Refusals
from .queue import Queue
from .stream import LogEnd, StreamDispatch, StreamIntake, StreamSettlement, notes_of

#: Direct replies: the pseudo-queue that clients consume from and name in reply_to; the prefix of reply addresses.
REPLY_TO = REPLY_TO_ME.decode()
REPLY_PREFIX = REPLY_TO + "."


def _classic_parts(queue: Queue) -> Parts:
    rules = queue.rules
    levels = rules.levels or ONE_LEVEL
    if rules.last_value_key is None:
        queue.use_pageable(TailedStore.of_levels(queue, levels, counts_octets=rules.max_length_bytes is not None))
    else:
        queue.use_consumable(LastValueStore(queue, levels, header_value(rules.last_value_key)))
    return Parts(INTAKE, DISPATCH, SETTLEMENT)


def _non_destructive_parts(queue: Queue) -> Parts:
    key = queue.rules.last_value_key
    log, positions = NonDestructiveStore(queue, None if key is None else header_value(key)), ReadPositions()
    queue.use_evictable(log)
    return Parts(
        NonDestructiveIntake(positions, log),
        NonDestructiveDispatch(positions, log),
        NonDestructiveSettlement(positions, log),
    )


def _stream_parts(queue: Queue) -> Parts:
    log, positions = StreamStore(queue), ReadPositions()
    queue.use_store(log)
    end = LogEnd(log)
    return Parts(StreamIntake(queue, log, end), StreamDispatch(positions, log, end), StreamSettlement())


CLASSIC = Kind("classic", make_parts=_classic_parts, bounds=bounds_of, forecast=forecast)
QUORUM = replace(
    CLASSIC,
    name="quorum",
    refusals=Refusals(shared_prefetch=True, get_beside_active_consumer=True, conditional_delete=True),
    ignores_exclusive=True,
)
NON_DESTRUCTIVE = replace(
    CLASSIC,
    name="non-destructive",
    make_parts=_non_destructive_parts,
    keeps_acked=True,
    restores_delivery_counts=False,
    move_refusal="a non-destructive queue keeps its messages: purge it, or let them expire",
)
NON_DESTRUCTIVE_KINDS = {
    CLASSIC_TYPE: NON_DESTRUCTIVE,
    QUORUM_TYPE: replace(NON_DESTRUCTIVE, refusals=QUORUM.refusals, ignores_exclusive=True),
}
STREAM = Kind(
    "stream",
    make_parts=_stream_parts,
    bounds=lambda queue: (),
    forecast=stream.forecast,
    notes=notes_of,
    make_rules=lambda request: NO_RULES,
    refusals=Refusals(no_prefetch=True, no_ack=True, get=True, reject=True, purge=True),
    move_refusal="a stream keeps its messages: publish them again, or let it expire them",
    keeps_acked=True,
    restores_delivery_counts=False,
    is_limited=False,
    follows_settings=False,
    ignores_exclusive=True,
)
#: The queue of each consumer of direct replies. It lives as long as its consumer and is in no list of queues. Replies
#: go through a queue so that they have the order, flow control and counters of other messages.
REPLY = replace(CLASSIC, name="reply", bounds=lambda queue: (), is_limited=False, goes_with_consumers=True)

#: x-queue-type -> kind. Packages `register` further kinds.
KINDS: dict[str, Kind] = {CLASSIC_TYPE: CLASSIC, QUORUM_TYPE: QUORUM, STREAM_TYPE: STREAM}
#: x-queue-type -> a package whose module `kind` registers its kind. It is imported for the first such queue, because it
#: costs 30 ms and 2 MiB. Without the package the type is unknown.
OPTIONAL_KINDS = {queue_type: f"leveret.engine.{package}" for queue_type, package in PACKAGES.items()}
for _type, _package in list(OPTIONAL_KINDS.items()):
    if find_spec(_package) is None:
        del OPTIONAL_KINDS[_type]
        QUEUE_TYPES.pop(_type, None)


def register(queue_type: str, kind: Kind) -> None:
    """Add a kind of queue. Unless `QUEUE_TYPES` says otherwise, it takes arguments and policies of classic queues."""
    KINDS[queue_type] = kind
    QUEUE_TYPES.setdefault(queue_type, CLASSIC_TYPE)


def kind_of_type(queue_type: str) -> Kind:
    """The kind of queues of a type; rules may change it (`kind_by_rules`)."""
    if queue_type not in KINDS:
        import_module(f"{OPTIONAL_KINDS[queue_type]}.kind")
    return KINDS[queue_type]


def kind_by_rules(queue_type: str, kind: Kind, rules: QueueRules) -> Kind:
    """The kind of a queue with these rules. `kind`: the kind of its type."""
    return NON_DESTRUCTIVE_KINDS.get(queue_type, kind) if rules.non_destructive else kind


def is_reply_address(exchange: Exchange, routing_key: str) -> bool:
    """Whether messages go to a direct-reply consumer. Routes to them are not remembered."""
    return not exchange.name and routing_key.startswith(REPLY_PREFIX)
