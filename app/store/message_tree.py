"""The tree of one conversation's messages, without their text. Runs no query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stands among its siblings; version is 1-based."""

    version: int
    num_versions: int


class MessageTree:
    """Parent links of the messages that are not deleted, oldest first."""

    def __init__(self, links: Iterable[tuple[str, str | None]]) -> None:
        """links: (id, parent_id) in the order of writing."""
        self._parents = dict(links)
        self._children: dict[str | None, list[str]] = defaultdict(list)
        for message_id, parent_id in self._parents.items():
            self._children[parent_id].append(message_id)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._parents

    def __len__(self) -> int:
        return len(self._parents)

    def ids(self) -> list[str]:
        """Return the ids of all messages, oldest first."""
        return list(self._parents)

    def path(self, leaf_id: str | None) -> list[str]:
        """Return the ids from the first message to leaf_id; empty when it is not in the tree."""
        path: list[str] = []
        seen: set[str] = set()
        current = leaf_id
        while current in self._parents and current not in seen:
            seen.add(current)
            path.append(current)
            current = self._parents[current]
        path.reverse()
        return path

    def siblings(self, message_id: str) -> list[str]:
        """Return the versions of a message, itself included, oldest first."""
        return self._children[self._parents[message_id]]

    def place(self, message_id: str) -> Place:
        """Return the place of a message among its siblings."""
        siblings = self.siblings(message_id)
        return Place(siblings.index(message_id) + 1, len(siblings))

    def newest_leaf(self, message_id: str | None) -> str | None:
        """Follow the newest child down; None starts above the first message."""
        current = message_id
        seen: set[str | None] = set()
        while current not in seen and (children := self._children.get(current)):
            seen.add(current)
            current = children[-1]
        return current
