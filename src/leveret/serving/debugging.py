"""`leveret serve --debug`: checks the engine's invariants while the broker runs."""

import trio

from ..engine import Broker
from ..engine.invariants import check_broker

INTERVAL_S = 1.0
#: Maximum messages of a queue that is checked in full (microseconds a message); of a longer one only the counts are.
MESSAGES_MAX = 10_000


async def check_invariants(broker: Broker) -> None:
    """Every `INTERVAL_S` seconds, and once more when cancelled. Raises: InvariantBroken."""
    is_over = False
    while not is_over:
        try:
            await trio.sleep(INTERVAL_S)
        except trio.Cancelled:
            is_over = True
        check_broker(broker, messages_max=MESSAGES_MAX)
