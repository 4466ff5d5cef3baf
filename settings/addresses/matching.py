"""The addresses that a match covers, and the order of matches from the most specific one.

Source: address-settings page 2.1 to 2.3. Two choices of ours: a wildcard must be a whole word, except in
configurations of Artemis; and patterns with `#` of equal length are ordered word by word, then by text.
"""

import re
from enum import Enum

from ..frozen import frozen
from ..values import shown


class MatchFault(ValueError):
    """The match (or the wildcard syntax) is invalid; the message has the reason."""


@frozen
class Wildcards:
    """The syntax of matches. `literal_markers`: empty, or the two characters around a literal match."""

    delimiter: str = "."
    any_words: str = "#"
    single_word: str = "*"
    literal_markers: str = ""

    def __post_init__(self) -> None:
        for name in ("delimiter", "any_words", "single_word"):
            if len(getattr(self, name)) != 1:
                raise MatchFault(f"{name.replace('_', '-')} must be a single character")
        if len({self.delimiter, self.any_words, self.single_word}) != 3:
            raise MatchFault("delimiter, any-words and single-word must be three different characters")
        if len(self.literal_markers) not in (0, 2):
            raise MatchFault("literal-match-markers must be exactly two characters")
        if set(self.literal_markers) & {self.delimiter, self.any_words, self.single_word}:
            raise MatchFault("literal-match-markers must differ from the delimiter and the wildcards")


DEFAULT_WILDCARDS = Wildcards()


class MatchKind(Enum):
    """How a match is looked up, in order of precedence."""

    EXACT = "exact"
    LITERAL = "literal"
    WILDCARD = "wildcard"


EXACT, LITERAL, WILDCARD = MatchKind

#: A word that no address has, in examples of what a match covers.
_ANY = "\0any"
_LITERAL_WORD, _SINGLE_WORD, _END = 0, 1, 2


@frozen
class WordPattern:
    """A word of a match that contains wildcards, as in Artemis: each stands for one or more characters."""

    text: str
    single_word: str

    def matches(self, word: str) -> bool:
        return re.fullmatch("(?s:.+)".join(map(re.escape, self.text.split(self.single_word))), word) is not None


@frozen
class Match:
    """A parsed match text. `address`: the one address of an exact or literal match."""

    text: str
    kind: MatchKind
    address: str = ""
    words: tuple[str | WordPattern | None, ...] = ()  # None: any one word
    has_any_words: bool = False

    @property
    def coverage(self) -> tuple[object, ...]:
        """A key that is equal for matches that cover the same addresses."""
        return self.kind, self.address, self.words, self.has_any_words

    @property
    def rank(self) -> tuple[bool, int, tuple[int, ...], str]:
        """Sorts wildcard matches most specific first (address-settings page 2.2, steps a to e, then the text)."""
        stars = tuple(_SINGLE_WORD if word is None else _LITERAL_WORD for word in self.words)
        stars += (_LITERAL_WORD, _END) if self.has_any_words else (_END,)
        return self.has_any_words, -len(self.text) if self.has_any_words else 0, stars, self.text


def parse_match(text: str, wildcards: Wildcards = DEFAULT_WILDCARDS, *, has_partial_words: bool = False) -> Match:
    """Parse a match. `has_partial_words`: wildcards may stand inside of words. Raises: MatchFault."""
    if not text:
        raise MatchFault("an empty match covers nothing, expected a name, a pattern or " + repr(wildcards.any_words))
    markers = wildcards.literal_markers
    if markers and text.startswith(markers[0]) and text.endswith(markers[1]) and len(text) > 1:
        inside = text[1:-1]
        if not inside:
            raise MatchFault("there is nothing between the literal markers")
        return Match(text, LITERAL, inside)
    parts = text.split(wildcards.delimiter)
    has_any_words = parts[-1] == wildcards.any_words
    if has_any_words:
        del parts[-1]
    words = tuple(_parse_word(part, wildcards, has_partial_words) for part in parts)
    if not has_any_words and all(isinstance(word, str) for word in words):
        return Match(text, EXACT, text)
    return Match(text, WILDCARD, "", words, has_any_words)


def _parse_word(part: str, wildcards: Wildcards, has_partial_words: bool) -> str | WordPattern | None:
    """A word that is not a last `#`; None: `*`."""
    any_words, single_word = wildcards.any_words, wildcards.single_word
    if part == any_words:
        raise MatchFault(f"{any_words!r} is allowed only as the last word")
    if part == single_word:
        return None
    plain = part.replace("\\" + any_words, "").replace("\\" + single_word, "")
    if has_partial_words and single_word in plain and any_words not in plain and plain == part:
        return WordPattern(part, single_word)
    for wildcard in (any_words, single_word):
        if wildcard in plain:
            last = ", and only the last" if wildcard == any_words else ""
            word = part.removesuffix(wildcard)
            meant = f", did you mean {shown(f'{word}{wildcards.delimiter}{wildcard}')}?"
            hint = meant if word and not {any_words, single_word} & set(word) else ""
            raise MatchFault(f"a wildcard must be a whole word{last}: {shown(part)} holds {wildcard!r}{hint}")
    return part


def parse_artemis_match(text: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> Match:
    """Parse a match as Artemis and HornetQ do: `a#` is `a.#`; `a*` is a word that begins with a.

    Raises: MatchFault.
    """
    word, is_any = text.removesuffix(wildcards.any_words), text.endswith(wildcards.any_words)
    if is_any and word and not word.endswith((wildcards.delimiter, wildcards.any_words, wildcards.single_word, "\\")):
        text = word + wildcards.delimiter + wildcards.any_words
    return parse_match(text, wildcards, has_partial_words=True)


def example_address(match: Match, wildcards: Wildcards) -> str:
    """An address that the match covers, with words that occur nowhere else."""
    if match.kind is not WILDCARD:
        return match.address
    words = [*match.words, *([None] if match.has_any_words else [])]
    return wildcards.delimiter.join(map(_example_word, words))


def _example_word(word: str | WordPattern | None) -> str:
    if isinstance(word, WordPattern):
        return word.text.replace(word.single_word, _ANY)
    return _ANY if word is None else word
