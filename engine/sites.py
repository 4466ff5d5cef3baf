"""The sites of a broker: the places that clients are connected to, such as the nodes of a cluster.

A site is a name; the empty one stands for a broker without others. Frontends say at which site a client is. What sites
mean is decided by kinds of queues: some queues exist for some sites alone (`scopes.py`), some prefer consumers at the
site of the publisher. Source: cluster page 12.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from .clock import MS, Clock
from .deadlines import Deadline, Deadlines

#: Time after which a site that went is given up: others get what belongs to it.
GIVEN_UP_MS = 3000


class SiteWatcher(Protocol):
    """Follows the sites of a broker."""

    def site_went(self, site: str) -> None:
        """A site has gone; it may come back."""

    def sites_changed(self) -> None:
        """A site came, came back, or was given up; or `transfer_after_ns` is another one."""


class Sites:
    """`own`: the site of clients whose frontend names none, and of all that the broker itself does. `now`: the site for
    which messages are routed, published or got now; empty: for an operator's get. `groups`: the group of each site that
    is there, perhaps empty. `transfer_after_ns`: how long what belongs to a site waits for it before others get it.
    `watchers`: told of changes.
    """

    __slots__ = ("_clock", "_deadlines", "_leaving", "groups", "now", "own", "transfer_after_ns", "watchers")

    def __init__(self, deadlines: Deadlines, clock: Clock) -> None:
        self._clock = clock
        self._deadlines = deadlines
        self._leaving: dict[str, Deadline] = {}
        self.own = self.now = ""
        self.groups: dict[str, str] = {"": ""}
        self.transfer_after_ns = 0
        self.watchers: dict[SiteWatcher, None] = {}

    def begin(self, own: str, groups: Mapping[str, str]) -> None:
        """Set the sites before the first client: the own one, and the group of each."""
        self.own = self.now = own
        self.groups = {own: "", **groups}

    def set_transfer_after(self, after_ms: int) -> None:
        """Set `transfer_after_ns`."""
        if after_ms * MS != self.transfer_after_ns:
            self.transfer_after_ns = after_ms * MS
            self._tell()

    @contextmanager
    def at(self, site: str) -> Iterator[None]:
        """Route and publish for a site."""
        before, self.now = self.now, site
        try:
            yield
        finally:
            self.now = before

    def is_lost(self, site: str) -> bool:
        """Whether a site was given up, or was never there."""
        return site not in self.groups and site not in self._leaving

    def came(self, site: str, group: str = "") -> None:
        """A site is there, or there again."""
        deadline = self._leaving.pop(site, None)
        if deadline is not None:
            self._deadlines.cancel(deadline)
        if self.groups.get(site) != group:
            self.groups[site] = group
            self._tell()

    def went(self, site: str) -> None:
        """A site is gone. It is given up after `GIVEN_UP_MS`, unless it comes back."""
        if site == self.own or self.groups.pop(site, None) is None:
            return
        self._leaving[site] = self._deadlines.set(
            self._clock.monotonic_ns() + GIVEN_UP_MS * MS, partial(self._give_up, site)
        )
        for watcher in list(self.watchers):
            watcher.site_went(site)

    def _give_up(self, site: str) -> None:
        del self._leaving[site]
        self._tell()

    def _tell(self) -> None:
        for watcher in list(self.watchers):
            watcher.sites_changed()
