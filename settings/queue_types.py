"""The types of queues: the words that `x-queue-type` takes.

These four have arguments and policies of their own. A package that adds a kind of queue (`engine/queues/kinds.py`,
`register`) adds its type here; such queues take the arguments and policies of another type.
"""

from .leases import AMPS

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"

#: Type -> the type whose arguments and policies its queues take.
QUEUE_TYPES: dict[str, str] = {own: own for own in (CLASSIC, QUORUM, STREAM, AMPS)}
