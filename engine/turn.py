"""A turn: what it has done so far. The one that is on is `BrokerContext.turn`."""


class Turn:
    """`records`: records of the journal that an answer may have to wait for. A caller compares the number before and
    after a call to learn whether the call recorded anything.
    """

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records = 0
