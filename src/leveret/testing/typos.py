"""Typing errors of tests are errors, with the nearest name: a word that means nothing must not mean "anything"."""

from collections.abc import Collection, Iterable

from ..engine import EventKind
from ..settings.faults import nearest
from ..settings.lint.spelling import near
from ..settings.printable import printable

#: How time passes.
CLOCKS = ("real", "virtual")
#: What a publisher may be held for: see `BlockedSnapshot`.
LIMIT_NAMES = (
    "memory",
    "store",
    "temp",
    "max-size-bytes",
    "max-size-messages",
    "max-size-bytes-reject-threshold",
    "global-max-size",
    "global-max-messages",
)
#: How a lease may end: see `LeaseEndedEvent`.
LEASE_ENDS = ("deadline", "unsubscribed", "taken_over", "lifetime", "nacked", "rejected", "recovered", "closed", "lost")
#: The kinds of events, as `history` takes them.
KINDS = tuple(kind.value for kind in EventKind)


def check_word(what: str, word: object, known: Collection[str], error: type[Exception] = ValueError) -> None:
    """That a word is one of a closed list. Raises: `error`, with the nearest of them and all of them."""
    if word not in known:
        hint = nearest(word, known) if isinstance(word, str) else ""
        raise error(f"{what}: {word!r} is not right{hint}, expected one of {', '.join(map(repr, known))}")


def check_kinds(kinds: Iterable[str]) -> None:
    """Kinds of events. Raises: ValueError."""
    for kind in kinds:
        check_word("history", kind, KINDS)


def check_limit(limit: str | None) -> None:
    """Which limit holds a publisher. Raises: ValueError."""
    if limit is not None:
        check_word("limit", limit, LIMIT_NAMES)


def check_lease_end(why: str | None) -> None:
    """Why a lease ended. Raises: ValueError."""
    if why is not None:
        check_word("why", why, LEASE_ENDS)


def check_chance(name: str, chance: float) -> None:
    """A probability. Raises: ValueError."""
    if not 0 <= chance <= 1:
        raise ValueError(f"{name}: {chance!r} is not right, expected a chance from 0 to 1")


def check_property(name: str, known: Collection[str], beside: Collection[str]) -> None:
    """The name of a property of basic; `beside`: other keywords that may be meant.

    Raises: TypeError, as for any keyword that a function does not have.
    """
    if name not in known:
        raise TypeError(f"unknown property {name!r}{nearest(name, [*known, *beside])}")


def missing(what: str, name: str, known: Collection[str], where: str = "") -> LookupError:
    """The error for a name that is not there: with the nearest, and all that are."""
    there = ", ".join(map(repr, known)) or "none"
    return LookupError(f"no {what} {name!r}{where}{nearest(name, known)} (there are: {there})")


def check_settings(names: Iterable[str], known: Collection[str]) -> None:
    """Settings of a framework that takes any, so that an application may have its own. Raises: TypeError."""
    for name, meant in near((name for name in names if name not in known), known).items():
        raise TypeError(f"{name}: unknown setting, did you mean {meant!r}?")


def check_attributes(owner: type, known: Collection[str]) -> None:
    """The attributes of a class that begin as the known ones do; others are its own. Raises: TypeError."""
    names = {name for one in owner.__mro__ for name in vars(one)} - set(known)
    for name, meant in near((name for name in names if name.startswith("amqp_")), known).items():
        raise TypeError(f"{owner.__name__}.{name}: unknown attribute, did you mean {meant!r}?")


def check_open_name(what: str, name: str | None, known: Collection[str]) -> None:
    """A name that may be unknown for a good reason (nothing happened there yet): only a typing error is refused.

    Raises: LookupError, when a known name looks like it.
    """
    if name is not None and name not in known and (meant := near([name], known)):
        raise LookupError(f"no {what} {printable(repr(name))}, did you mean {meant[name]!r}?")
