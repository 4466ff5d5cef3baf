"""A backtracking engine, for patterns with references to their groups, or whose exact match matters.

No engine matches these in linear time, so each step is counted, and `spend` ends a search that takes too long. The
match, and its groups, are as in Perl: the leftmost, with alternatives and repetitions in their order.
"""

from collections.abc import Callable
from typing import Any

from .pattern_syntax import Alternation, Anchor, CharClass, Concatenation, Group, Node, PatternFault, Reference, Repeat

#: Maximum instructions of a pattern.
SIZE_MAX = 4000
# The instructions, each a tuple of its kind and of:
# _CHARS a class; _SPLIT the instruction to continue with, and the one to try after it; _JUMP an instruction;
# _SAVE a slot that gets the position; _AT a place; _REFERENCE a group, whether case is ignored; _AHEAD the first
# instruction of the part, the one after it, whether it is negated; _PROGRESS the slot of a loop, and the instruction
# after it; _FOUND nothing.
_CHARS, _SPLIT, _JUMP, _SAVE, _AT, _REFERENCE, _AHEAD, _PROGRESS, _FOUND = range(9)
#: Begins a waiting entry that gives a slot its old value, in place of the instruction to continue with.
_RESTORE = -1

#: Called with the number of steps taken; may raise an exception to end the search.
Spend = Callable[[int], None]
#: Steps that are counted together.
_STEPS = 64


class Backtracker:
    """A compiled tree. Raises: PatternFault, when it is too large."""

    def __init__(self, tree: Node) -> None:
        self._code: list[tuple[Any, ...]] = []
        self.groups = 0
        self._loops = 0
        self._compile(tree)
        self._emit(_FOUND)

    def find(self, text: str, start: int, spend: Spend, *, takes_empty: bool = True) -> list[int] | None:
        """Start and end of the first match from a position on, and of each of its groups (-1: not matched); or None.

        `takes_empty`: a match at that position may be empty.
        """
        for at in range(start, len(text) + 1):
            slots = [-1] * (2 * self.groups + 2 + self._loops)
            end = self._run(0, text, at, slots, spend, -1 if takes_empty or at > start else start)
            if end >= 0:
                slots[0], slots[1] = at, end
                return slots[: 2 * self.groups + 2]
        return None

    # -- compiling ----------------------------------------------------------------------------------------------------

    def _emit(self, *instruction: Any) -> int:
        self._code.append(instruction)
        if len(self._code) > SIZE_MAX:
            raise PatternFault(f"is too large: more than {SIZE_MAX} steps once its repetitions are written out")
        return len(self._code) - 1

    def _compile(self, node: Node) -> None:
        if isinstance(node, CharClass):
            self._emit(_CHARS, node)
        elif isinstance(node, Concatenation):
            for part in node.parts:
                self._compile(part)
        elif isinstance(node, Alternation):
            ends = []
            for part in node.parts[:-1]:
                split = self._emit(_SPLIT)
                self._compile(part)
                ends.append(self._emit(_JUMP))
                self._code[split] = (_SPLIT, split + 1, len(self._code))
            self._compile(node.parts[-1])
            for end in ends:
                self._code[end] = (_JUMP, len(self._code))
        elif isinstance(node, Repeat):
            self._compile_repeat(node)
        elif isinstance(node, Anchor):
            self._emit(_AT, node.place)
        elif isinstance(node, Group):
            self.groups = max(self.groups, node.number)
            self._emit(_SAVE, 2 * node.number)
            self._compile(node.part)
            self._emit(_SAVE, 2 * node.number + 1)
        elif isinstance(node, Reference):
            self.groups = max(self.groups, node.number)  # its group may be in a part that is never repeated
            self._emit(_REFERENCE, node.number, node.folded)
        else:
            ahead = self._emit(_AHEAD)
            self._compile(node.part)
            self._emit(_FOUND)
            self._code[ahead] = (_AHEAD, ahead + 1, len(self._code), node.negated)

    def _compile_repeat(self, node: Repeat) -> None:
        for _ in range(node.low):
            self._compile(node.part)
        if node.high is None:
            self._loops += 1
            loop = -self._loops  # slots of loops are counted from the end
            split = self._emit(_SPLIT)
            self._emit(_SAVE, loop)
            self._compile(node.part)
            end = self._emit(_PROGRESS) + 2
            self._emit(_JUMP, split)
            self._code[end - 2] = (_PROGRESS, loop, end)
            self._code[split] = _split(split + 1, end, node.lazy)
        else:
            splits = []
            for _ in range(node.high - node.low):
                splits.append(self._emit(_SPLIT))
                self._compile(node.part)
            for split in splits:
                self._code[split] = _split(split + 1, len(self._code), node.lazy)

    # -- running ------------------------------------------------------------------------------------------------------

    def _run(self, counter: int, text: str, at: int, slots: list[int], spend: Spend, barred: int = -1) -> int:
        """The end of the match that begins here; -1: there is none. `slots` are those of the match.

        `barred`: a position where it must not end.
        """
        code = self._code
        # Undone or tried next if something does not fit: (instruction, position, 0), or (_RESTORE, slot, its value).
        waiting: list[tuple[int, int, int]] = []
        steps = 0
        while True:
            steps += 1
            if steps == _STEPS:
                steps = 0
                spend(_STEPS)
            instruction = code[counter]
            kind = instruction[0]
            fits = True
            if kind == _CHARS:
                fits = at < len(text) and instruction[1].has(text[at])
                at += 1
                counter += 1
            elif kind == _SPLIT:
                waiting.append((instruction[2], at, 0))
                counter = instruction[1]
            elif kind == _JUMP:
                counter = instruction[1]
            elif kind == _SAVE:
                slot = instruction[1]
                waiting.append((_RESTORE, slot, slots[slot]))
                slots[slot] = at
                counter += 1
            elif kind == _PROGRESS:
                # An iteration that consumed nothing ends the loop; its groups keep their texts.
                counter = instruction[2] if slots[instruction[1]] == at else counter + 1
            elif kind == _AT:
                fits = _is_at(instruction[1], text, at)
                counter += 1
            elif kind == _REFERENCE:
                start, end = slots[2 * instruction[1]], slots[2 * instruction[1] + 1]
                fits = 0 <= start <= end and _same(text[start:end], text[at : at + end - start], instruction[2])
                at += max(end - start, 0)
                spend(max(end - start, 0) // _STEPS)
                counter += 1
            elif kind == _AHEAD:
                inner = slots.copy()
                matches = self._run(instruction[1], text, at, inner, spend) >= 0
                fits = matches != instruction[3]
                if matches and fits:
                    for slot, value in enumerate(inner):
                        if slots[slot] != value:
                            waiting.append((_RESTORE, slot, slots[slot]))
                            slots[slot] = value
                counter = instruction[2]
            elif at == barred:
                fits = False
            else:
                spend(steps)
                return at
            if not fits:
                while waiting:
                    counter, at, value = waiting.pop()
                    if counter != _RESTORE:
                        break
                    slots[at] = value
                else:
                    spend(steps)
                    return -1


def _split(on: int, out: int, lazy: bool) -> tuple[int, int, int]:
    return (_SPLIT, out, on) if lazy else (_SPLIT, on, out)


def _same(one: str, other: str, folded: bool) -> bool:
    return one == other or (folded and one.lower() == other.lower())


def _is_word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at].isascii() and (text[at].isalnum() or text[at] == "_")


def _is_at(place: str, text: str, at: int) -> bool:
    if place == "start":
        return at == 0
    if place == "very_end":
        return at == len(text)
    if place == "end":
        return at == len(text) or (at == len(text) - 1 and text[at] == "\n")
    return (_is_word(text, at - 1) != _is_word(text, at)) == (place == "boundary")
