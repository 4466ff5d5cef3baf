"""The dispatch of a queue whose messages have owners: each site gets its own messages first, then those of others.

Each site has its own fairness and backlog. A message is transferred to another site if it has waited long enough, and a
consumer has room there but none at its owner. If its owner was given up, it does not wait. Source: cluster page 12.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from ..delivery.consumer import Consumer
from ..delivery.consumer_list import RUN_MAX
from ..delivery.filter_groups import FilterGroup
from ..messages.message import UNLIMITED, Message, id_of
from ..queues.searching import CATCH_UP_STEPS, groups_behind
from ..queues.selection import FOUND_MAX, SEARCH_EFFORT, Selection
from ..stores.store import Scanned
from . import deferring
from .granting import drop_expired, grant, runs_of
from .owner_groups import OwnerGroups, key_of, owner_in
from .owners import Owners
from .state import Leases

#: Messages that a get reads back at once from the position where the next one of its site may be.
OWN_MAX = 32
#: Group -> the consumers with room that want its messages.
Free = dict[FilterGroup, list[Consumer]]
#: Key of a filter -> the consumers of one site with room and this filter, in the order of their subscriptions.
FreeAtSite = dict[object, list[Consumer]]
#: (site, the consumer of each message, the messages)
Deal = tuple[str, list[Consumer], list[Message]]


def dispatch_by_site(leases: Leases, selection: Selection, owners: Owners) -> None:
    """Lease messages to their own sites, then to others, while consumers have credit and the turn has time."""
    queue, search, groups = leases.queue, selection.search, selection.groups
    assert isinstance(groups, OwnerGroups)
    store, turn = queue.store, queue.context.broker.turn
    search.is_waiting = False
    until = min(turn.effort_max, turn.effort + SEARCH_EFFORT)
    owners.waits.forget_waited(queue.context.broker.clock.monotonic_ns())
    steps = CATCH_UP_STEPS
    has_waiting = False  # messages that wait for a transfer
    if not leases.rules.is_ranked and leases.active is None and list(groups.filters) == [None]:
        _serve_head(leases, owners, until)
    while turn.effort < until and len(store):
        free = free_by_site(leases)
        if not free or not search.examine_returned(store, until):
            break
        own = {site: _own_groups(groups, owners, site, by_filter) for site, by_filter in free.items()}
        lagging = [group for some in own.values() for group in groups_behind(some)]
        if lagging and steps and _search(leases, owners, selection, lagging, until):
            steps -= 1
            continue
        # A list, because `any` would end a generator at the first site.
        handled = [_hand_out(leases, owners, some, site, extends=False) for site, some in own.items()]
        if any(handled):
            continue
        if _search(leases, owners, selection, [group for some in own.values() for group in some], until):
            continue
        if search.is_waiting or turn.effort >= until:  # the search for their own messages may not be complete
            break
        foreign, has_waiting = _foreign_groups(leases, groups, owners, free)
        if _transfer(leases, owners, foreign):
            continue
        others = list(dict.fromkeys(group for some in foreign.values() for group in some))
        others += [group for group in _all_groups(groups, owners, free) if group not in others]
        if not _search(leases, owners, selection, others, until):
            break
    search.continue_later(queue, until)
    if has_waiting:
        leases.await_transfer(owners.waits.next_ns())


def _serve_head(leases: Leases, owners: Owners, until: int) -> None:
    """Lease messages at the head in runs, to their own sites and by `_transfers`. A third of the cost of a search.

    Only without filters, ranks and target depth. Ends at the first message that is not in memory, or stays.
    """
    store, turn = leases.queue.consumable, leases.queue.context.broker.turn
    while turn.effort < until and store.ready:
        free = free_by_site(leases)
        window = list(islice(store, RUN_MAX)) if free else []
        by_number: dict[int, list[Message]] = {}
        if _has_one_owner(leases, owners, window):
            by_number[owners.owner_of(window[0].id)] = window
        else:
            for message in window:
                by_number.setdefault(owners.owner_of(message.id), []).append(message)
        deals: list[Deal] = []
        for number, some in by_number.items():
            site = owners.name_of(number)
            if site in free:
                dealt = leases.consumer_list.deal_at(site, free[site][None], min(len(some), leases.room(site)))
                _shorten(dealt, [len(message.content) for message in some[: len(dealt)]])
                deals.append((site, dealt, some[: len(dealt)]))
        deals += _transfers(leases, owners, free, by_number)
        count = sum(len(dealt) for _, dealt, _ in deals)
        if not count:
            return
        if count == len(window):
            store.take(count, UNLIMITED)
        else:
            store.take_at([message.id for _, _, some in deals for message in some])
        for site, dealt, some in deals:
            _grant_dealt(leases, owners, site, dealt, drop_expired(leases, some))
        if count < len(window):
            return


def _transfers(
    leases: Leases, owners: Owners, free: dict[str, FreeAtSite], by_number: dict[int, list[Message]]
) -> list[Deal]:
    """Divide the messages at the head that may go to other sites among those sites, in equal parts.

    A site gets a part if it owns no ready message. `by_number`: the messages at the head, by owner.
    """
    rest: list[Message] = []
    for number, some in by_number.items():
        if owners.name_of(number) not in free:
            skips_wait = _skips_wait(leases, owners, number)
            rest += [message for message in some if skips_wait or owners.waits.has_waited(message.id)]
    if not rest:
        return []
    rest.sort(key=id_of)
    last_id = max(some[-1].id for some in by_number.values())
    sites = {owners.number_of_site(site): site for site in free}
    targets = [one for one in sorted(sites) if one not in by_number and owners.next_id_of(one, last_id) is None]
    targets.sort(key=lambda one: one <= owners.last_target)  # begins with the one after the last target
    deals: list[Deal] = []
    for at, number in enumerate(targets):
        site, share = sites[number], -(-len(rest) // (len(targets) - at))
        dealt = leases.consumer_list.deal_at(site, free[site][None], min(share, leases.room(site)))
        _shorten(dealt, [len(message.content) for message in rest[: len(dealt)]])
        if dealt:
            deals.append((site, dealt, rest[: len(dealt)]))
            del rest[: len(dealt)]
            owners.last_target = number
    return deals


def _has_one_owner(leases: Leases, owners: Owners, messages: Sequence[Message]) -> bool:
    """Whether these messages, which follow each other in the store, are known to have one owner."""
    store = leases.queue.pageable
    if store is None or owners.moved or not messages:
        return False
    ids = [messages[0].id, messages[-1].id] if store.levels.is_sorted else [message.id for message in messages]
    return owners.runs.have_one_owner(min(ids), max(ids))


def _skips_wait(leases: Leases, owners: Owners, number: int) -> bool:
    """Whether messages of an owner need not wait: it has no consumer, was given up, or does not host the queue."""
    site, hosts = owners.name_of(number), leases.hosts
    if owners.is_stranded(number) or (hosts is not None and not hosts.has(site)):
        return True
    return all(leases.site_at(one) != site for one in leases.consumer_list.consumers)


def _shorten(dealt: list[Consumer], octets: Sequence[int]) -> None:
    """Halve a deal until its messages, of these sizes, fit into the room of each client, or one is left."""
    if len(dealt) > 1:
        room = min(one.client.outbox_room() for one in set(dealt))
        while len(dealt) > 1 and sum(octets[: len(dealt)]) > room:
            del dealt[len(dealt) // 2 :]


def _grant_dealt(
    leases: Leases, owners: Owners, site: str, dealt: Sequence[Consumer], messages: Sequence[Message]
) -> None:
    if len(dealt) > 1 and dealt.count(dealt[0]) == len(dealt):
        _grant(leases, owners, site, dealt[0], messages)
    else:
        for consumer, run in runs_of(dealt, messages):
            _grant(leases, owners, site, consumer, run)


def free_by_site(leases: Leases) -> dict[str, FreeAtSite]:
    """The consumers with room, of the sites that are present and have room in their backlog."""
    free: dict[str, FreeAtSite] = {}
    for consumer in leases.consumer_list.free():
        free.setdefault(leases.site_at(consumer), {}).setdefault(key_of(consumer), []).append(consumer)
    return {site: by_filter for site, by_filter in free.items() if leases.is_served(site) and leases.room(site) > 0}


def _own_groups(groups: OwnerGroups, owners: Owners, site: str, by_filter: FreeAtSite) -> Free:
    number = owners.number_of_site(site)
    return {groups.group(number, key): consumers for key, consumers in by_filter.items()}


def _all_groups(groups: OwnerGroups, owners: Owners, free: dict[str, FreeAtSite]) -> list[FilterGroup]:
    """The groups of each owner for each filter of these consumers."""
    keys = dict.fromkeys(key for by_filter in free.values() for key in by_filter)
    return [groups.group(number, key) for number in owners.numbers() for key in keys]


def _search(leases: Leases, owners: Owners, selection: Selection, wanted: Sequence[FilterGroup], until: int) -> bool:
    """Make a search step for these groups, except for those whose owner has no further message (`Search.advance`)."""
    if not leases.rules.is_ranked:  # positions are ids
        for group in wanted:
            if not group.is_at_end:
                following = owners.next_id_of(owner_in(group), group.position)
                if following is None:
                    group.is_at_end = True
                else:
                    group.position = max(group.position, following - 1)
    return selection.search.advance(leases.queue.store, wanted, FOUND_MAX, until)


def _foreign_groups(
    leases: Leases, groups: OwnerGroups, owners: Owners, free: dict[str, FreeAtSite]
) -> tuple[dict[str, Free], bool]:
    """(site -> groups of other owners with a message that may be transferred to it now, whether further ones wait)."""
    foreign: dict[str, Free] = {}
    has_waiting = False
    for number in owners.numbers():
        owner = owners.name_of(number)
        skips_wait = _skips_wait(leases, owners, number)
        for site, by_filter in free.items():
            if site == owner:
                continue
            for key, consumers in by_filter.items():
                group = groups.group(number, key)
                if not group.found:
                    continue
                if skips_wait or _first_waited(leases, owners, group) is not None:
                    foreign.setdefault(site, {})[group] = consumers
                else:
                    has_waiting = True
    return foreign, has_waiting


def _first_waited(leases: Leases, owners: Owners, group: FilterGroup) -> int | None:
    """The index of the first of a group's found messages that has waited long enough; None: none has.

    With ranks, or with delayed messages, messages that have waited less may be before it.
    """
    found = group.found[: RUN_MAX if _is_mixed(leases, owners) else 1]
    return next((at for at, one in enumerate(found) if owners.waits.has_waited(leases.id_at(one.position))), None)


def _transfer(leases: Leases, owners: Owners, foreign: dict[str, Free]) -> bool:
    """Hand out messages of other owners at one site: the first after the last target. Returns whether any went out."""
    if not foreign:
        return False
    sites = sorted(foreign, key=owners.number_of_site)
    sites = [site for site in sites if owners.number_of_site(site) > owners.last_target] + sites
    for site in dict.fromkeys(sites):
        if _hand_out(leases, owners, foreign[site], site, extends=True):
            owners.last_target = owners.number_of_site(site)
            return True
    return False


def _hand_out(leases: Leases, owners: Owners, free: Free, site: str, *, extends: bool) -> bool:
    """Lease the oldest messages found for these groups at a site. Returns whether any went out.

    `extends`: messages behind the active ones become active.
    """
    queue, gate = leases.queue, leases.gate_position()
    firsts = {group: _first(leases, owners, group, extends) for group in free if group.found}
    position = min((group.found[at].position for group, at in firsts.items()), default=None)
    if position is None or (gate is not None and position >= gate) or not activate(leases, position, extends=extends):
        return False
    # Not counted earlier: a dispatch that hands nothing out must be able to continue its search.
    queue.context.broker.turn.effort += len(free)
    takers = [group for group, at in firsts.items() if group.found[at].position == position]
    consumers = sorted((one for group in takers for one in free[group]), key=queue.consumer_list.consumers.index)
    others = [group.found[at].position for group, at in firsts.items() if group not in takers]
    is_single = len(takers) > 1 or firsts[takers[0]] > 0
    count = 1 if is_single else _run_length(leases, owners, takers[0], min(others, default=None), gate, extends)
    dealt = leases.consumer_list.deal_at(site, consumers, min(count, leases.room(site)))
    at = firsts[takers[0]]
    _shorten(dealt, [match.octets for match in takers[0].found[at : at + len(dealt)]])
    positions = [match.position for match in takers[0].found[at : at + len(dealt)]]
    for group in takers:
        at = firsts[group]
        del group.found[at : at + len(dealt)]
    messages = _still_owned(leases, owners, queue.consumable.take_at(positions).messages, takers)
    _grant_dealt(leases, owners, site, dealt, messages)
    return bool(dealt)


def _first(leases: Leases, owners: Owners, group: FilterGroup, extends: bool) -> int:
    """The index of the first found message of a group that may go. In a transfer (`extends`) earlier ones may wait."""
    if not (extends and _is_mixed(leases, owners)) or _skips_wait(leases, owners, owner_in(group)):
        return 0
    return _first_waited(leases, owners, group) or 0


def _is_mixed(leases: Leases, owners: Owners) -> bool:
    """Whether messages may have waited longer than messages before them."""
    return leases.rules.is_ranked or bool(owners.waits.delayed)


def _run_length(
    leases: Leases, owners: Owners, group: FilterGroup, before: int | None, gate: int | None, extends: bool
) -> int:
    """The number of a group's found messages that may go out in one deal."""
    limits = [one for one in (before, gate) if one is not None]
    if extends:  # each message has to wait long enough itself
        return 1 if leases.active is not None else _waited_count(leases, owners, group, limits)
    if leases.active is not None:
        limits.append(leases.active.end + 1)
    if not limits:
        return min(len(group.found), RUN_MAX)
    limit = min(limits)
    return sum(match.position < limit for match in group.found[:RUN_MAX])


def _waited_count(leases: Leases, owners: Owners, group: FilterGroup, limits: list[int]) -> int:
    """The number of a group's found messages, from the first, that may be transferred now; at least one."""
    skips_wait = _skips_wait(leases, owners, owner_in(group))
    count = 0
    for match in group.found[:RUN_MAX]:
        if limits and match.position >= min(limits):
            break
        if not (skips_wait or owners.waits.has_waited(leases.id_at(match.position))):
            break
        count += 1
    return max(count, 1)


def activate(leases: Leases, position: int, *, extends: bool = False) -> bool:
    """Whether the message at a position is active (TargetQueueDepth). `extends`: make it active, and all before it.

    Also removes messages that became active and have a deferred acknowledgement.
    """
    if leases.active is None:
        return True
    leases.refill_active()
    if position > leases.active.end and extends and (store := leases.queue.pageable) is not None:
        leases.active.extend(store, position)
    if leases.deferred is not None:
        deferring.settle_entered(leases)
    return position <= leases.active.end


def _still_owned(
    leases: Leases, owners: Owners, messages: list[Message], takers: Sequence[FilterGroup]
) -> list[Message]:
    """Put back messages that got another owner since they were found. Drop expired ones, and return the rest."""
    numbers = set(map(owner_in, takers))
    moved = [message for message in messages if owners.owner_of(message.id) not in numbers]
    if moved:
        leases.queue.merge(moved[::-1])
        messages = [message for message in messages if message not in moved]
    return drop_expired(leases, messages)


def _grant(leases: Leases, owners: Owners, site: str, consumer: Consumer, messages: Iterable[Message]) -> None:
    """Lease messages to a consumer, and transfer those of other owners to its site before that."""
    messages = list(messages)
    number = owners.number_of_site(site)
    by_owner: dict[int, list[Message]] = {}
    has_one_owner = _has_one_owner(leases, owners, messages)
    for message in messages[:1] if has_one_owner else messages:
        if (owner := owners.owner_of(message.id)) != number:
            by_owner.setdefault(owner, []).append(message)
    if has_one_owner and by_owner:
        by_owner = dict.fromkeys(by_owner, messages)
    for owner, some in by_owner.items():
        owners.move((message.id for message in some), number)
        leases.record_sites()
        leases.queue.events.transferred(some, owners.name_of(owner), site, number)
    owners.note_taken(message.id for message in messages)
    grant(leases, consumer, messages)


def pop_at(leases: Leases, owners: Owners, site: str) -> Message | None:
    """The message for a basic.get at a site: its own first one, or else the first that may be transferred.

    None: there is none before the first barrier, or the site's backlog is full.
    """
    if leases.room(site) <= 0:
        return None
    owners.waits.forget_waited(leases.queue.context.broker.clock.monotonic_ns())
    number = owners.number_of_site(site)
    position, gate = _first_own(leases, owners, number), leases.gate_position()
    if position is None or (gate is not None and position >= gate):
        position = _first_to_take(leases, owners, number, gate)
    return None if position is None else _popped(leases, owners, position, number)


def _first_to_take(leases: Leases, owners: Owners, number: int, gate: int | None) -> int | None:
    """The position of the first message that this owner may take from any owner; None: there is none.

    Behind the first `RUN_MAX` messages only those of owners are considered whose messages need not wait.
    """
    at_once = [one for one in owners.numbers() if one != number and _skips_wait(leases, owners, one)]
    for at, (position, message) in enumerate(_scanned(leases, 0, RUN_MAX).found):
        if gate is not None and position >= gate and (at or position > gate):  # a barrier may go if it is the first
            return None
        owner = owners.owner_of(message.id)
        if owner == number or owner in at_once or owners.waits.has_waited(message.id):
            return position
    found = [_first_own(leases, owners, one) for one in at_once if owners.next_id_of(one, 0) is not None]
    first = min((one for one in found if one is not None), default=None)
    return None if gate is not None and first is not None and first >= gate else first


def pop_first(leases: Leases, owners: Owners) -> Message | None:
    """The message for an operator's basic.get: the first of all. It keeps its owner and counts in no backlog."""
    first = _scanned(leases, 0, 1).found[:1]
    return _popped(leases, owners, first[0][0], None) if first else None


def _first_own(leases: Leases, owners: Owners, number: int) -> int | None:
    """The position of the first active message of an owner; None: there is none."""
    after, count = 0, RUN_MAX
    while True:
        if not leases.rules.is_ranked:  # positions are ids
            following = owners.next_id_of(number, after)
            if following is None:
                return None
            after, count = max(after, following - 1), OWN_MAX
        seen = _scanned(leases, after, count)
        for position, message in seen.found:
            if owners.owner_of(message.id) == number:
                return position
        if not seen.found:
            return None
        after = seen.found[-1][0]


def _scanned(leases: Leases, after: int, count: int) -> Scanned:
    """Like `Leases.scan_active`, but paged-out messages are read if the first one is paged out. Raises: Unreadable."""
    seen = leases.scan_active(after, count)
    if seen.missing and not seen.found:
        leases.queue.store.load_at(after, count)
        seen = leases.scan_active(after, count)
    return seen


def _popped(leases: Leases, owners: Owners, position: int, number: int | None) -> Message | None:
    """Take the message at a position out, and transfer it to owner `number` (None: not). None: it has expired."""
    queue = leases.queue
    messages = drop_expired(leases, queue.consumable.take_at([position]).messages)
    if not messages:
        return None
    owner = owners.owner_of(messages[0].id)
    if number is not None and owner != number:
        owners.move([messages[0].id], number)
        leases.record_sites()
        queue.events.transferred(messages, owners.name_of(owner), owners.name_of(number), number)
    owners.note_taken([messages[0].id])
    return messages[0]
