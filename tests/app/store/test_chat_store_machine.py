from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.conversation import Role
from app.store.chat_store import ChatStore


class MessageTreeMachine(RuleBasedStateMachine):
    """One conversation against a dictionary of parents and a stack of deletions."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store = ChatStore(Path(self.folder.name) / "chats.db")
        self.key = self.store.create_conversation(title="T").id
        self.parents: dict[str, str | None] = {}
        self.deleted: list[tuple[str, set[str], str | None]] = []
        self.leaf: str | None = None

    def visible(self) -> list[str]:
        hidden = {key for _, keys, _ in self.deleted for key in keys}
        return [key for key in self.parents if key not in hidden]

    def below(self, root: str) -> set[str]:
        found = {root}
        for key, parent in self.parents.items():
            if parent in found:
                found.add(key)
        return found

    def newest_leaf(self, key: str) -> str:
        while children := [item for item in self.visible() if self.parents[item] == key]:
            key = children[-1]
        return key

    @rule(at=st.integers(0, 1000), is_root=st.booleans())
    def add(self, at: int, is_root: bool) -> None:
        visible = self.visible()
        parent = None if is_root or not visible else visible[at % len(visible)]
        role = Role.ASSISTANT
        message = self.store.add_message(self.key, parent_id=parent, role=role, content="text")
        self.parents[message.id] = parent
        self.leaf = message.id

    @rule(at=st.integers(0, 1000))
    def show(self, at: int) -> None:
        if visible := self.visible():
            key = visible[at % len(visible)]
            self.leaf = self.newest_leaf(key)
            assert self.store.set_leaf(self.key, key) == self.leaf

    @rule(at=st.integers(0, 1000))
    def delete(self, at: int) -> None:
        if not (visible := self.visible()):
            return
        root = visible[at % len(visible)]
        self.store.delete_message(root)
        self.deleted.append((root, self.below(root) & set(visible), self.leaf))
        self.leaf = self.store.conversation(self.key).leaf_id
        assert self.leaf is None or self.leaf in self.visible()

    @rule()
    def undo(self) -> None:
        if self.deleted:
            root, _, self.leaf = self.deleted.pop()
            self.store.restore_message(root)
            assert self.store.conversation(self.key).leaf_id == self.leaf

    @invariant()
    def the_store_shows_what_the_oracle_knows(self) -> None:
        assert [item.id for item in self.store.messages(self.key)] == self.visible()
        path = [item.id for item in self.store.path(self.key)]
        expected: list[str] = []
        key = self.leaf
        while key is not None:
            expected.insert(0, key)
            key = self.parents[key]
        assert path == expected

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestMessageTree = MessageTreeMachine.TestCase
TestMessageTree.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
