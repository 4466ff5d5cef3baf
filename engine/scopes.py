"""Queues of a virtual host that only some sites see, under a name that another site may use for another queue.

Such a queue is called NAME@SCOPE in all lists, and NAME by the clients of its sites. Source: cluster page 12.
"""

from bisect import insort
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from .context import HostContext
    from .exchanges.exchange import Exchange
    from .publishing.route import Route
    from .queues.queue import Queue

#: Full names that a refusal lists.
NAMED_MAX = 5


class View(Protocol):
    """The sites that see one queue. `name`: the queue's name at these sites; `is_of_one_site`: no other sees it;
    `scope`: that site, or what several have in common; empty: all sites.
    """

    name: str
    is_of_one_site: bool
    scope: str

    def has(self, site: str) -> bool:
        """Whether a site sees the queue."""

    def refusal(self, site: str) -> str:
        """Why a site does not see the queue, in words for its clients; empty: it has nothing to do with it."""


class Scopes:
    """The views of the queues of one virtual host, of those that not every site sees. Watches the sites (`SiteWatcher`)
    as long as there are such queues.

    `routes`: by exchange, routing key and site, shared by the publishers of a site; a stale one may be among them.
    """

    __slots__ = ("_by_name", "_context", "_views", "routes")

    def __init__(self, context: "HostContext") -> None:
        self._context = context
        self._views: dict[Queue, View] = {}
        self._by_name: dict[str, list[Queue]] = {}
        self.routes: WeakValueDictionary[tuple[Exchange, str, str], Route] = WeakValueDictionary()

    def add(self, queue: "Queue", view: View) -> None:
        """Add a queue, or let it be. One of a single site comes before one that several sites share, and that before
        one of all sites; else the older first.
        """
        if self._views.get(queue) is view:
            return
        self.remove(queue)
        if not self._views:
            self._context.broker.sites.watchers[self] = None
        self._views[queue] = view
        insort(self._by_name.setdefault(view.name, []), queue, key=self._farness)

    def _farness(self, queue: "Queue") -> int:
        view = self._views[queue]
        return 0 if view.is_of_one_site else 1 if view.scope else 2

    def remove(self, queue: "Queue") -> None:
        """Remove a queue, if it has a view."""
        view = self._views.pop(queue, None)
        if view is not None:
            alike = self._by_name[view.name]
            alike.remove(queue)
            if not alike:
                del self._by_name[view.name]
            if not self._views:
                del self._context.broker.sites.watchers[self]

    def site_went(self, site: str) -> None:
        pass  # its clients keep their routes

    def sites_changed(self) -> None:
        self._context.router.routes_changed()  # a site may have another group

    def called(self, name: str) -> "list[Queue]":
        """The queues that some sites call so, the nearest first."""
        return list(self._by_name.get(name, ()))

    def has(self, queue: "Queue", site: str) -> bool:
        """Whether a site sees a queue: it is of the site, and the site has no nearer one of that name."""
        view = self._views.get(queue)
        return self.seen(queue.name if view is None else view.name, site) is queue

    def seen(self, name: str, site: str | None) -> "Queue | None":
        """The queue that a site means by a name. None as site: an operator, who sees each queue under its full name."""
        if site is not None:
            for scoped in self._by_name.get(name, ()):
                if self._views[scoped].has(site):
                    return scoped
        queue = self._context.queues.get(name)
        view = None if queue is None or site is None else self._views.get(queue)
        return queue if view is None or view.has(site or "") else None

    def site_of(self, full_name: str) -> str | None:
        """A site that sees the queue of this full name; None: there is no rule for it, or no such site."""
        queue = self._context.queues.get(full_name)
        view = None if queue is None else self._views.get(queue)
        sites = self._context.broker.sites
        if view is None:
            return None
        return next((site for site in (view.scope or sites.own, *sites.groups) if view.has(site)), None)

    def refusal(self, name: str, site: str | None) -> str:
        """Why a site does not see a queue of this name, where a rule for that site says so; else empty. None as site:
        which full names operators mean by it.
        """
        alike = self._by_name.get(name, [])
        if site is None:
            names = ", ".join(queue.name for queue in alike[:NAMED_MAX]) + (", ..." if len(alike) > NAMED_MAX else "")
            return f"operators call it {names}" if alike else ""
        return next((why for queue in alike if (why := self._views[queue].refusal(site))), "")
