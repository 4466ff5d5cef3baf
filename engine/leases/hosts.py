"""The sites that host a leased queue, and the scope of its name. Source: cluster page 12.

A queue with `x-replication` is hosted by one site (`local`), by the sites of a domain (`group`), or by all
(`distributed`). Sites of a domain are those that declare the queue with it, and those of the group with this name. If a
declaration names no domain, it is the group of the site, or else the site. A site whose declaration differs from that
of other sites in one of the arguments `AGREED` does not host the queue. Leased queues without `x-replication` are
hosted by all sites.
"""

from ...settings.leases.leased_settings import DISTRIBUTED, GROUP, LOCAL, SCOPE, LeasedFault
from ...settings.values import shown
from ..context import HostContext
from ..errors import InvalidArgument
from ..messages.field_table import Field, FieldTable
from ..queues.queue import Queue
from ..rules.arguments import Reason
from ..sites import Sites

REPLICATION, DOMAIN, OWNER = "x-replication", "x-queue-domain", "x-initial-owner"
#: The arguments in which all sites that host a queue agree.
AGREED = ("x-underlying-topic", "x-queue-filter", "x-semantics", OWNER)


class Hosts:
    """The sites that host one queue (a `View`). `declaring`: the sites that declare it. `refused`: site -> reason."""

    def __init__(self, name: str, replication: str, scope: str, sites: Sites) -> None:
        """`name`: as its clients call it. `scope`: the site (`local`) or the domain (`group`); empty: all sites."""
        self.name = name
        self.scope = scope
        self.is_of_one_site = replication == LOCAL
        self._replication = replication
        self._sites = sites
        self.declaring: set[str] = set()
        self.refused: dict[str, str] = {}

    def has(self, site: str) -> bool:
        if site in self.refused:
            return False
        if self._replication == DISTRIBUTED or not self.scope:
            return True
        if self.is_of_one_site:
            return site == self.scope
        return site in self.declaring or self._sites.group_of(site) == self.scope

    def refusal(self, site: str) -> str:
        return self.refused.get(site, "")


def scoped(context: HostContext, name: str, arguments: FieldTable, site: str) -> tuple[str, FieldTable]:
    """The full name and the arguments of a declaration. Invalid arguments are refused later.

    `site`: where the queue is declared; empty: by an operator, who gives the full name.
    """
    given, found = arguments.get(SCOPE), arguments.get(REPLICATION)
    replication = "" if found is None or found.tag != "S" else found.text
    if not site:
        scope = name.rpartition("@")[2]
        if given is None and scope != name and replication in (LOCAL, GROUP):
            arguments = {**arguments, SCOPE: Field("S", scope.encode())}
        return name, arguments
    if given is not None and given.tag == "S":  # the name is a full one
        name = name.removesuffix(f"@{given.text}")
    if replication == LOCAL:
        scope = site
    elif replication == GROUP:
        domain = arguments.get(DOMAIN)
        is_named = domain is not None and domain.tag == "S"
        scope = domain.text if domain is not None and is_named else context.broker.sites.group_of(site) or site
    else:
        return name, arguments
    if not (name.endswith(f"@{scope}") and name in context.queues):  # else it is a full name
        name = f"{name}@{scope}"
    arguments = {**arguments, SCOPE: Field("S", scope.encode()) if given is None else given}  # `given` is checked later
    current = context.queues.get(name)
    if replication == GROUP and current is not None and (is_named or domain is None):
        # The full name says that both have one domain, though only one of the declarations may name it.
        arguments.pop(DOMAIN, None)
        if (known := current.arguments.get(DOMAIN)) is not None:
            arguments[DOMAIN] = known
    return name, arguments


def hosts_of(queue: Queue, name: str, replication: str) -> Hosts | None:
    """The hosts of a new queue; None: there is no cluster, or no `x-replication`. `name`: as its clients call it."""
    sites = queue.context.broker.sites
    if not sites.own or REPLICATION not in queue.arguments:
        return None
    scope = queue.arguments.get(SCOPE)
    return Hosts(name, replication, "" if scope is None else scope.text, sites)


def host(hosts: Hosts, queue: Queue, site: str, arguments: FieldTable) -> bool:
    """Add a site that declares the queue. Returns whether it is new. Raises: InvalidArgument (E-MISMATCH): refused."""
    differing = [key for key in AGREED if _text(queue.arguments, key) != _text(arguments, key)]
    if differing and hosts.declaring - {site}:
        key = differing[0]
        detail = f"{_shown(arguments, key)} at {site}, {_shown(queue.arguments, key)} at the others"
        fault = LeasedFault("E-MISMATCH", key, detail)
        hosts.refused[site] = str(fault)
        hosts.declaring.discard(site)
        raise InvalidArgument(key=key, name=hosts.name, vhost=queue.vhost_name, reason=Reason("text", str(fault)))
    was_new = site not in hosts.declaring
    hosts.refused.pop(site, None)
    hosts.declaring.add(site)
    return was_new


def _text(arguments: FieldTable, key: str) -> str | None:
    field = arguments.get(key)
    return None if field is None else field.text if isinstance(field.value, bytes) else str(field.value)


def _shown(arguments: FieldTable, key: str) -> str:
    text = _text(arguments, key)
    return "not set" if text is None else shown(text)
