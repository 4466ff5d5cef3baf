"""What is wrong with the text of an expression: the only two exceptions that this room raises."""


class ExpressionError(ValueError):
    """The text is no expression, or a larger one than is allowed.

    `position`: of the first character that is wrong, from 0; the length of the text means its end.
    Source: queues page B.2 (choices 13 and 14).
    """

    def __init__(self, text: str, position: int, problem: str) -> None:
        super().__init__(problem)
        self.text = text
        self.position = position
        self.problem = problem

    @property
    def line(self) -> int:
        """Of the position, from 1."""
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        """Of the position in its line, from 1."""
        return self.position - self.text.rfind("\n", 0, self.position)

    def __str__(self) -> str:
        """One line: where, and what."""
        where = f"column {self.column}" if self.line == 1 else f"line {self.line}, column {self.column}"
        return f"{where}: {self.problem}"

    def picture(self) -> str:
        """The line with a caret below the position. Tabs stay, so that both lines are shown alike."""
        line = self.text.split("\n")[self.line - 1]
        before = "".join("\t" if character == "\t" else " " for character in line[: self.column - 1])
        return f"{line}\n{before}^"


class UnsupportedFunction(ExpressionError):
    """A function that AMPS has, and that is not taken here."""
