"""Topic patterns as a trie: `*` is exactly one word, `#` is any number of them, words are split at dots.

Matching visits each (node, word) pair once, so a pattern like `#.#.#.#` costs no more than its length.
Source: AMQP 0-9-1 3.1.3.3; behaviour page 3.9.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("children", "is_many", "values")

    def __init__(self, is_many: bool = False) -> None:
        self.is_many = is_many  # stands for `#`: one more word leads back to it
        self.children: dict[str, _Node[T]] = {}
        self.values: dict[T, int] = {}  # value -> how many bindings carry it here


class TopicTrie(Generic[T]):
    """A multiset of (pattern, value); look-ups give each value once."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        """Add one (pattern, value). O(words)."""
        node = self._root
        for word in split(pattern):
            node = node.children.setdefault(word, _Node(word == "#"))
        node.values[value] = node.values.get(value, 0) + 1

    def remove(self, pattern: str, value: T) -> None:
        """Take one (pattern, value) out and prune what became empty. It must be there."""
        words = split(pattern)
        path = [self._root]
        for word in words:
            path.append(path[-1].children[word])
        node = path[-1]
        node.values[value] -= 1
        if not node.values[value]:
            del node.values[value]
        for word, parent, child in zip(reversed(words), reversed(path[:-1]), reversed(path[1:])):
            if child.values or child.children:
                break
            del parent.children[word]

    def match(self, routing_key: str) -> list[T]:
        """The values whose pattern matches, each once, in no particular order."""
        words = split(routing_key)
        count = len(words)
        found: dict[T, None] = {}
        seen: set[tuple[int, int]] = set()
        stack: list[tuple[_Node[T], int]] = [(self._root, 0)]
        while stack:
            node, index = stack.pop()
            if (id(node), index) in seen:
                continue
            seen.add((id(node), index))
            if index == count:
                found.update(dict.fromkeys(node.values))
            elif node.is_many:
                stack.append((node, index + 1))
            children = node.children
            if not children:
                continue
            if index < count:
                exact = children.get(words[index])
                if exact is not None and words[index] not in ("*", "#"):
                    stack.append((exact, index + 1))
                one = children.get("*")
                if one is not None:
                    stack.append((one, index + 1))
            many = children.get("#")
            if many is not None:
                stack.append((many, index))
        return list(found)


def split(key: str) -> list[str]:
    """The words of a key or pattern: the empty key has none, empty words count."""
    return key.split(".") if key else []
