"""The types of queues: the values of `x-queue-type`, and what settings ask of a type that has its own arguments.

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
QUEUE_TYPES: dict[str, str] = {name: name for name in (CLASSIC, QUORUM, STREAM)}


@frozen
class QueueType:
    """A type of queues with its own arguments."""

    name: str
    #: The row of each argument that only this type has.
    rows: Mapping[str, Row]
    #: (name of the queue, its arguments) -> its settings, with an attribute for each row, and the faults; an argument
    #: with a fault has its default.
    read: Callable[[str, Mapping[str, object]], tuple[Any, Sequence[ArgumentFault]]]
    #: Arguments of other types that it has, too.
    shared_arguments: frozenset[str] = frozenset()
    #: Arguments that only consumers of such queues have.
    consumer_arguments: frozenset[str] = frozenset()
    #: Own arguments that can change on an existing queue.
    live_arguments: frozenset[str] = frozenset()
    #: Own arguments -> why queues of other types cannot have them, in words for clients.
    refusals: Mapping[str, str] = field(default_factory=dict)

    # -- configured queues
    #: Attribute of a configured queue -> argument.
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: Attribute of other queues -> the attribute that such a queue has in its place.
    replacements: Mapping[str, str] = field(default_factory=dict)
    #: Arguments of a file -> the same with values as a client would send them.
    plain_arguments: Callable[[Mapping[str, object]], dict[str, object]] = dict
    #: (argument, value) -> what a TOML file should have in place of the value; empty: the value is right.
    expected_in_toml: Callable[[str, object], str] = lambda argument, value: ""
    #: The text that two such queues have one name -> the text of the fault.
    duplicate_fault: Callable[[str], str] = str

    # -- policies
    #: The value of apply-to for such queues alone.
    apply_to: str = ""
    #: Keys of policies that it shares with other types.
    policy_keys: frozenset[str] = frozenset()
    #: Own arguments that policies may set, too.
    policy_arguments: frozenset[str] = frozenset()

    # -- reports
    #: Attribute -> the text for its default, where that depends on other settings.
    default_rules: Mapping[str, str] = field(default_factory=dict)
    #: Prefixes of the address settings that such queues do not use.
    unused_settings: tuple[str, ...] = ()
    #: (queue, topic) -> the rule by which the queue takes messages of the topic; None: it does not.
    captures: "Callable[[QueueDeclaration, str], str | None]" = lambda queue, topic: None


#: The types that packages add, by name. They have their own arguments.
ADDED_TYPES: dict[str, QueueType] = {}
#: Type -> the package of `settings/`, and of `engine/`, that adds it. Without the package the type is unknown.
PACKAGES = {"amps": "leases"}


def register_type(queue_type: QueueType) -> None:
    """Add a type."""
    ADDED_TYPES[queue_type.name] = queue_type
    QUEUE_TYPES[queue_type.name] = queue_type.name


def added_type(arguments: Mapping[str, object]) -> QueueType | None:
    """The type of a queue with these plain arguments, if a package adds it."""
    name = arguments.get("x-queue-type")
    return ADDED_TYPES.get(name) if isinstance(name, str) else None


def import_from_packages(module: str) -> None:
    """Import this module of each installed package in `PACKAGES`: it registers what the package adds."""
    for package in PACKAGES.values():
        if find_spec(f"{__package__}.{package}") is not None:
            import_module(f"{__package__}.{package}.{module}")


import_from_packages("queue_type")
