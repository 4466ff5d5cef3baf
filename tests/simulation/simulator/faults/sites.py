"""A site goes, with most of its clients, and comes back."""

from __future__ import annotations

from functools import partial
from random import Random

from ..host import Host
from .victim import Fault, Victim, some_time_ns


def _goes(world: Victim, chance: Random) -> None:
    """Not the broker's own. Some of its connections stay for a while, or are half open."""
    host = world.host
    if host is None or not host.is_alive:
        return
    sites = [site for site in world.plan.sites if site != host.site and site not in world.network.gone]
    if not sites:
        return
    site = chance.choice(sites)
    world.network.gone.add(site)
    for link in [link for link in world.network.links if link.is_open and link.socket.site == site]:
        luck = chance.random()
        if luck < 0.7:
            link.reset()
        elif luck < 0.8:
            link.go_dead()
    schedule = world.schedule
    schedule.in_the_process(partial(_tell, world, host, site, is_there=False))
    back_ns = some_time_ns(chance, chance.choice((0.1, 1, 4)))
    schedule.after(back_ns, partial(schedule.in_the_process, partial(_tell, world, host, site, is_there=True)))


def _tell(world: Victim, host: Host, site: str, *, is_there: bool) -> None:
    if world.host is not host or not host.is_alive:
        return
    sites = host.broker.sites
    if is_there:
        world.network.gone.discard(site)
        sites.came(site, world.plan.sites[site])
    else:
        sites.went(site)
    host.runtime.end_turn()


SITE_FAULTS: dict[str, Fault] = {"site goes": _goes}
