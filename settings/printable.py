"""Text for people's terminals: names that clients and files chose steer none of them (a leaf: imports nothing of ours).

What has no glyph of its own is written as Python writes it: ESC, BEL, NUL and the other controls of ASCII and Latin-1,
overrides of the writing direction, invisible characters, line separators, halves of surrogate pairs.
"""


def printable(text: str) -> str:
    """One line: line breaks are written as well as all other characters that are not printable. O(text)."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def printable_lines(text: str) -> str:
    """Text of ours in several lines, with names in it: the line breaks stay."""
    return "\n".join(map(printable, text.split("\n")))
