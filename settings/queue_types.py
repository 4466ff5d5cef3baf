"""The types of queues: the values of `x-queue-type`, and what settings ask of a type that has arguments of its own.

Classic queues, quorum queues and streams share the arguments of `rows/queue_attributes.py`. A package that adds a kind
of queue (`engine/queues/kinds.py`, `register`) adds its type to `QUEUE_TYPES`: its queues use the arguments and
policies of another type, or those of a `QueueType`, which the package registers here. What the package adds to the
loading of files is in `files/file_hooks.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .faults import ArgumentFault
from .frozen import frozen
from .rows.row import Row

if TYPE_CHECKING:
    from .declared.declarations import QueueDeclaration

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"

#: Type -> the type whose arguments and policies its queues use.
QUEUE_TYPES: dict[str, str] = {own: own for own in (CLASSIC, QUORUM, STREAM)}


@frozen
class QueueType:
    """A type of queues with arguments of its own.

    `rows`: a row for each of them; `shared`: arguments of other types that it has, too; `consumer_arguments`: those of
    its consumers alone. `live`: own arguments that can change on an existing queue. `attributes`: each attribute of a
    configured queue -> argument; `instead`: attributes of other queues -> the one that such a queue has instead.

    `apply_to`: the word of policies for such queues alone. `policy_keys`: keys of policies that it shares with other
    types; `policy_arguments`: own arguments that policies may set, too. `alone`: own arguments -> why queues of other
    types cannot have them, in words for clients.

    `read(name, arguments)`: the settings of a queue, with an attribute for each row, and the faults; an argument with a
    fault has its default. `plain(arguments)`: arguments of a configuration in the form of a client's. `why_not(
    argument, value)`: what a TOML file should have in place of this value; empty: it is right. `repeated(problem)`: the
    fault of a name that two such queues have.

    `default_rules`: attribute -> the rule of its default, where that depends on others. `follows`: argument -> the
    argument that its default depends on. `unused`: beginnings of the address settings that such queues do not use.
    `captures(queue, topic)`: the rule by which a declared queue takes messages of a topic; None: it does not.
    """

    name: str
    rows: Mapping[str, Row]
    read: Callable[[str, Mapping[str, object]], tuple[Any, Sequence[ArgumentFault]]]
    shared: frozenset[str] = frozenset()
    consumer_arguments: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    attributes: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    apply_to: str = ""
    policy_keys: frozenset[str] = frozenset()
    policy_arguments: frozenset[str] = frozenset()
    alone: Mapping[str, str] = field(default_factory=dict)
    plain: Callable[[Mapping[str, object]], dict[str, object]] = dict
    why_not: Callable[[str, object], str] = lambda argument, value: ""
    repeated: Callable[[str], str] = str
    default_rules: Mapping[str, str] = field(default_factory=dict)
    follows: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    captures: "Callable[[QueueDeclaration, str], str | None]" = lambda queue, topic: None


#: Types with arguments of their own, by name.
OWN_TYPES: dict[str, QueueType] = {}
#: Type -> the package of `settings/`, and of `engine/`, that adds it. Without the package the type is unknown.
PACKAGES = {"amps": "leases"}


def register_type(own: QueueType) -> None:
    """Add a type with arguments of its own."""
    OWN_TYPES[own.name] = own
    QUEUE_TYPES[own.name] = own.name


def own_type(arguments: Mapping[str, object]) -> QueueType | None:
    """The type of a queue with these plain arguments, if it has arguments of its own."""
    name = arguments.get("x-queue-type")
    return OWN_TYPES.get(name) if isinstance(name, str) else None


def import_from_packages(module: str) -> None:
    """Import this module of each installed package in `PACKAGES`: it registers what the package adds."""
    for package in PACKAGES.values():
        if find_spec(f"{__package__}.{package}") is not None:
            import_module(f"{__package__}.{package}.{module}")


import_from_packages("queue_type")
