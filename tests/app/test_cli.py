"""The command line over an engine without a model: what is printed, and what ends in an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import app.services
from app.cli import parse, run
from app.paths import app_paths
from app.store.chat_store import ChatStore
from engine.errors import UnsupportedModelError
from tests.app.fake_engine import FakeEngine, FakeLoader


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, reprise_home: Path) -> FakeEngine:
    engine = FakeEngine(Path("model.gguf"))
    engine.loader = FakeLoader(engine)
    original = app.services.Services.__init__
    monkeypatch.setattr(
        app.services.Services,
        "__init__",
        lambda self, paths: original(self, paths, loader=engine.loader),
    )
    return engine


def reprise(*arguments: str) -> int:
    return run(arguments, open_window=lambda files: pytest.fail("a window was opened"))


def test_without_a_command_the_window_opens():
    opened: list[object] = []
    assert run([], open_window=lambda files: opened.append(list(files)) or 0) == 0
    assert run(["window", "a.gguf"], open_window=lambda f: opened.append(list(f)) or 0) == 0
    assert opened == [[], ["a.gguf"]]


def test_ask_prints_the_answer(engine, capsys):
    assert reprise("ask", "Hello", "--model", "model.gguf") == 0
    assert capsys.readouterr().out == "one two three\n"


def test_what_goes_wrong_inside_is_in_the_log_and_not_on_the_screen(engine, capsys):
    engine.fails_with = RuntimeError("a bug")
    assert reprise("ask", "Hello", "--model", "model.gguf") == 1
    assert "Something went wrong inside Reprise." in capsys.readouterr().err
    log = (app_paths().logs / "command.log").read_text(encoding="utf-8")
    assert "RuntimeError: a bug" in log


def test_ask_prints_one_json_object(engine, capsys):
    arguments = ("--temperature", "0", "--seed", "3", "--max-tokens", "9", "--system", "Be kind.")
    assert reprise("ask", "Hello", "--model", "model.gguf", *arguments, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {
        "conversation",
        "text",
        "token_ids",
        "finish_reason",
        "usage",
        "timing",
        "miss_reason",
        "left_out",
    }
    assert answer["text"] == "one two three"
    assert answer["token_ids"] == [0, 1, 2]
    assert answer["finish_reason"] == "stop"
    assert answer["usage"] == {
        "prompt_tokens": 10,
        "reused_tokens": 5,
        "reused_from": {"hot": 5, "warm": 0, "cold": 0},
        "recomputed_tokens": 5,
        "completion_tokens": 3,
    }
    assert set(answer["timing"]) == {
        "load_ms",
        "restore_ms",
        "prefill_ms",
        "first_token_ms",
        "decode_tokens_per_second",
        "mean_batch_size",
    }
    (request,) = engine.asked
    assert request.sampling.temperature == 0.0
    assert request.sampling.seed == 3
    assert request.max_tokens == 9
    assert request.messages[0].content == "Be kind."


def test_ask_takes_another_share_of_layers_for_one_run(engine, capsys):
    for wish, share in (("0.5", 0.5), ("auto", None)):
        assert reprise("ask", "Hello", "--model", "model.gguf", "--offload-share", wish) == 0
        assert engine.loader.configs[-1].offload_share == share
    assert reprise("ask", "Hello", "--model", "model.gguf") == 0
    assert engine.loader.configs[-1].offload_share == 0.0
    with pytest.raises(SystemExit):
        reprise("ask", "Hello", "--offload-share", "2")


def test_ask_draws_several_answers(engine, capsys):
    assert reprise("ask", "Hello", "--model", "model.gguf", "--n", "3") == 0
    shown = capsys.readouterr().out
    assert shown == "".join(f"[{number}] one two three\n\n" for number in (1, 2, 3))
    assert reprise("ask", "Hello", "--model", "model.gguf", "--n", "2", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"conversation", "completions"}
    assert [one["text"] for one in answer["completions"]] == ["one two three"] * 2
    assert {one["conversation"] for one in answer["completions"]} == {answer["conversation"]}


def test_ask_goes_on_with_a_conversation(engine, capsys):
    reprise("ask", "Hello", "--model", "model.gguf", "--json")
    conversation = json.loads(capsys.readouterr().out)["conversation"]
    reprise("ask", "More", "--model", "model.gguf", "--conversation", conversation)
    assert [message.content for message in engine.asked[-1].messages] == [
        "Hello",
        "one two three",
        "More",
    ]


def test_what_was_answered_in_the_terminal_is_not_unread(engine, monkeypatch, capsys):
    reprise("ask", "Hello", "--model", "model.gguf")
    lines = iter(["Hello", "/quit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    reprise("chat", "--model", "model.gguf")
    store = ChatStore(app_paths().chats)
    assert [row.is_unread for row in store.conversations()] == [False, False]
    store.close()


def test_an_unknown_conversation_is_an_error_in_plain_words(engine, capsys):
    assert reprise("ask", "Hello", "--model", "model.gguf", "--conversation", "nope") == 1
    assert "no longer there" in capsys.readouterr().err


def test_a_model_that_cannot_be_loaded_is_an_error_in_plain_words(engine, capsys):
    assert reprise("ask", "Hello", "--model", "broken.gguf") == 1
    assert capsys.readouterr().err.splitlines() == ["The file is damaged.", "offset 12"]


def test_without_any_model_ask_says_what_to_do(engine, capsys):
    assert reprise("ask", "Hello") == 1
    assert "--model" in capsys.readouterr().err


def test_conversations_are_listed(capsys):
    store = ChatStore(app_paths().chats)
    conversation = store.create_conversation(title="Tides")
    store.close()
    assert reprise("conversations", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["title"]) == (conversation.id, "Tides")
    assert reprise("conversations") == 0
    assert "Tides" in capsys.readouterr().out


def test_a_damaged_model_is_listed_with_its_error(capsys):
    paths = app_paths()
    paths.create()
    (paths.models / "bad.gguf").write_bytes(b"GGUF")
    assert reprise("models", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["path"].endswith("bad.gguf")
    assert row["error"]
    assert reprise("inspect", str(paths.models / "bad.gguf")) == 1


def test_a_clone_keeps_a_part(engine, capsys):
    reprise("ask", "Hello", "--model", "model.gguf", "--system", "Be kind.", "--json")
    source = json.loads(capsys.readouterr().out)["conversation"]
    assert reprise("clone", source, "--decay", "0.5", "--model", "model.gguf", "--json") == 0
    copy = json.loads(capsys.readouterr().out)
    assert (copy["tokens"], copy["kept"], copy["decay"]) == (100, 50, 0.5)
    ((cloned_id, messages, copy_id, decay),) = engine.cloned
    assert (cloned_id, copy_id, decay) == (source, copy["conversation"], 0.5)
    assert [message.content for message in messages] == ["Be kind.", "Hello", "one two three"]
    store = ChatStore(app_paths().chats)
    texts = [[m.content for m in store.path(row.id)] for row in store.conversations()]
    assert texts == [["Hello", "one two three"]] * 2
    store.close()


def test_a_clone_follows_the_settings_and_says_what_failed(engine, capsys):
    reprise("ask", "Hello", "--model", "model.gguf", "--json")
    source = json.loads(capsys.readouterr().out)["conversation"]
    assert reprise("clone", source, "--model", "model.gguf") == 0
    assert "80 of 100 tokens kept" in capsys.readouterr().out
    engine.fails_with = UnsupportedModelError("This model cannot be thinned out.")
    assert reprise("clone", source, "--model", "model.gguf") == 1
    assert "cannot be thinned out" in capsys.readouterr().err
    assert reprise("clone", "nope", "--model", "model.gguf") == 1


def test_chat_talks_until_the_input_ends(engine, capsys, monkeypatch):
    lines = iter(["Hello", "/new", "Again", "/quit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    assert reprise("chat", "--model", "model.gguf") == 0
    assert capsys.readouterr().out.count("one two three") == 2
    assert [len(request.messages) for request in engine.asked] == [1, 1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["bench", "nothing"],
        ["clone", "x", "--decay", "0"],
        ["ask", "x", "--seed", "y"],
        ["ask", "x", "--n", "65"],
    ],
)
def test_a_wrong_command_line_is_refused(arguments):
    with pytest.raises(SystemExit):
        parse(arguments)


@pytest.mark.parametrize(
    "command", [["ask", "Hello"], ["chat"], ["conversations"], ["cache"], ["doctor"], ["models"]]
)
def test_a_home_that_cannot_be_used_is_an_error_in_plain_words(
    command, monkeypatch, tmp_path, capsys
):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("REPRISE_HOME", str(file))
    assert run(command, open_window=lambda files: 0) == int(command != ["models"])
    said = capsys.readouterr()
    assert "cannot be" in said.err or "No models" in said.out
    assert "Traceback" not in said.err
