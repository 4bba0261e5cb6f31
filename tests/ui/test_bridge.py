from __future__ import annotations

import threading

from app.events import CacheChanged, ReplyDelta, ReplyFinished
from engine.events import Channel
from tests.ui.fakes import CACHE, FakeServices, fake_messages
from ui.bridge import Bridge, merge_deltas


def delta(text: str, message_id: str = "m", channel: Channel = Channel.CONTENT) -> ReplyDelta:
    return ReplyDelta("c", message_id, text, channel, 40.0)


def test_pieces_of_one_message_are_joined() -> None:
    merged = merge_deltas([delta("a"), delta("b"), delta("c")])
    assert [event.text for event in merged] == ["abc"]


def test_pieces_of_two_messages_and_channels_stay_apart_and_in_order() -> None:
    thought = delta("t", channel=Channel.REASONING)
    merged = merge_deltas([thought, delta("a"), delta("x", "n"), delta("b"), delta("y", "n")])
    assert [(e.message_id, e.channel, e.text) for e in merged] == [
        ("m", Channel.REASONING, "t"),
        ("m", Channel.CONTENT, "ab"),
        ("n", Channel.CONTENT, "xy"),
    ]


def test_text_is_never_moved_across_another_event() -> None:
    finished = ReplyFinished(fake_messages()[1])
    merged = merge_deltas([delta("a"), finished, delta("b")])
    assert [getattr(event, "text", "end") for event in merged] == ["a", "end", "b"]


def test_events_of_a_thread_arrive_on_the_gui_thread_in_order(qtbot, services) -> None:
    bridge = Bridge(services.subscribe)
    seen: list[object] = []
    threads: set[int] = set()

    def take(event: object) -> None:
        seen.append(event)
        threads.add(threading.get_ident())

    bridge.reply_delta.connect(take)
    bridge.reply_finished.connect(take)
    finished = ReplyFinished(fake_messages()[1])

    def work() -> None:
        for number in range(500):
            services.emit(delta(f"{number} "))
        services.emit(finished)

    thread = threading.Thread(target=work)
    thread.start()
    qtbot.waitUntil(lambda: finished in seen)
    thread.join()
    text = "".join(event.text for event in seen if isinstance(event, ReplyDelta))
    assert text.split() == [str(number) for number in range(500)]
    assert seen[-1] is finished
    assert threads == {threading.get_ident()}
    bridge.close()


def test_text_arrives_at_thirty_hertz_not_per_token(qtbot, services) -> None:
    bridge = Bridge(services.subscribe)
    seen: list[ReplyDelta] = []
    bridge.reply_delta.connect(seen.append)
    for _ in range(100):
        services.emit(delta("x"))
    qtbot.waitUntil(lambda: sum(len(event.text) for event in seen) == 100)
    assert len(seen) == 1
    bridge.close()


def test_closed_bridge_is_silent(qtbot, services: FakeServices) -> None:
    bridge = Bridge(services.subscribe)
    seen: list[CacheChanged] = []
    bridge.cache_changed.connect(seen.append)
    services.emit(CACHE)
    bridge.close()
    bridge.receive(CACHE)
    qtbot.wait(20)
    assert seen == []
