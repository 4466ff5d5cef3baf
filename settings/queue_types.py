"""The types of queues: the values of `x-queue-type`.

These four have their own arguments and policies. A package that adds a kind of queue (`engine/queues/kinds.py`,
`register`) adds its type here; such queues use the arguments and policies of another type.
"""

from .leases.leased_settings import AMPS

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"

#: Type -> the type whose arguments and policies its queues use.
QUEUE_TYPES: dict[str, str] = {own: own for own in (CLASSIC, QUORUM, STREAM, AMPS)}
