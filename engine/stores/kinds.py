"""Makes the store of a queue whose consumers take messages out, by the queue's rules."""

from ..messages.levels import ONE_LEVEL, Levels
from .last_value_store import LastValueStore, header_value
from .levels import LeveledReady, ManyLevels
from .paged_message import body_size
from .storage import StoreOwner
from .store import ConsumableStore
from .tailed_store import TailedStore


def make_store(
    owner: StoreOwner, *, last_value_key: str | None = None, levels: Levels | None = None, counts_octets: bool = False
) -> ConsumableStore:
    """Make an empty store of a queue whose consumers take messages out.

    `last_value_key`: the header whose values are the keys; None: not a last-value queue. `counts_octets`: whether to
    count the octets of bodies. `levels`: of priority; None: one.
    """
    if last_value_key is not None:
        return LastValueStore(owner, levels or ONE_LEVEL, header_value(last_value_key))
    return _tailed_store(owner, levels or ONE_LEVEL, counts_octets=counts_octets)


def converted(store: TailedStore, owner: StoreOwner, *, counts_octets: bool) -> TailedStore:
    """The store of a queue whose rules changed: the same object, or one of another kind with all its messages.

    O(messages in memory) if it is another one.
    """
    if store.counts_octets is counts_octets:
        return store
    other = _tailed_store(owner, store.levels.mapping, counts_octets=counts_octets)
    other.take_over(store)
    return other


def _tailed_store(owner: StoreOwner, levels: Levels, *, counts_octets: bool) -> TailedStore:
    if levels.top or counts_octets:
        return TailedStore(owner, ManyLevels(LeveledReady(levels, body_size)), counts_octets=counts_octets)
    return TailedStore(owner)
