"""The choice of the store of a queue whose consumers take messages out, by the queue's rules."""

from ..messages.levels import Levels, up_to
from .last_value_store import LastValueStore, header_value
from .levels import LeveledReady, ManyLevels
from .paged_message import body_size
from .storage import Owner
from .store import TakeableStore
from .tailed_store import TailedStore


def make_store(
    owner: Owner,
    *,
    last_value_key: str | None = None,
    level_max: int = 0,
    levels: Levels | None = None,
    counts_octets: bool = False,
) -> TakeableStore:
    """Make an empty store of a queue whose consumers take messages out.

    `last_value_key`: the header whose values are the keys; None: not a last-value queue. `level_max`: the highest level
    of priority; 0: a single level. `levels`: used instead of `level_max`. `counts_octets`: whether to count the octets
    of bodies.
    """
    levels = levels or up_to(level_max)
    key_of = None if last_value_key is None else header_value(last_value_key)
    if key_of is not None:
        return LastValueStore(owner, levels, key_of)
    return _tailed_store(owner, levels, counts_octets=counts_octets)


def converted(store: TailedStore, owner: Owner, *, counts_octets: bool) -> TailedStore:
    """The store of a queue whose rules changed: the same object, or one of another kind with all its messages.

    O(messages in memory) if it is another one.
    """
    if store.counts_octets is counts_octets:
        return store
    other = _tailed_store(owner, store.levels.mapping, counts_octets=counts_octets)
    other.take_over(store)
    return other


def _tailed_store(owner: Owner, levels: Levels, *, counts_octets: bool) -> TailedStore:
    if levels.top or counts_octets:
        return TailedStore(owner, ManyLevels(LeveledReady(levels, body_size)), counts_octets=counts_octets)
    return TailedStore(owner)
