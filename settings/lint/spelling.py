"""Whether one name may be a typing error for another, and which known names are near unknown ones.

Made for names that applications may also declare while the broker runs: better no hint than a wrong one. Names that
differ in digits (`eu-1`, `eu-2`), in short words (`orders.eu`, `orders.us`) or by their first or last letter
(`dead`, `read`; `shardA`, `shardB`) are different names.
"""

from collections.abc import Collection, Iterable
from itertools import pairwise

#: Shorter words are not checked.
WORD_MIN = 4
#: More names than this are written by a program, without typing errors; and a reload must not take too long.
NAMES_MAX = 2_000
_SEPARATORS = dict.fromkeys(map(ord, " ./:_-"))


def looks_like(name: str, other: str) -> bool:
    """Whether one letter is added, missing or different, or two are exchanged; or only case and separators differ."""
    if name == other:
        return False
    one, two = name.casefold(), other.casefold()
    if one.translate(_SEPARATORS) == two.translate(_SEPARATORS):
        return len(one) >= WORD_MIN
    start = _common(one, two)
    end = _common(one[start:][::-1], two[start:][::-1])
    left, right = one[start : len(one) - end], two[start : len(two) - end]
    changed = left + right
    if not changed.isalpha():
        return False
    if len(changed) == 4 and left == right[::-1]:
        pass  # two are exchanged
    elif len(changed) == 2 and left and right:
        if not end or one[len(one) - end].translate(_SEPARATORS) == "":
            return False  # another last letter
        if _is_first(one, start):
            return False
    elif len(changed) != 1 or _is_first(one, start):
        return False
    return min(_word_length(one, start), _word_length(two, start)) >= WORD_MIN


def near(names: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """name -> the first by name of the known ones that look like it. O(letters of all names, squared for each)."""
    names = set(names)
    if len(names) > NAMES_MAX or len(known) > NAMES_MAX:
        return {}
    by_variant: dict[str, list[str]] = {}
    for name in names:
        for variant in _variants(name):
            by_variant.setdefault(variant, []).append(name)
    found: dict[str, str] = {}
    for one in known if by_variant else ():
        for variant in _variants(one):
            for name in by_variant.get(variant, ()):
                if looks_like(name, one):
                    found[name] = min(one, found.get(name, one))
    return found


def _variants(name: str) -> set[str]:
    """Two names that differ in one letter share one of these."""
    plain = name.casefold().translate(_SEPARATORS)
    return {plain, *(plain[:place] + plain[place + 1 :] for place in range(len(plain)))}


def _common(one: str, two: str) -> int:
    """The length of the common beginning."""
    count = 0
    for left, right in zip(one, two):
        if left != right:
            break
        count += 1
    return count


def _is_first(text: str, place: int) -> bool:
    return place == 0 or ord(text[place - 1]) in _SEPARATORS


def _word_length(text: str, place: int) -> int:
    """The length of the word that contains the letter, or the end, at `place`."""
    breaks = [-1, *(index for index, letter in enumerate(text) if ord(letter) in _SEPARATORS), len(text)]
    return max(after - before - 1 for before, after in pairwise(breaks) if before < place <= after)
