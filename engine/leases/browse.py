"""Looking through a leased queue without taking anything: where one reader stands. Source: queues page A.7."""


class Browse:
    """`after`: the position of what was shown last. `until_id`: later messages are not shown. `left`: how many more."""

    __slots__ = ("after", "left", "until_id")

    def __init__(self, until_id: int, left: int) -> None:
        self.after = 0
        self.until_id = until_id
        self.left = left
