"""What the frontend counts of its connections is what is there, once everything rests: no account of what is gone.

An account that never falls shows only when its limit is reached, after hours. So it is added up anew here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .books.whereabouts import Place
from .clients.client import RUNNING, Client
from .clients.worker import Worker
from .host import Host
from .ledger import Broken, Ledger, QueueName


def check_accounts(host: Host, clients: Iterable[Client]) -> None:
    """Raises: Broken."""
    settled = [client for client in clients if client.state is RUNNING and not client.waiting]
    channels = {client.product: len(client.channels) for client in settled}
    for endpoint in host.server.endpoints:
        session: Any = endpoint.session
        product, count = _product_of(session), len(session.connection.channels)
        if channels.get(product, count) != count:
            raise Broken(f"the connection of {product} has {count} channels, its client {channels[product]}")
    if gone := [one for one in host.server.admission.half_open._address_of if one not in host.server.endpoints]:
        raise Broken(f"{len(gone)} connections that are gone have places of those that are not logged in")
    check_sums(host)
    host.temp.check()


def check_sums(host: Host) -> None:
    """Between any two turns: sums are the sums of their parts. Raises: Broken."""
    octets = spooled = 0
    half_open: Any = host.server.admission.half_open
    for endpoint in host.server.endpoints:
        session: Any = endpoint.session
        parking, incomplete = session.backlog.parking, session.connection.incomplete
        octets, spooled = octets + parking.contents.octets, spooled + parking.contents.spooled
        channels = session.connection.channels
        has_ended = session.closing.finished and not channels  # nobody reads its half messages any more
        differences = [*_parked(parking), *(() if has_ended else _incomplete(incomplete, channels))]
        if endpoint in half_open._address_of and session.login.client is not None:
            differences.append("is logged in, and has a place of those that are not")
        if differences:
            raise Broken(f"the connection of {_product_of(session)}: {'; '.join(differences)}")
    parked: Any = host.broker.flow.parked
    if (parked.octets, parked.spooled) != (octets, spooled):
        raise Broken(f"{parked.octets} and {parked.spooled} octets are parked by the sum, {octets} and {spooled} are")
    if host.temp.used and not spooled and not any(_spooled(host)):
        raise Broken(f"{host.temp.used} octets are in the temp store, and are of nobody")
    if differences := list(_places(half_open)):
        raise Broken(f"the places of those that are not logged in: {'; '.join(differences)}")


def check_journal(host: Host, ledger: Ledger) -> None:
    """The journal keeps segments for the messages that there are, and for no others. Raises: Broken."""
    recorder, count = host.supervisor.recorder, ledger.recorded_count()
    if count is None or recorder.is_behind or recorder.has_failed or recorder.takes_nothing or host.disk.is_troubled:
        return
    live = host.supervisor.journal.statistics().live
    if live != count:
        raise Broken(f"segments are kept for {live} messages, {count} are recorded and there")


def _product_of(session: Any) -> str:
    client = session.login.client
    return "a stranger" if client is None else client.properties["product"].text


def _parked(parking: Any) -> Iterator[str]:
    contents = parking.contents
    works = [work for parked in parking.channels.values() for work in parked.work]
    here = [work for work in works if work.location is None]
    away = [work for work in works if work.location is not None]
    found = {
        "count": len(here),
        "octets": sum(work.octets for work in here),
        "spooled_count": len(away),
        "spooled": sum(work.octets for work in away),
        "publishes": sum(work.messages for work in works),
    }
    for name, value in found.items():
        if getattr(contents, name) != value:
            yield f"{name} of what is parked: {getattr(contents, name)}, there are {value}"


def _places(half_open: Any) -> Iterator[str]:
    addresses = half_open._addresses.values()
    if any(not address.count for address in addresses):
        yield "an address is known, and has none"
    if half_open._address_of != {
        one: address for address in addresses for one in (*address.silent, *address.begun, *address.refused)
    }:
        yield "connections are not where their addresses know them"
    strangers = sum(address.count for address in addresses if address.is_stranger)
    if half_open._strangers != strangers:
        yield f"{half_open._strangers} are of strangers, there are {strangers}"
    by_weight: dict[bool, dict[int, dict[Any, None]]] = {True: {}, False: {}}
    for address in addresses:
        if address.weight:
            by_weight[address.is_stranger].setdefault(address.weight, {})[address] = None
    if half_open._by_weight != by_weight:
        yield "addresses are not found by what they may lose"


def _incomplete(incomplete: Any, channels: Mapping[int, Any]) -> Iterator[str]:
    open_ = [channel.assembly for channel in channels.values() if channel.assembly is not None]
    octets = sum(assembly.octets for assembly in open_)
    reserved = sum(assembly.large.capacity for assembly in open_ if assembly.large is not None)
    if (incomplete.octets, incomplete.reserved) != (octets, reserved):
        yield f"{incomplete.octets} and {incomplete.reserved} octets of half messages, there are {octets}, {reserved}"


def _spooled(host: Host) -> Iterator[Any]:
    """Parts of queues that are in the temp store."""
    for vhost in host.broker.virtual_hosts.values():
        for queue in vhost.queues.values():
            yield from (part for part in queue.store.paged_parts() if getattr(part, "location", None) is not None)


def check_consumers(clients: Iterable[Client], places: Mapping[QueueName, Place]) -> None:
    """A queue has the consumers that the clients have, whom nobody keeps waiting. Raises: Broken."""
    consumers: Counter[QueueName] = Counter()
    for client in clients:
        for channel in client.channels.values():
            if isinstance(channel, Worker) and channel.has_consumer:
                consumers[client.vhost, channel.queue.name] += 1
    for name, place in places.items():
        if "foreign" not in place.features and len(place.queue.consumers) != consumers[name]:
            raise Broken(f"{name} has {len(place.queue.consumers)} consumers, its clients know of {consumers[name]}")
