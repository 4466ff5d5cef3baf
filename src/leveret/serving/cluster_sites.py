"""The other nodes of a cluster as sites of the leading broker: which are connected, and which queues they declare.

The Hello of a node's link names its group, and the leased queues with `x-replication` that its files declare. The
leader hosts these queues for the node. Source: cluster page 12.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ..configured.configured import delete_undeclared, text_of
from ..configured.typed_arguments import fields_of
from ..engine import MS, Broker, EngineError, Queue
from ..settings import Configuration
from ..settings.addresses.queue_arguments import plain_values
from ..settings.values import shown

logger = logging.getLogger("leveret.cluster")

#: Milliseconds without a link after which a node's clients count as gone; a broken link is opened again within them.
RETURN_MS = 500
#: Maximum octets of a site as JSON; a Hello has room for twice as many.
SIZE_MAX = 512 * 1024
#: Maximum refusals that are kept of one node.
REFUSALS_MAX = 50


def site_of(configuration: Configuration) -> dict[str, object]:
    """The site that a node announces, as JSON: `group`, and `queues` as [virtual host, name, arguments]."""
    queues = [
        [queue.vhost, queue.name, plain_values(queue.arguments)]
        for queue in configuration.queues
        if "x-replication" in queue.arguments
    ]
    site: dict[str, object] = {"group": configuration.cluster.group or "", "queues": queues}
    if len(json.dumps(site)) > SIZE_MAX:
        logger.error("%d queues with x-replication do not fit in a Hello: the leader hosts none of them", len(queues))
        del site["queues"]
    return site


class ClusterSites:
    """The sites of a leading broker. `refused`: node -> why the leader does not host queues that the node declares.

    `end_turn`: ends the broker's turn. `others`: the names of all other nodes.
    """

    def __init__(self, broker: Broker, others: Sequence[str], end_turn: Callable[[], object]) -> None:
        self.refused: dict[str, tuple[str, ...]] = {}
        self._broker = broker
        self._others = others
        self._end_turn = end_turn
        self._leaving: dict[str, Callable[[], object]] = {}  # node -> cancels the deadline after which it is gone
        self._declared: dict[str, dict[Queue, None]] = {}  # node -> queues that its files declared last

    def begin(self, sites: Mapping[str, Mapping[str, object]]) -> None:
        """Take the sites of the nodes that have links at the start. A node without one is gone after `RETURN_MS`.

        Clients of such a node may be served before its link is open again.
        """
        for name in self._others:
            if name in sites:
                self._take(name, sites[name])
            else:
                self.link_ended(name)

    def link_opened(self, name: str, site: Mapping[str, object]) -> None:
        """Take the site of a node that opened a link."""
        if name in self._others:
            self._take(name, site)
            self._end_turn()

    def link_ended(self, name: str) -> None:
        """Note that a node's link has ended: its clients count as gone if no link follows within `RETURN_MS`."""
        if name not in self._others:
            return
        self._cancel_leaving(name)
        deadlines, now_ns = self._broker.context.deadlines, self._broker.context.clock.monotonic_ns()
        deadline = deadlines.set(now_ns + RETURN_MS * MS, partial(self._count_as_gone, name))
        self._leaving[name] = partial(deadlines.cancel, deadline)

    def _count_as_gone(self, name: str) -> None:
        del self._leaving[name]
        self._broker.sites.went(name)

    def _cancel_leaving(self, name: str) -> None:
        cancel = self._leaving.pop(name, None)
        if cancel is not None:
            cancel()

    def _take(self, name: str, site: Mapping[str, object]) -> None:
        self._cancel_leaving(name)
        group = site.get("group")
        self._broker.sites.came(name, group if isinstance(group, str) else "")
        declared: dict[Queue, None] = {}
        refused = tuple(self._declare(name, site.get("queues"), declared))[:REFUSALS_MAX]
        if refused != self.refused.get(name, ()):
            for line in refused:
                logger.warning("node %s: %s", name, line)
        if refused:
            self.refused[name] = refused
        else:
            self.refused.pop(name, None)
        before = self._declared.get(name, {})
        if refused or not isinstance(site.get("queues"), list):  # a refused queue may exist: it is not withdrawn
            declared |= before
        else:
            self._withdraw(name, [queue for queue in before if queue not in declared and not queue.deleted])
        self._declared[name] = declared

    def _withdraw(self, name: str, queues: Sequence[Queue]) -> None:
        """Withdraw queues that a node no longer declares; delete one that no node declares, if settings say so.

        Queues of the leader's own files stay, and queues that a node withdrew while no leader noticed it.
        """
        for queue in queues:
            settings = self._broker.context.settings.resolve(queue.address, queue.vhost_name)
            if settings.config_delete_queues != "FORCE":
                text = "is no longer declared; it stays, as config-delete-queues is OFF"
            elif queue.kind.unhost(queue, name):
                _, text = delete_undeclared(queue)
            else:
                text = "is no longer declared; it stays, as other nodes declare it"
            logger.warning("node %s: queue %s %s", name, shown(queue.name), text)

    def _declare(self, name: str, queues: object, declared: dict[Queue, None]) -> Iterator[str]:
        """Host the queues that a node declares, and put them into `declared`. Yields the reason of each refusal."""
        for queue in queues if isinstance(queues, list) else ():
            found = _declaration_in(queue)
            if found is None:
                yield f"queue {shown(queue)[:200]}: this release does not understand its declaration"
                continue
            vhost_name, queue_name, arguments = found
            vhost = self._broker.virtual_hosts.get(vhost_name)
            if vhost is None:
                yield f"queue {shown(queue_name)}: the leader has no virtual host {shown(vhost_name)}"
                continue
            try:
                table = fields_of(arguments)
                declared[vhost.queues.declare(queue_name, client=None, durable=True, arguments=table, site=name)] = None
            except EngineError as error:
                yield f"queue {shown(queue_name)}: {text_of(error)}"
            except ValueError as fault:  # a node of another release, whose values this one does not know
                yield f"queue {shown(queue_name)}: {fault}"


def _declaration_in(received: object) -> tuple[str, str, dict[str, object]] | None:
    """(virtual host, name, arguments) of a declaration; None: it is malformed."""
    if not isinstance(received, list) or len(received) != 3:
        return None
    vhost, name, arguments = received
    if not isinstance(vhost, str) or not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    is_plain = all(map(_is_plain, arguments.values()))
    return (vhost, name, arguments) if is_plain and "x-replication" in arguments else None


def _is_plain(value: object) -> bool:
    """Whether an AMQP field can hold the value: JSON has integers of any size."""
    return value.bit_length() < 64 if isinstance(value, int) else isinstance(value, float | str)
