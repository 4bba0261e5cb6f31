"""The command line: what each command takes, and where it leads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from app.errors import AppError
from engine.config import MAX_COMPLETIONS, KVCodec, Overflow
from engine.errors import EngineError

Command = Callable[[argparse.Namespace], int]

_CODECS = tuple(codec.value for codec in KVCodec)
_OVERFLOW = tuple(policy.value for policy in Overflow)
# replicate sends to the shared store what it lacks; fetch brings its conversations here.
_CACHE_ACTIONS = ("clear", "compact", "verify", "replicate", "fetch")
_BENCHES = (
    "speed",
    "resume",
    "batch",
    "memory",
    "accuracy",
    "store",
    "clone",
    "writing",
    "interface",
)
_SYNTHETIC = ("1b",)


def run(argv: Sequence[str], *, open_window: Callable[[Sequence[str]], int]) -> int:
    """Carry out one command line; without a command, open the window. Return the exit code."""
    arguments = parse(argv)
    if arguments.command in (None, "window"):
        return open_window(arguments.files)
    try:
        return int(_command(arguments.command)(arguments))
    except (AppError, EngineError) as error:
        print(error, file=sys.stderr)
        if error.detail:
            print(error.detail, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"A file cannot be used: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; argparse ends the program where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="reprise", description="Local language models that never read the same text twice."
    )
    parser.set_defaults(files=[])
    commands = parser.add_subparsers(dest="command", title="commands")
    _add_window(commands)
    _add_ask(commands)
    _add_chat(commands)
    _add_listings(commands)
    _add_cache(commands)
    _add_bench(commands)
    return parser.parse_args(argv)


_Commands = argparse._SubParsersAction


def _add_window(commands: _Commands[argparse.ArgumentParser]) -> None:
    window = commands.add_parser("window", help="open the window (what happens without a command)")
    window.add_argument("files", nargs="*", help="model files to open")


def _add_ask(commands: _Commands[argparse.ArgumentParser]) -> None:
    ask = commands.add_parser("ask", help="ask one question")
    ask.add_argument("text", help="the question")
    ask.add_argument("--model", metavar="FILE", help="a .gguf file")
    target = ask.add_mutually_exclusive_group()
    target.add_argument("--conversation", metavar="ID", help="go on with a conversation")
    target.add_argument("--new", action="store_true", help="start a conversation (the default)")
    ask.add_argument("--system", metavar="TEXT", help="system prompt of the conversation")
    ask.add_argument("--max-tokens", type=_positive, metavar="N")
    ask.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    ask.add_argument("--seed", type=int, metavar="N")
    ask.add_argument(
        "--n", type=_completions, default=1, metavar="N", help="draw N answers together, at most 64"
    )
    ask.add_argument("--json", action="store_true", help="print one JSON object")
    ask.add_argument(
        "--offload-share",
        type=_offload_share,
        metavar="S",
        help="part of the layers on the accelerator, 0 to 1 or auto (else as in the settings)",
    )
    _add_overflow(ask)


def _offload_share(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 0 to 1 nor auto")
    return share


def _add_chat(commands: _Commands[argparse.ArgumentParser]) -> None:
    chat = commands.add_parser("chat", help="talk in the terminal")
    chat.add_argument("--model", metavar="FILE")
    chat.add_argument("--conversation", metavar="ID")
    chat.add_argument("--system", metavar="TEXT")
    _add_overflow(chat)


def _add_overflow(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--overflow", choices=_OVERFLOW, help="when the context is full (else as in the settings)"
    )


def _add_listings(commands: _Commands[argparse.ArgumentParser]) -> None:
    for name, text in (("conversations", "list conversations"), ("models", "list models")):
        commands.add_parser(name, help=text).add_argument("--json", action="store_true")
    inspect = commands.add_parser("inspect", help="show what is in a model file")
    inspect.add_argument("file", metavar="FILE")
    doctor = commands.add_parser("doctor", help="check what runs here and that nothing is damaged")
    doctor.add_argument("--json", action="store_true")


def _add_cache(commands: _Commands[argparse.ArgumentParser]) -> None:
    cache = commands.add_parser(
        "cache", help="show, clear, shrink, check or share the stored states"
    )
    cache.add_argument("action", nargs="?", choices=_CACHE_ACTIONS)
    cache.add_argument("--json", action="store_true")
    clone = commands.add_parser("clone", help="copy a conversation, keeping a part of its memory")
    clone.add_argument("conversation", metavar="ID")
    clone.add_argument("--decay", type=_share, metavar="D", help="part that is kept, 1 is all")
    clone.add_argument("--model", metavar="FILE")
    clone.add_argument("--json", action="store_true")


def _add_bench(commands: _Commands[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser("bench", help="measure, where asked against llama.cpp")
    bench.add_argument("bench", choices=_BENCHES)
    bench.add_argument("--model", metavar="FILE")
    bench.add_argument(
        "--synthetic", choices=_SYNTHETIC, help="speed of a made-up model of this size instead"
    )
    bench.add_argument("--keep", action="store_true", help="do not remove the made-up model")
    bench.add_argument("--peer", action="store_true", help="alternate with llama.cpp (xllamacpp)")
    bench.add_argument("--threads", type=_positive, default=2, metavar="N")
    bench.add_argument("--repeats", type=_positive, default=3, metavar="N")
    bench.add_argument("--codecs", nargs="+", metavar="CODEC", choices=_CODECS)
    bench.add_argument("--texts", metavar="FOLDER", help="of .txt files, for accuracy and clone")
    bench.add_argument("--json", metavar="OUT", help="write the rows to a file")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _completions(text: str) -> int:
    value = _positive(text)
    if value > MAX_COMPLETIONS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_COMPLETIONS}")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError("must be above 0, and at most 1")
    return value


def _command(name: str) -> Command:
    """Import only what the command needs: listing conversations must not wait for torch."""
    if name == "ask":
        from app.commands.ask import ask

        return ask
    if name == "chat":
        from app.commands.talk import talk

        return talk
    if name == "bench":
        from app.commands.bench import bench

        return bench
    if name == "cache":
        from app.commands.cache import cache

        return cache
    if name == "clone":
        from app.commands.clone import clone

        return clone
    if name == "doctor":
        from app.commands.doctor import doctor

        return doctor
    from app.commands import listing

    return {
        "conversations": listing.conversations,
        "models": listing.models,
        "inspect": listing.inspect,
    }[name]
