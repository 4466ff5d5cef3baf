"""Queues of a virtual host that only some sites see, under a name that another site may use for another queue.

The full name of such a queue, in all lists, is NAME@SCOPE; the clients of its sites use NAME. Source: cluster page 12.
"""

from bisect import insort
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from .context import HostContext
    from .exchanges.exchange import Exchange
    from .publishing.route import Route
    from .queues.queue import Queue
    from .sites import View

#: Maximum full names in a refusal.
NAMED_MAX = 5


class Scopes:
    """The views of those queues of one virtual host that not every site sees. A `SiteWatcher` while there are any.

    `routes`: the routes, perhaps stale, that the publishers of a site share, by exchange, routing key and site.
    """

    def __init__(self, context: "HostContext") -> None:
        self._context = context
        self._views: dict[Queue, View] = {}
        self._by_name: dict[str, list[Queue]] = {}
        self.routes: WeakValueDictionary[tuple[Exchange, str, str], Route] = WeakValueDictionary()

    def add(self, queue: "Queue", view: "View") -> None:
        """Add a queue, unless it has this view. Of queues with one name the order is: those of a single site, of
        several sites, of all sites; then by age.
        """
        if self._views.get(queue) is view:
            return
        self.remove(queue)
        if not self._views:
            self._context.broker.sites.watchers[self] = None
        self._views[queue] = view
        insort(self._by_name.setdefault(view.name, []), queue, key=self._width)

    def _width(self, queue: "Queue") -> int:
        view = self._views[queue]
        return 0 if view.is_of_one_site else 1 if view.scope else 2

    def remove(self, queue: "Queue") -> None:
        """Remove a queue, if it has a view."""
        view = self._views.pop(queue, None)
        if view is not None:
            named = self._by_name[view.name]
            named.remove(queue)
            if not named:
                del self._by_name[view.name]
            if not self._views:
                del self._context.broker.sites.watchers[self]

    def site_went(self, site: str) -> None:
        pass  # its clients keep their routes

    def sites_changed(self) -> None:
        self._context.router.routes_changed()  # a site may have another group

    def queues_called(self, name: str) -> "list[Queue]":
        """The queues that sites see under this name, in the order of `add`."""
        return list(self._by_name.get(name, ()))

    def has(self, queue: "Queue", site: str) -> bool:
        """Whether a site sees a queue: its view has the site, and no queue before it with this name does."""
        view = self._views.get(queue)
        return self.seen(queue.name if view is None else view.name, site) is queue

    def seen(self, name: str, site: str | None) -> "Queue | None":
        """The queue that a site sees under a name. Site None: an operator, for whom queues have full names."""
        if site is not None:
            for scoped in self._by_name.get(name, ()):
                if self._views[scoped].has(site):
                    return scoped
        queue = self._context.queues.get(name)
        view = None if queue is None or site is None else self._views.get(queue)
        return queue if view is None or view.has(site or "") else None

    def site_of(self, full_name: str) -> str | None:
        """A site that sees the queue of this full name; None: every site does, or none."""
        queue = self._context.queues.get(full_name)
        view = None if queue is None else self._views.get(queue)
        sites = self._context.broker.sites
        if view is None:
            return None
        some = (view.scope or sites.own, *sites.groups, *sorted(view.declaring))
        return next((site for site in some if view.has(site)), None)

    def refusal(self, name: str, site: str | None) -> str:
        """Why a site sees no queue of this name, by a rule for that site; empty: no such rule.

        Site None: the full names of the queues, for an operator.
        """
        named = self._by_name.get(name, [])
        if site is None:
            names = ", ".join(queue.name for queue in named[:NAMED_MAX]) + (", ..." if len(named) > NAMED_MAX else "")
            return f"operators call it {names}" if named else ""
        return next((why for queue in named if (why := self._views[queue].refusal(site))), "")
