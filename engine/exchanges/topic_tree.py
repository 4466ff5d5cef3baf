"""A radix tree of topic patterns with some `*`, and `#` at most at the end, compared word by word from the start.

Words without a branch between them share one edge, so there are at most twice as many nodes as patterns. A node can
match only at one position of a key, so a look-up visits it at most once.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Generic, TypeVar

from .counted import Held, values_of, with_one, without_one

T = TypeVar("T")

Words = tuple[str, ...]


class _Node(Generic[T]):
    """`label`: the words from the parent to this node. `values`: those of the pattern that ends at this node; `beyond`:
    those of the pattern that continues with a `#`.

    `pick` selects the exact words of a part of a key, to be compared with `wanted`: 10 times as fast as a Python loop.
    """

    __slots__ = ("beyond", "children", "label", "pick", "values", "wanted")

    def __init__(self, label: Words) -> None:
        self.relabel(label)
        self.children: dict[str, _Node[T]] | None = None  # by the first words of their labels
        self.values: Held[T] = None
        self.beyond: Held[T] = None

    def relabel(self, label: Words) -> None:
        self.label = label
        exact = [place for place, word in enumerate(label) if word != "*"]
        self.pick: Callable[[list[str]], Any]
        if len(exact) == len(label):
            self.pick = tuple
        elif exact:
            self.pick = itemgetter(*exact)
        else:
            self.pick = len
        self.wanted = self.pick(label)

    def put(self, child: "_Node[T]") -> None:
        if self.children is None:
            self.children = {}
        self.children[child.label[0]] = child


class TopicTree(Generic[T]):
    """A multiset of (normalised words of a pattern, value)."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node(())

    def add(self, words: Words, value: T) -> None:
        """Add a pair of pattern and value. O(words)."""
        ends_with_hash = words[-1:] == ("#",)
        node, rest = self._root, words[:-1] if ends_with_hash else words
        while rest:
            child = node.children.get(rest[0]) if node.children is not None else None
            if child is None:
                child = _Node(rest)
                node.put(child)
            common = _common(child.label, rest)
            if common < len(child.label):
                child = _split(node, child, common)
            node, rest = child, rest[common:]
        if ends_with_hash:
            node.beyond = with_one(node.beyond, value)
        else:
            node.values = with_one(node.values, value)

    def remove(self, words: Words, value: T) -> None:
        """Remove a pair, which must be there, and the nodes that are no longer needed."""
        ends_with_hash = words[-1:] == ("#",)
        rest = words[:-1] if ends_with_hash else words
        node = self._root
        path = [node]
        while rest:
            assert node.children is not None
            node = node.children[rest[0]]
            path.append(node)
            rest = rest[len(node.label) :]
        if ends_with_hash:
            node.beyond = without_one(node.beyond, value)
        else:
            node.values = without_one(node.values, value)
        while len(path) > 1 and _dissolve(path[-2], path[-1]):
            path.pop()

    def match(self, words: list[str], found: dict[T, None]) -> int:
        """Add the values of matching patterns to `found`. O(words x branches that `*` opens).

        Returns the number of visited nodes.
        """
        count = len(words)
        visited = 0
        stack: list[tuple[_Node[T], int]] = [(self._root, 0)]
        while stack:
            node, start = stack.pop()
            visited += 1
            end = start + len(node.label)
            if end > count or node.pick(words[start:end]) != node.wanted:
                continue
            if node.beyond is not None:
                found.update(dict.fromkeys(values_of(node.beyond)))
            if end == count:
                if node.values is not None:
                    found.update(dict.fromkeys(values_of(node.values)))
            elif node.children is not None:
                star = node.children.get("*")
                if star is not None:
                    stack.append((star, end))
                exact = node.children.get(words[end])
                if exact is not None and exact is not star:
                    stack.append((exact, end))
        return visited


def _common(label: Words, words: Words) -> int:
    """The length of the common prefix, in words."""
    if label == words[: len(label)]:
        return len(label)
    return next(index for index, (one, other) in enumerate(zip((*label, None), (*words, None))) if one != other)


def _split(parent: _Node[T], child: _Node[T], common: int) -> _Node[T]:
    """Insert a node between the two, after the first `common` words of the child's label."""
    middle: _Node[T] = _Node(child.label[:common])
    child.relabel(child.label[common:])
    middle.put(child)
    parent.put(middle)
    return middle


def _dissolve(parent: _Node[T], node: _Node[T]) -> bool:
    """Remove a node without values and children, or merge it with its only child. Returns whether it was removed."""
    if node.values is not None or node.beyond is not None:
        return False
    assert parent.children is not None
    if not node.children:
        del parent.children[node.label[0]]
        return True
    if len(node.children) == 1:
        (child,) = node.children.values()
        child.relabel(node.label + child.label)
        parent.put(child)
    return False
