"""Text that is safe for terminals, whatever names clients and files contain.

Characters without a glyph are escaped as Python escapes them: ESC, BEL, NUL and the other controls of ASCII and
Latin-1, overrides of the writing direction, invisible characters, line separators, halves of surrogate pairs.
"""

from collections.abc import Sequence


def printable(text: str) -> str:
    """One line: line breaks are escaped, like all characters that are not printable. O(text)."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def printable_lines(text: str) -> str:
    """Several lines: line breaks stay."""
    return "\n".join(map(printable, text.split("\n")))


def and_more(first: Sequence[str], number: int) -> str:
    """The first of `number` names, and how many others there are."""
    more = number - len(first)
    return ", ".join(first) + (f" and {more:,} more" if more > 0 else "")
