"""Errors in the text of an expression. An error in a pattern alone is `patterns.pattern_syntax.PatternFault`."""


class ExpressionError(ValueError):
    """The text is not an expression, or exceeds a limit.

    `position`: of the first wrong character, from 0; the length of the text means its end.
    Source: queues page B.2 (choices 13 and 14).
    """

    def __init__(self, text: str, position: int, problem: str) -> None:
        super().__init__(problem)
        self.text = text
        self.position = position
        self.problem = problem

    @property
    def line(self) -> int:
        """The line of the position, from 1."""
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        """The column of the position in its line, from 1."""
        return self.position - self.text.rfind("\n", 0, self.position)

    def __str__(self) -> str:
        """One line: position and error."""
        where = f"column {self.column}" if self.line == 1 else f"line {self.line}, column {self.column}"
        return f"{where}: {self.problem}"


class UnsupportedFunction(ExpressionError):
    """A function of AMPS that is not supported here."""
