"""At the end of each test every broker that it made is looked at: it must not contradict itself."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leveret.engine import Broker
from leveret.engine.invariants import check_broker

#: Of queues with more messages only the counts are looked at.
SOME = 2000


@contextmanager
def brokers_checked() -> Iterator[None]:
    """Those that are made within it, and are still there at its end. Raises: InvariantBroken."""
    made: list[weakref.ref[Broker]] = []
    plain = Broker.__init__

    def noted(self: Broker, *of: Any, **options: Any) -> None:
        plain(self, *of, **options)
        made.append(weakref.ref(self))

    Broker.__init__ = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Broker.__init__ = plain  # type: ignore[method-assign]
    for one in made:
        broker = one()
        if broker is not None:
            check_broker(broker, messages_max=SOME)
