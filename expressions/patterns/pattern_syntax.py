"""The syntax of operators' patterns: the part of Perl's regular expressions that can be matched in linear time.

It covers RabbitMQ's permissions and policies: alternatives, groups, classes, repetitions (greedy and lazy are the same
if only the existence of a match matters), anchors, word boundaries, look-ahead, the flags i and s. Look-behind, atomic
groups, possessive repetitions and recursion are refused by name, because no engine bounds their time. So are
back-references, unless the caller allows them. Source: ruling 19; pcre2pattern(3) for the meaning of each element.
"""

import re
from dataclasses import dataclass

PATTERN_MAX = 1024
DEPTH_MAX = 50
REPEAT_MAX = 255  # names have no more octets
_TOP = 0x10FFFF


class PatternFault(ValueError):
    """A pattern that is invalid or not supported; the text says why."""


@dataclass(slots=True, frozen=True)
class CharClass:
    """One character that is in the ranges of code points, or (`negated`) in none of them."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False
    folded: bool = False  # ignores case

    def has(self, character: str) -> bool:
        forms = {character, character.lower(), character.upper()} if self.folded else {character}
        codes = [ord(form) for form in forms if len(form) == 1]
        return any(low <= code <= high for code in codes for low, high in self.ranges) != self.negated


@dataclass(slots=True, frozen=True)
class Concatenation:
    """A sequence."""

    parts: tuple["Node", ...]


@dataclass(slots=True, frozen=True)
class Alternation:
    """Alternatives."""

    parts: tuple["Node", ...]


@dataclass(slots=True, frozen=True)
class Repeat:
    """`low` to `high` times; None: without a limit. `lazy`: the fewest first, which decides where the match ends."""

    part: "Node"
    low: int
    high: int | None
    lazy: bool = False


@dataclass(slots=True, frozen=True)
class Anchor:
    """A position: `start`, `end` (also before a last newline), `very_end`, `boundary` (of a word), `no_boundary`."""

    place: str


@dataclass(slots=True, frozen=True)
class LookAhead:
    """The following text matches, or (`negated`) does not; nothing is consumed."""

    part: "Node"
    negated: bool


@dataclass(slots=True, frozen=True)
class Group:
    """A group whose text is remembered: only in patterns that may have references."""

    part: "Node"
    number: int  # from 1, in the order of opening brackets


@dataclass(slots=True, frozen=True)
class Reference:
    """The text that a group matched last, once more."""

    number: int
    folded: bool = False


Node = CharClass | Concatenation | Alternation | Repeat | Anchor | LookAhead | Group | Reference

_DIGIT = ((48, 57),)
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE = ((9, 13), (32, 32))
_BLANK = ((9, 9), (32, 32))
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "h": _BLANK}
_POSIX = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": _BLANK,
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": _SPACE,
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "e": 27, "a": 7}
_PLACES = {"A": "start", "z": "very_end", "Z": "end", "b": "boundary", "B": "no_boundary"}
_NEWLINE = ((10, 10),)
_COUNT = re.compile(r"\{([0-9]{1,9})(,([0-9]{0,9}))?\}")
_NAMED = re.compile(r"\?(?:P?<[A-Za-z_]\w{0,31}>|'[A-Za-z_]\w{0,31}')")
_FLAGS = re.compile(r"\?([is]*)(?:-([is]*))?([:)])")
_REFUSED_GROUPS = {
    "?<=": "look-behind",
    "?<!": "look-behind",
    "?>": "an atomic group",
    "?|": "a branch reset",
    "?(": "a condition",
    "?R": "recursion",
    "?&": "recursion",
    "?P>": "recursion",
    "?P=": "a back-reference",
    "*": "a control verb",
}


def parse_pattern(text: str, *, references: bool = False) -> Node:
    r"""The tree of a pattern. `references`: groups are remembered, and \1 to \9 refer to them. Raises: PatternFault."""
    if len(text) > PATTERN_MAX:
        raise PatternFault(f"is longer than {PATTERN_MAX} characters")
    parser = _Parser(text, references)
    node = parser.alternatives()
    if parser.position < len(text):
        raise parser.fault("unmatched )")
    if parser.referred > parser.groups:
        raise PatternFault(f"refers to group {parser.referred}, which does not exist")
    return node


class _Parser:
    """Recursive descent; `position` is the next character."""

    def __init__(self, text: str, references: bool) -> None:
        self.text = text
        self.references = references
        self.groups = 0  # opened so far
        self.referred = 0  # the highest group that is referred to
        self.position = 0
        self.depth = 0
        self.folded = False
        self.dot_matches_all = False

    def fault(self, problem: str) -> PatternFault:
        return PatternFault(f"{problem} at character {self.position + 1}")

    def peek(self, expected: str) -> bool:
        """Whether this comes next; it is not consumed."""
        return self.text.startswith(expected, self.position)

    def take(self, expected: str) -> bool:
        """Consume this if it comes next. Returns whether it did."""
        if self.peek(expected):
            self.position += len(expected)
            return True
        return False

    def next(self) -> str:
        if self.position >= len(self.text):
            raise self.fault("ends too early")
        self.position += 1
        return self.text[self.position - 1]

    def alternatives(self) -> Node:
        """Parse up to the end or an unmatched `)`. Flags set inside apply up to there."""
        flags = self.folded, self.dot_matches_all
        parts = [self.sequence()]
        while self.take("|"):
            parts.append(self.sequence())
        self.folded, self.dot_matches_all = flags
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.position < len(self.text) and not self.peek("|") and not self.peek(")"):
            if self.take("\\Q"):
                quoted, end, _ = self.text[self.position :].partition("\\E")
                parts += [self.literal(character) for character in quoted[:-1]]
                self.position += len(quoted) + len(end)
                if quoted:
                    parts.append(self.repeated(self.literal(quoted[-1])))
            elif not self.take("\\E"):
                parts.append(self.repeated(self.atom()))
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def literal(self, character: str) -> CharClass:
        return CharClass(((ord(character), ord(character)),), folded=self.folded)

    def repeated(self, part: Node) -> Node:
        """The quantifiers after an atom."""
        while True:
            bounds = self.quantifier()
            if bounds is None:
                return part
            if self.take("+"):
                raise self.fault("a possessive repetition is not supported")
            lazy = self.take("?")
            if not isinstance(part, Anchor | LookAhead):
                part = Repeat(part, *bounds, lazy)
            elif bounds[0] == 0:  # a position is matched once or never: more often changes nothing
                may_set_groups = self.references and bounds[1] != 0 and isinstance(part, LookAhead)
                part = Repeat(part, 0, 1, lazy) if may_set_groups else Concatenation(())

    def quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        found = _COUNT.match(self.text, self.position)
        if found is None:
            return None  # a brace without a count is literal
        low = int(found[1])
        high: int | None = low
        if found[2] is not None:  # there is a comma
            high = int(found[3]) if found[3] else None
        if max(low, high or 0) > REPEAT_MAX:
            raise self.fault(f"a repetition of more than {REPEAT_MAX}")
        if high is not None and high < low:
            raise self.fault("a repetition whose minimum is above its maximum")
        self.position = found.end()
        return low, high

    def atom(self) -> Node:
        start = self.position
        character = self.next()
        if character == "(":
            return self.group()
        if character == "[":
            return self.char_class()
        if character == ".":
            return CharClass((), negated=True) if self.dot_matches_all else CharClass(_NEWLINE, negated=True)
        if character == "^":
            return Anchor("start")
        if character == "$":
            return Anchor("end")
        if character == "\\":
            return self.escaped()
        if character in "*+?":
            self.position = start
            raise self.fault("nothing to repeat")
        return self.literal(character)

    def group(self) -> Node:
        """Parse the rest of a group after the opening bracket."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.fault(f"more than {DEPTH_MAX} nested groups")
        node = self.inside_group()
        self.depth -= 1
        return node

    def inside_group(self) -> Node:
        for sign, what in _REFUSED_GROUPS.items():
            if self.peek(sign):
                raise self.fault(f"{what} is not supported")
        if self.take("?#"):
            while self.next() != ")":
                pass
            return Concatenation(())
        for sign, negated in (("?=", False), ("?!", True)):
            if self.take(sign):
                return LookAhead(self.to_closing_bracket(), negated)
        flags = _FLAGS.match(self.text, self.position)
        if flags is not None:
            self.position = flags.end()
            before = self.folded, self.dot_matches_all
            self.folded = (self.folded or "i" in flags[1]) and "i" not in (flags[2] or "")
            self.dot_matches_all = (self.dot_matches_all or "s" in flags[1]) and "s" not in (flags[2] or "")
            if flags[3] == ")":
                return Concatenation(())  # up to the end of the enclosing group
            node = self.to_closing_bracket()
            self.folded, self.dot_matches_all = before
            return node
        named = _NAMED.match(self.text, self.position)
        if named is not None:
            self.position = named.end()
        elif self.peek("?"):
            raise self.fault("an unknown kind of group")
        if not self.references:
            return self.to_closing_bracket()
        self.groups += 1
        number = self.groups
        return Group(self.to_closing_bracket(), number)

    def to_closing_bracket(self) -> Node:
        node = self.alternatives()
        if not self.take(")"):
            raise self.fault("missing )")
        return node

    def escaped(self) -> Node:
        """Parse the rest of an escape outside of classes."""
        character = self.next()
        if character in _PLACES:
            return Anchor(_PLACES[character])
        if character == "N":
            return CharClass(_NEWLINE, negated=True)
        if character.lower() in _CLASSES:
            return CharClass(_CLASSES[character.lower()], negated=character.isupper())
        if self.references and character in "123456789" and not self.text[self.position : self.position + 1].isdigit():
            self.referred = max(self.referred, int(character))
            return Reference(int(character), self.folded)
        if character in "123456789gk":
            raise self.fault("a back-reference is not supported")
        return self.literal(chr(self.code(character)))

    def code(self, character: str) -> int:
        """The code point of an escape that stands for one character."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            found = re.compile(r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{0,2})").match(self.text, self.position)
            assert found is not None
            self.position = found.end()
            code = int(found[1] or found[2] or "0", 16)
            if code > _TOP:
                raise self.fault("no such character")
            return code
        if character == "0":
            found = re.compile("[0-7]{0,2}").match(self.text, self.position)
            assert found is not None
            self.position = found.end()
            return int("0" + found[0], 8)
        if character.isascii() and character.isalnum():
            raise self.fault(f"\\{character} is not supported")
        return ord(character)

    def char_class(self) -> CharClass:
        """Parse the rest of a class after the opening square bracket."""
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        is_first = True
        while is_first or not self.take("]"):
            is_first = False
            low = self.class_item(ranges)
            if low is None:
                continue
            if not self.peek("-") or self.peek("-]"):
                ranges.append((low, low))
                continue
            self.position += 1
            high = self.class_item(ranges)
            if high is None:  # [a-\d]: the dash is literal
                ranges += [(low, low), (45, 45)]
            elif high < low:
                raise self.fault("a range whose begin is above its end")
            else:
                ranges.append((low, high))
        return CharClass(tuple(ranges), negated, self.folded)

    def class_item(self, ranges: list[tuple[int, int]]) -> int | None:
        """One character of a class, or None if it was itself a class, which was added to `ranges`."""
        posix = re.compile(r"\[:(\^?)([a-z]{1,8}):\]").match(self.text, self.position)
        if posix is not None:
            if posix[2] not in _POSIX:
                raise self.fault(f"no such class [:{posix[2]}:]")
            self.position = posix.end()
            ranges += _complement(_POSIX[posix[2]]) if posix[1] else _POSIX[posix[2]]
            return None
        character = self.next()
        if character != "\\":
            return ord(character)
        character = self.next()
        if character.lower() in _CLASSES:
            wanted = _CLASSES[character.lower()]
            ranges += _complement(wanted) if character.isupper() else wanted
            return None
        if character == "b":
            return 8
        if character in "123456789":
            raise self.fault("an octal escape is not supported")
        return self.code(character)


def _complement(ranges: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    return [*gaps, (start, _TOP)]
