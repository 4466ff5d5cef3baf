"""Names that a configuration refers to but does not declare, although it declares a name of almost the same spelling.

An undeclared name is not a fault: applications may declare it while the broker runs. Only a near miss gives a warning.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..addresses.entries import Entry
from ..addresses.matching import WILDCARD, Wildcards
from ..declared.configuration import Configuration
from ..declared.declarations import Divert, ExchangeDeclaration, QueueDeclaration
from ..faults import Origin
from ..values import shown
from .similar_names import NAMES_MAX, similar_names

EXCHANGES = ("amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic")
MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS")


@dataclass(slots=True, frozen=True)
class Reference:
    """A name that refers to a queue or an exchange. `vhost` None: in any virtual host."""

    origin: Origin
    key: str
    name: str
    vhost: str | None
    may_be_queue: bool = True
    may_be_exchange: bool = True


def misspelt_names(configuration: Configuration) -> Iterator[str]:
    """The warnings as lines, FILE:LINE: KEY: the name, and the similar one."""
    yield from _vhosts(configuration)
    yield from _logins(configuration)
    if len(configuration.queues) <= NAMES_MAX:  # beyond that `similar_names` finds nothing
        yield from _addresses(configuration)
        yield from _matches(configuration)


# -- queues and exchanges ---------------------------------------------------------------------------------------------


def _addresses(configuration: Configuration) -> Iterator[str]:
    """References to addresses, grouped by virtual host and by the kind of object."""
    groups: dict[tuple[str | None, bool, bool], list[Reference]] = {}
    for one in references(configuration):
        groups.setdefault((one.vhost, one.may_be_queue, one.may_be_exchange), []).append(one)
    for (vhost, queues, exchanges), named in groups.items():
        known = _known(configuration, vhost, with_queues=queues, with_exchanges=exchanges)
        deliberate = known | _addresses_with_settings(configuration, vhost)
        unknown = [one for one in named if one.name not in deliberate]
        meant = similar_names((one.name for one in unknown), known)
        for one in unknown:
            if one.name in meant:
                yield _line(one.origin, one.key, one.name, meant[one.name])


def references(configuration: Configuration) -> Iterator[Reference]:
    """The queues and exchanges that settings, queues, diverts, policies and users name."""
    for entry in configuration.repository.entries:
        for attribute, key in (("dead_letter_address", "dead-letter-address"), ("expiry_address", "expiry-address")):
            address = entry.settings.get(attribute)
            yield from _of_address(entry.origin_of(attribute), key, address, entry.vhost)
    for queue in configuration.queues:
        origins = {key: queue.origin_of(key) for key in queue.arguments}
        yield from _of_table(origins, queue.arguments, "x-", queue.vhost)
    for divert in configuration.diverts:
        yield from _of_address(divert.origin, "address", divert.address, divert.vhost)
        for address in divert.forwarding_addresses:
            yield from _of_address(divert.origin, "forwarding-address", address, divert.vhost)
    for policy in configuration.policies:
        origin = policy.origin or Origin("", 0)
        yield from _of_table(dict.fromkeys(policy.definition, origin), policy.definition, "", policy.vhost)
        yield from _exchange(origin, "alternate-exchange", policy.definition.get("alternate-exchange"), policy.vhost)
    for user in configuration.users:
        for topic in user.topic_permissions:
            yield from _exchange(user.origin, "topic-permission", topic.exchange, topic.vhost)


def _of_table(
    origins: Mapping[str, Origin], table: Mapping[str, object], prefix: str, vhost: str
) -> Iterator[Reference]:
    """References in a queue's arguments, or in a policy's definition."""
    for key in ("dead-letter-address", "expiry-address"):
        argument = f"{prefix}{key}"
        if argument in table:
            yield from _of_address(origins[argument], argument, table[argument], vhost)
    exchange, key = f"{prefix}dead-letter-exchange", f"{prefix}dead-letter-routing-key"
    if table.get(exchange) == "" and isinstance(name := table.get(key), str):
        yield Reference(origins[key], key, name, vhost, may_be_exchange=False)
    elif exchange in table:
        yield from _exchange(origins[exchange], exchange, table[exchange], vhost)


def _exchange(origin: Origin, key: str, name: object, vhost: str) -> Iterator[Reference]:
    if isinstance(name, str) and name:
        yield Reference(origin, key, name, vhost, may_be_queue=False)


def _of_address(origin: Origin, key: str, address: object, vhost: str | None) -> Iterator[Reference]:
    """A reference in an address: `queue:NAME`, `exchange:NAME/KEY`, or a name of either."""
    if not isinstance(address, str) or not address:
        return
    if address.startswith("queue:"):
        yield Reference(origin, key, address.removeprefix("queue:"), vhost, may_be_exchange=False)
    elif address.startswith("exchange:"):
        name = address.removeprefix("exchange:").partition("/")[0]
        yield Reference(origin, key, name, vhost, may_be_queue=False)
    else:
        yield Reference(origin, key, address, vhost)


def _known(configuration: Configuration, vhost: str | None, *, with_queues: bool, with_exchanges: bool) -> set[str]:
    """The names of declared queues and exchanges."""
    names: set[str] = set(EXCHANGES) if with_exchanges else set()
    if with_exchanges:
        names |= {one.name for one in configuration.exchanges if vhost in (None, one.vhost)}
    for queue in configuration.queues if with_queues else ():
        if vhost in (None, queue.vhost):
            names |= {queue.name, queue.address}
    return names


def _addresses_with_settings(configuration: Configuration, vhost: str | None) -> set[str]:
    """The addresses with an entry for exactly their name."""
    return {
        entry.match.address
        for entry in configuration.repository.entries
        if entry.match.kind is not WILDCARD and (vhost is None or entry.vhost in (None, vhost))
    }


# -- matches ----------------------------------------------------------------------------------------------------------


def _matches(configuration: Configuration) -> Iterator[str]:
    """Matches of address-settings that cover no name that is declared or referred to."""
    repository = configuration.repository
    delimiter = repository.wildcards.delimiter
    names = _known(configuration, None, with_queues=True, with_exchanges=True)
    names |= {one.name for one in references(configuration)}
    prefixes = {prefix for name in names for prefix in _prefixes(name, delimiter)}
    unknown: list[tuple[Entry, str]] = []
    for one in repository.entries:
        begin = _before_wildcard(one, repository.wildcards)
        if begin and begin not in (prefixes if one.match.kind is WILDCARD else names):
            unknown.append((one, begin))
    wild = similar_names((begin for one, begin in unknown if one.match.kind is WILDCARD), prefixes)
    whole = similar_names((begin for one, begin in unknown if one.match.kind is not WILDCARD), names)
    for one, begin in unknown:
        meant = (wild if one.match.kind is WILDCARD else whole).get(begin)
        if meant is not None and meant.count(delimiter) == begin.count(delimiter):
            text = one.match.text
            hint = f"did you mean {shown(text.replace(begin, meant, 1))}?"
            yield f"{one.origin}: match: {shown(text)} covers nothing that is declared in the configuration, {hint}"


def _prefixes(name: str, delimiter: str) -> Iterator[str]:
    """The first word, the first two ..."""
    end = name.find(delimiter)
    while end >= 0:
        yield name[:end]
        end = name.find(delimiter, end + 1)
    yield name


def _before_wildcard(entry: Entry, wildcards: Wildcards) -> str:
    """The words of a match before its first wildcard; all of them if there is none."""
    if entry.match.kind is not WILDCARD:
        return entry.match.address
    words: list[str] = []
    for word in entry.match.words:
        if not isinstance(word, str):
            break
        words.append(word)
    return wildcards.delimiter.join(words)


# -- virtual hosts, logins --------------------------------------------------------------------------------------------


def _vhosts(configuration: Configuration) -> Iterator[str]:
    """Undeclared virtual hosts whose name is similar to a declared one's; without objects, also to one with objects."""
    declared = {"/", *configuration.limits}  # every [[vhost]] has an entry in limits
    objects: list[QueueDeclaration | ExchangeDeclaration | Divert] = [
        *configuration.queues,
        *configuration.exchanges,
        *configuration.diverts,
    ]
    with_objects: dict[str, Origin] = {}
    for one in objects:
        with_objects.setdefault(one.vhost, one.origin)
    mentioned: dict[str, Origin] = {}
    for entry in configuration.repository.entries:
        if entry.vhost is not None:
            mentioned.setdefault(entry.vhost, entry.origin)
    for policy in configuration.policies:
        mentioned.setdefault(policy.vhost, policy.origin or Origin("", 0))
    for user in configuration.users:
        for permission in user.permissions:
            mentioned.setdefault(permission.vhost, user.origin)
    for name in with_objects:
        mentioned.pop(name, None)
    for found, known in ((with_objects, declared), (mentioned, declared | with_objects.keys())):
        meant = similar_names(found.keys() - known, known)
        for name in sorted(meant):
            yield _line(found[name], "vhost", name, meant[name])


def _logins(configuration: Configuration) -> Iterator[str]:
    mechanisms: Iterable[str] = configuration.broker.mechanisms
    unknown = [name for name in mechanisms if name not in MECHANISMS]
    meant = similar_names(unknown, MECHANISMS)
    origin = configuration.origins.get(("broker", "mechanisms"), Origin("", 0))
    for name in unknown:
        hint = f", did you mean {shown(meant[name])}?" if name in meant else f", known are {', '.join(MECHANISMS)}"
        yield f"{origin}: mechanisms: {shown(name)} is unknown, so nobody can use it{hint}"
    anonymous = configuration.broker.anonymous_user
    names = [user.name for user in configuration.users]
    if "ANONYMOUS" in mechanisms and anonymous not in names and (found := similar_names([anonymous], names)):
        origin = configuration.origins.get(("broker", "anonymous-user"), origin)
        yield _line(origin, "anonymous-user", anonymous, found[anonymous])


def _line(origin: Origin, key: str, name: str, meant: str) -> str:
    return f"{origin}: {key}: {shown(name)} is declared nowhere in the configuration, did you mean {shown(meant)}?"
