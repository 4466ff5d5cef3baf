"""Errors for misspelt names in tests, with the nearest name. Without them an assertion could pass for a wrong name."""

from collections.abc import Collection, Iterable

from ..engine import EventKind
from ..settings.faults import nearest
from ..settings.lint.similar_names import similar_names
from ..settings.printable import printable

#: The modes of the clock.
CLOCKS = ("real", "virtual")
#: The limits and alarms that block publishers: see `BlockedSnapshot`.
LIMIT_NAMES = (
    "memory", "store", "temp", "max-size-bytes", "max-size-messages", "max-size-bytes-reject-threshold",
    "global-max-size", "global-max-messages", "alarm", "disk", "replication",
)  # fmt: skip
#: The ends of leases: see `LeaseEndedEvent`.
LEASE_ENDS = ("deadline", "unsubscribed", "taken_over", "lifetime", "nacked", "rejected", "recovered", "closed", "lost")
#: The kinds of events, as `history` takes them.
KINDS = tuple(kind.value for kind in EventKind)


def check_word(what: str, word: object, known: Collection[str], error: type[Exception] = ValueError) -> None:
    """Check that a word is one of a closed list. Raises: `error`, with the nearest word and all words."""
    if word not in known:
        hint = nearest(word, known) if isinstance(word, str) else ""
        raise error(f"{what}: {word!r} is invalid{hint}, expected one of {', '.join(map(repr, known))}")


def check_property(name: str, known: Collection[str], beside: Collection[str]) -> None:
    """Check the name of a property of basic; `beside`: other valid keywords.

    Raises: TypeError, as for any unknown keyword of a function.
    """
    if name not in known:
        raise TypeError(f"unknown property {name!r}{nearest(name, [*known, *beside])}")


def missing(what: str, name: str, known: Collection[str], where: str = "") -> LookupError:
    """The error for a name that does not exist, with the nearest name and all existing names."""
    listed = ", ".join(map(repr, known)) or "none"
    return LookupError(f"no {what} {name!r}{where}{nearest(name, known)} (there are: {listed})")


def check_settings(names: Iterable[str], known: Collection[str]) -> None:
    """Check settings of a framework that accepts any name. Raises: TypeError for one that is similar to a known one."""
    for name, meant in similar_names((name for name in names if name not in known), known).items():
        raise TypeError(f"{name}: unknown setting, did you mean {meant!r}?")


def check_attributes(owner: type, known: Collection[str]) -> None:
    """Check the attributes `amqp_...` of a class. Raises: TypeError for one that is similar to a known one."""
    names = {name for one in owner.__mro__ for name in vars(one)} - set(known)
    for name, meant in similar_names((name for name in names if name.startswith("amqp_")), known).items():
        raise TypeError(f"{owner.__name__}.{name}: unknown attribute, did you mean {meant!r}?")


def check_open_name(what: str, name: str | None, known: Collection[str]) -> None:
    """Check a name that may be unknown because it is not used yet.

    Raises: LookupError: it is similar to a known name.
    """
    if name is not None and name not in known and (meant := similar_names([name], known)):
        raise LookupError(f"no {what} {printable(repr(name))}, did you mean {meant[name]!r}?")
