"""Services without an engine: the same surface, lists instead of databases, realistic data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from app.conversation import (
    Conversation,
    Message,
    MessageStatus,
    Readiness,
    ReadyTier,
    ReplyStats,
    Role,
    SearchHit,
)
from app.events import (
    AppEvent,
    CacheChanged,
    ConversationChanged,
    Listener,
    ModelInfo,
    ModelLoaded,
    SharedStoreChanged,
)
from app.model_library import ModelEntry
from app.settings import Settings
from app.store.kv_store import Compacted, Verified
from app.store.kv_usage import ConversationUse
from app.transcript import Transcript
from engine.config import SamplingParams
from engine.events import ReusedTokens, Timing, Usage
from engine.memory.interface import MemoryBreakdown, TierUse

GIB = 1 << 30
MIB = 1 << 20
NOW = datetime.now(UTC)

MODEL = ModelInfo(
    path="/models/SmolLM2-135M-Instruct.Q4_1.gguf",
    name="SmolLM2 135M Instruct",
    architecture="llama",
    size_bytes=98 * MIB,
    num_parameters=134_515_008,
    quantisation="Q4_1",
    context_length=8192,
    trained_context_length=8192,
    has_chat_template=True,
    kv_codec="f16",
    kv_bytes_per_token=(("f16", 23_040), ("bf16", 23_040), ("f32", 46_080), ("int8", 12_240)),
    block_size=32,
    compute="native AVX2",
    num_threads=2,
    load_ms=412.0,
)

CACHE = CacheChanged(
    breakdown=MemoryBreakdown(
        tiers=(
            TierUse("hot", 412 * MIB, 1024 * MIB, 586),
            TierUse("warm", 130 * MIB, 2 * GIB, 185),
            TierUse("cold", 1_730 * MIB, 10 * GIB, 2460),
        ),
        shared_blocks=128,
        saved_bytes=96 * MIB,
        bytes_per_token=23_040,
        block_size=32,
    ),
    reuse_rate=0.94,
    tokens_per_second=41.3,
    pending_writes=0,
    cold_used_bytes=1_730 * MIB,
    cold_budget_bytes=10 * GIB,
)

REPLY = """A KV cache keeps the **keys** and **values** of every token the model has read.

1. Without it, each new token reads the whole text again.
2. With it, each new token reads only itself.

```python
def attend(q, k, v):
    scores = q @ k.T / math.sqrt(q.shape[-1])
    return softmax(scores) @ v
```

The price is memory: about 23 KB per token for this model."""

STATS = ReplyStats(
    usage=Usage(3953, ReusedTokens(hot=3912), 128),
    timing=Timing(0.0, 180.0, 240.0, 41.3),
    model="SmolLM2 135M Instruct",
)

_ROWS = (
    ("What a KV cache is", 0, ReadyTier.HOT, 0.0, {"is_pinned": True}),
    ("Weekend in Lisbon: trains and a small hotel", 3, ReadyTier.HOT, 0.02, {}),
    ("Refactor the invoice parser", 40, ReadyTier.WARM, 0.1, {"is_unread": True}),
    ("中文诗歌的格律与翻译", 180, ReadyTier.COLD, 0.4, {}),
    ("Letter to the landlord about the heating", 1500, ReadyTier.NONE, 38.0, {}),
    ("Thesis, chapter two, second reading", 9000, ReadyTier.COLD, 1.2, {}),
    ("", 40_000, ReadyTier.NONE, 3.0, {}),
)


def fake_messages(conversation_id: str = "c0", *, turns: int = 2) -> list[Message]:
    """Return a linear conversation of question and answer."""
    result: list[Message] = []
    for number in range(turns * 2):
        is_reply = number % 2 == 1
        result.append(
            Message(
                id=f"{conversation_id}-m{number}",
                conversation_id=conversation_id,
                parent_id=result[-1].id if result else None,
                role=Role.ASSISTANT if is_reply else Role.USER,
                content=REPLY if is_reply else f"Question {number // 2}: what is a KV cache?",
                created_at=NOW - timedelta(minutes=turns * 2 - number),
                stats=STATS if is_reply else None,
            )
        )
    return result


def fake_conversations() -> list[Conversation]:
    """Return conversations of every badge, pinned first."""
    return [
        Conversation(
            id=f"c{index}",
            title=title,
            created_at=NOW - timedelta(minutes=minutes),
            updated_at=NOW - timedelta(minutes=minutes),
            position=float(index),
            num_tokens=3953,
            **flags,
        )
        for index, (title, minutes, _, _, flags) in enumerate(_ROWS)
    ]


@dataclass
class FakeChat:
    """ChatService over dictionaries; ``calls`` records what the window asked for."""

    emit: Callable[[AppEvent], None]
    rows: dict[str, Conversation] = field(default_factory=dict)
    messages: dict[str, list[Message]] = field(default_factory=dict)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    ids: count[int] = field(default_factory=lambda: count(100))

    def conversations(self, *, include_archived: bool = False) -> list[Conversation]:
        shown = [row for row in self.rows.values() if not row.is_deleted]
        return [row for row in shown if include_archived or not row.is_archived]

    def path(self, conversation_id: str) -> list[Message]:
        return list(self.messages.get(conversation_id, []))

    def conversation(self, conversation_id: str) -> Conversation:
        return self.rows[conversation_id]

    def close_shown(self) -> None:
        self.calls.append(("close_shown",))

    def open(self, conversation_id: str) -> list[Message]:
        self.calls.append(("open", conversation_id))
        self.rows[conversation_id] = replace(self.rows[conversation_id], is_unread=False)
        return self.path(conversation_id)

    def move(self, conversation_id: str, *, before_id: str | None) -> None:
        self.calls.append(("move", conversation_id, before_id))

    def set_folder(self, conversation_id: str, folder: str) -> None:
        self._change(conversation_id, folder=folder)

    def new_conversation(self, *, system_prompt: str = "") -> Conversation:
        now = datetime.now(UTC)
        row = Conversation(f"c{next(self.ids)}", "", now, now, system_prompt=system_prompt)
        self.rows = {row.id: row, **self.rows}
        self.emit(ConversationChanged(row.id))
        return row

    def send(self, conversation_id: str, text: str) -> tuple[Message, Message]:
        self.calls.append(("send", conversation_id, text))
        path = self.messages.setdefault(conversation_id, [])
        user = self._message(conversation_id, Role.USER, text)
        reply = self._message(conversation_id, Role.ASSISTANT, "", MessageStatus.STREAMING)
        path += [user, reply]
        self.rows[conversation_id] = replace(self.rows[conversation_id], leaf_id=reply.id)
        self.emit(ConversationChanged(conversation_id))
        return user, reply

    def regenerate(self, message_id: str) -> Message:
        self.calls.append(("regenerate", message_id))
        return self._find(message_id)

    def edit(self, message_id: str, text: str) -> tuple[Message, Message]:
        self.calls.append(("edit", message_id, text))
        found = self._find(message_id)
        row = self.rows[found.conversation_id]
        self.rows[row.id] = replace(row, leaf_id=f"m{next(self.ids)}")
        return found, found

    def continue_reply(self, message_id: str) -> Message:
        self.calls.append(("continue", message_id))
        return self._find(message_id)

    def stop(self, conversation_id: str) -> None:
        self.calls.append(("stop", conversation_id))

    def show_version(self, message_id: str) -> list[Message]:
        self.calls.append(("show_version", message_id))
        return self.path(self._find(message_id).conversation_id)

    def versions(self, message_id: str) -> list[Message]:
        return [self._find(message_id)]

    def delete_message(self, message_id: str) -> None:
        self.calls.append(("delete_message", message_id))

    def undo_delete_message(self, message_id: str) -> None:
        self.calls.append(("undo_delete_message", message_id))

    def delete_conversation(self, conversation_id: str) -> None:
        self.calls.append(("delete_conversation", conversation_id))
        self._change(conversation_id, is_deleted=True)

    def undo_delete_conversation(self, conversation_id: str) -> None:
        self.calls.append(("undo_delete_conversation", conversation_id))
        self._change(conversation_id, is_deleted=False)

    def rename(self, conversation_id: str, title: str) -> None:
        self._change(conversation_id, title=title)

    def set_pinned(self, conversation_id: str, is_pinned: bool) -> None:
        self._change(conversation_id, is_pinned=is_pinned)

    def set_archived(self, conversation_id: str, is_archived: bool) -> None:
        self._change(conversation_id, is_archived=is_archived)

    def set_draft(self, conversation_id: str, text: str) -> None:
        self.rows[conversation_id] = replace(self.rows[conversation_id], draft=text)

    def set_system_prompt(self, conversation_id: str, text: str) -> None:
        self._change(conversation_id, system_prompt=text)

    def set_sampling(self, conversation_id: str, sampling: SamplingParams | None) -> None:
        self._change(conversation_id, sampling=sampling)

    def search(self, text: str) -> list[SearchHit]:
        return [
            SearchHit(row.id, None, f"… the \u2068{text}\u2069 as it was said in the text")
            for row in self.rows.values()
            if text.lower() in (row.title + "cache").lower()
        ]

    def readiness(self, conversation_id: str) -> Readiness | None:
        index = int(conversation_id[1:])
        if index >= len(_ROWS):
            return None
        _, _, tier, seconds, _ = _ROWS[index]
        ready = 0 if tier is ReadyTier.NONE else 3912
        return Readiness(tier, ready, 3953 - ready, seconds)

    def prefetch(self, conversation_id: str) -> None:
        self.calls.append(("prefetch", conversation_id))

    def is_busy(self, conversation_id: str) -> bool:
        return False

    def context_use(self, conversation_id: str) -> tuple[int, int] | None:
        return (3953, 8192)

    def set_message_pinned(self, message_id: str, is_pinned: bool) -> Message:
        self.calls.append(("set_message_pinned", message_id, is_pinned))
        return self.change_message(message_id, is_pinned=is_pinned)

    @property
    def full_context(self) -> FakeFullContext:
        return FakeFullContext(self)

    def change_message(self, message_id: str, **values: object) -> Message:
        """Change a row as the store would."""
        message = replace(self._find(message_id), **values)
        path = self.messages[message.conversation_id]
        path[[row.id for row in path].index(message_id)] = message
        return message

    def _change(self, conversation_id: str, **values: object) -> None:
        self.rows[conversation_id] = replace(self.rows[conversation_id], **values)
        self.emit(ConversationChanged(conversation_id))

    def _find(self, message_id: str) -> Message:
        return next(m for path in self.messages.values() for m in path if m.id == message_id)

    def _message(
        self,
        conversation_id: str,
        role: Role,
        text: str,
        status: MessageStatus = MessageStatus.COMPLETE,
    ) -> Message:
        now = datetime.now(UTC)
        number = next(self.ids)
        return Message(f"m{number}", conversation_id, None, role, text, now, status=status)


@dataclass
class FakeFullContext:
    """FullContext that only remembers what it was told."""

    chat: FakeChat

    def choose(self, reply_id: str, policy: str) -> Message:
        self.chat.calls.append(("choose", reply_id, policy))
        return self.chat.change_message(reply_id, status=MessageStatus.STREAMING)

    def cancel(self, reply_id: str) -> str:
        self.chat.calls.append(("cancel", reply_id))
        path = self.chat.messages[self.chat._find(reply_id).conversation_id]
        text = path[-2].content
        del path[-2:]
        return text

    def start_over(self, reply_id: str) -> Conversation:
        self.chat.calls.append(("start_over", reply_id))
        return self.chat.new_conversation()


@dataclass
class FakeChats:
    """The part of ChatStore that import, export and the history use."""

    chat: FakeChat
    imported: list[Transcript] = field(default_factory=list)

    def add_transcript(self, transcript: Transcript) -> None:
        self.imported.append(transcript)

    def path(self, conversation_id: str) -> list[Message]:
        return self.chat.path(conversation_id)

    def messages(self, conversation_id: str) -> list[Message]:
        return self.chat.path(conversation_id)

    def conversations(self, *, include_archived: bool = False) -> list[Conversation]:
        return self.chat.conversations(include_archived=include_archived)


@dataclass
class FakeKV:
    """A store of states with a few conversations in it."""

    uses: list[ConversationUse] = field(default_factory=list)

    def usage(self) -> list[ConversationUse]:
        return list(self.uses)

    def used_bytes(self) -> int:
        return sum(use.own_bytes for use in self.uses)

    def forget(self, conversation_id: str) -> None:
        self.uses = [use for use in self.uses if use.conversation_id != conversation_id]

    def flush(self, timeout: float) -> bool:
        return True

    def clear(self) -> int:
        freed, self.uses = self.used_bytes(), []
        return freed

    def verify(self) -> Verified:
        return Verified(len(self.uses), self.used_bytes(), 0)

    def compact(self) -> Compacted:
        return Compacted(self.used_bytes() + 3 * MIB, self.used_bytes())


def fake_uses() -> list[ConversationUse]:
    """Return what seven conversations keep, biggest first."""
    last_use = int(NOW.timestamp() * 1e6)
    return [
        ConversationUse(f"c{n}", b"\x01" * 32, 1, 3953, 124, (90 - 10 * n) * MIB, 4 * MIB, last_use)
        for n in range(7)
    ]


@dataclass
class FakeWorker:
    """EngineWorker that only remembers what it was told."""

    model: ModelInfo | None = None
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def load_model(self, path: Path) -> None:
        self.calls.append(("load_model", Path(path)))

    def cancel_load(self) -> None:
        self.calls.append(("cancel_load",))

    def unload_model(self) -> None:
        self.calls.append(("unload_model",))


@dataclass
class FakeSettings:
    """SettingsStore in memory."""

    value: Settings = field(default_factory=Settings)

    def update(self, **changes: object) -> Settings:
        self.value = replace(self.value, **changes)
        return self.value


@dataclass
class FakeLibrary:
    """ModelLibrary over a tuple."""

    rows: tuple[ModelEntry, ...] = ()

    def entries(self) -> tuple[ModelEntry, ...]:
        return self.rows

    def scan(self) -> tuple[ModelEntry, ...]:
        return self.rows


@dataclass
class FakePaths:
    """Folders of a home that may not exist."""

    home: Path

    @property
    def models(self) -> Path:
        return self.home / "models"


class FakeShared:
    """SharedStore without a server."""

    def __init__(self) -> None:
        self.state = SharedStoreChanged()
        self.brought: list[str] = []

    def bring(self, conversation_ids: list[str]) -> None:
        self.brought += conversation_ids


class FakeServices:
    """Services for the window: conversations of every badge, a library, no thread."""

    def __init__(self, home: Path = Path("/nonexistent"), *, is_empty: bool = False) -> None:
        self._listeners: list[Listener] = []
        self.paths = FakePaths(home)
        self.settings = FakeSettings()
        self.worker = FakeWorker()
        self.library = FakeLibrary(() if is_empty else fake_entries())
        self.chat = FakeChat(self.emit)
        self.chats = FakeChats(self.chat)
        self.shared = FakeShared()
        self.kv = FakeKV([] if is_empty else fake_uses())
        self.is_closed = False
        if not is_empty:
            self.chat.rows = {row.id: row for row in fake_conversations()}
            self.chat.messages = {key: fake_messages(key) for key in self.chat.rows}

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def emit(self, event: AppEvent) -> None:
        for listener in list(self._listeners):
            listener(event)

    def load(self) -> None:
        """Behave as if a model had been loaded."""
        self.worker.model = MODEL
        self.emit(ModelLoaded(MODEL))
        self.emit(CACHE)

    def close(self, timeout_s: float = 2.0) -> bool:
        self.is_closed = True
        return True


def fake_entries() -> tuple[ModelEntry, ...]:
    """Return library rows, one of them damaged."""
    return (
        ModelEntry(MODEL.path, MODEL.name, MODEL.size_bytes, "llama", "Q4_1", 8192),
        ModelEntry("/models/gemma.gguf", "Gemma 3 1B it", 769 * MIB, "gemma3", "Q4_K_M", 32_768),
        ModelEntry("/models/qwen.gguf", "Qwen3 30B A3B", 17 * GIB, "qwen3moe", "Q4_K_M", 40_960),
        ModelEntry("/models/cut.gguf", "cut", 3 * MIB, error="The file ends too early."),
    )
