"""The position of one consumer that browses a leased queue. Source: queues page A.7."""


class Browse:
    """`after`: position of the last shown message. `until_id`: highest id to show. `left`: messages still to show."""

    __slots__ = ("after", "left", "until_id")

    def __init__(self, until_id: int, left: int) -> None:
        self.after = 0
        self.until_id = until_id
        self.left = left
