"""The sites of a broker: the places that clients are connected to, such as the nodes of a cluster.

A site is a name, empty for a broker without others. Frontends report the site of a client. Kinds of queues use sites:
only some sites see a queue (`scopes.py`), or consumers at the site of the publisher come first. Source: cluster page
12.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from .clock import MS, Clock
from .deadlines import Deadline, Deadlines

#: Time after which an absent site is given up, and other sites get its messages.
GIVEN_UP_MS = 3000


class SiteWatcher(Protocol):
    """Is notified of changes of a broker's sites."""

    def site_went(self, site: str) -> None:
        """A site is absent; it may come back."""

    def sites_changed(self) -> None:
        """A site came, came back, or was given up; or `transfer_after_ns` changed."""


class View(Protocol):
    """The sites that see one queue. `name`: the queue's name at these sites. `is_of_one_site`: no other site sees it.
    `scope`: that site, or the group of several; empty: all sites. `declaring`: the sites that declared it, present or
    absent.
    """

    declaring: set[str]
    name: str
    is_of_one_site: bool
    scope: str

    def has(self, site: str) -> bool:
        """Whether a site sees the queue."""

    def refusal(self, site: str) -> str:
        """The reason why a site does not see the queue, for its clients; empty: the queue is not meant for the site."""


class Sites:
    """The sites that one broker knows.

    `own`: the broker's site, also that of clients whose frontend reports none. `now`: the site for which messages are
    routed, published or got at present; empty: an operator's get. `groups`: the group of each present site, perhaps
    empty. `transfer_after_ns`: how long messages of a site wait for a consumer there before other sites get them.
    `_known`: the last known group of each site, present or absent.
    """

    def __init__(self, deadlines: Deadlines, clock: Clock) -> None:
        self._clock = clock
        self._deadlines = deadlines
        self._leaving: dict[str, Deadline] = {}
        self.own = self.now = ""
        self.groups: dict[str, str] = {"": ""}
        self._known: dict[str, str] = {}
        self.transfer_after_ns = 0
        self.watchers: dict[SiteWatcher, None] = {}

    def begin(self, own: str, groups: Mapping[str, str]) -> None:
        """Set the broker's site and the group of each site. Called before the first client connects."""
        self.own = self.now = own
        self.groups = {own: "", **groups}
        self._known = {site: group for site, group in groups.items() if group}

    def set_transfer_after(self, after_ms: int) -> None:
        if after_ms * MS != self.transfer_after_ns:
            self.transfer_after_ns = after_ms * MS
            self._notify()

    @contextmanager
    def at(self, site: str) -> Iterator[None]:
        """Route, publish and get for a site."""
        before, self.now = self.now, site
        try:
            yield
        finally:
            self.now = before

    def is_lost(self, site: str) -> bool:
        """Whether a site was given up, or was never there."""
        return site not in self.groups and site not in self._leaving

    def group_of(self, site: str) -> str | None:
        """The group of a site, perhaps empty; of an absent site the last one. None: the site has not announced it."""
        return self._known.get(site)

    def came(self, site: str, group: str = "") -> None:
        """Add a site, which perhaps was absent."""
        self._known[site] = group
        self._deadlines.cancel(self._leaving.pop(site, None))
        if self.groups.get(site) != group:
            self.groups[site] = group
            self._notify()

    def went(self, site: str) -> None:
        """Note that a site is absent. It is given up after `GIVEN_UP_MS`, unless it comes back."""
        if site == self.own or self.groups.pop(site, None) is None:
            return
        self._leaving[site] = self._deadlines.set(
            self._clock.monotonic_ns() + GIVEN_UP_MS * MS, partial(self._give_up, site)
        )
        for watcher in list(self.watchers):
            watcher.site_went(site)

    def _give_up(self, site: str) -> None:
        del self._leaving[site]
        self._notify()

    def _notify(self) -> None:
        for watcher in list(self.watchers):
            watcher.sites_changed()
