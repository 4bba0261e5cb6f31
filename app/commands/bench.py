"""``reprise bench``: run one benchmark, print its table, write its rows."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from app.bench.accuracy import AccuracyOptions, measure_accuracy
from app.bench.batch import BatchOptions, measure_batch
from app.bench.clone import CloneOptions, measure_clone
from app.bench.memory import MemoryOptions, measure_memory
from app.bench.report import Report
from app.bench.resume import ResumeOptions, measure_resume
from app.bench.speed import SpeedOptions, measure_speed
from app.bench.store import StoreOptions, measure_store
from app.bench.synthetic import synthetic_model
from app.bench.writing import WritingOptions, measure_writing
from app.commands.session import CommandError
from app.model_library import ModelLibrary
from app.paths import app_paths


def bench(arguments: Namespace) -> int:
    """Measure and print. Raises: CommandError when the peer or a model is missing."""
    if arguments.bench == "interface":
        return _measure_interface(arguments)
    if arguments.synthetic and arguments.bench != "speed":
        raise CommandError("Only the speed of a made-up model can be measured.")
    if arguments.peer and find_spec("xllamacpp") is None:
        raise CommandError("The peer is not installed: pip install xllamacpp")
    report = _BENCHES[arguments.bench](arguments)
    print(report.to_text())
    if arguments.json:
        report.save(Path(arguments.json))
    return 0


def _speed(arguments: Namespace) -> Report:
    if arguments.synthetic:
        return _synthetic_speed(arguments)
    options = SpeedOptions(
        _model(arguments),
        arguments.threads,
        arguments.peer,
        repeats=arguments.repeats,
        codecs=tuple(arguments.codecs or ("int8",)),
    )
    return measure_speed(options, _say)


def _synthetic_speed(arguments: Namespace) -> Report:
    """Measure a large model at one short depth, which takes minutes already."""
    folder = app_paths().synthetic_models
    with synthetic_model(folder, arguments.synthetic, is_kept=arguments.keep) as model:
        options = SpeedOptions(
            model,
            arguments.threads,
            arguments.peer,
            repeats=arguments.repeats,
            lengths=(512,),
            depths=(512,),
            codecs=tuple(arguments.codecs or ()),
        )
        return measure_speed(options, _say)


def _resume(arguments: Namespace) -> Report:
    options = ResumeOptions(
        _model(arguments),
        arguments.threads,
        arguments.peer,
        repeats=arguments.repeats,
        codecs=tuple(arguments.codecs or ("f16", "int8")),
    )
    return measure_resume(options, _say)


def _batch(arguments: Namespace) -> Report:
    options = BatchOptions(
        _model(arguments), arguments.threads, arguments.peer, repeats=arguments.repeats
    )
    return measure_batch(options, _say)


def _memory(arguments: Namespace) -> Report:
    codecs = tuple(arguments.codecs or ("f16", "int8"))
    return measure_memory(MemoryOptions(_model(arguments), arguments.threads, codecs), _say)


def _accuracy(arguments: Namespace) -> Report:
    options = AccuracyOptions(
        _model(arguments),
        arguments.threads,
        texts=_texts(arguments),
        codecs=tuple(arguments.codecs or ("int8", "k8v4")),
    )
    return measure_accuracy(options, _say)


def _clone(arguments: Namespace) -> Report:
    options = CloneOptions(_model(arguments), arguments.threads, texts=_texts(arguments))
    return measure_clone(options, _say)


def _store(arguments: Namespace) -> Report:
    options = StoreOptions(
        _model(arguments),
        arguments.threads,
        arguments.peer,
        codecs=tuple(arguments.codecs or ("f16", "int8")),
    )
    return measure_store(options, _say)


def _writing(arguments: Namespace) -> Report:
    return measure_writing(WritingOptions(_model(arguments), arguments.threads), _say)


_BENCHES: dict[str, Callable[[Namespace], Report]] = {
    "speed": _speed,
    "resume": _resume,
    "batch": _batch,
    "memory": _memory,
    "accuracy": _accuracy,
    "clone": _clone,
    "store": _store,
    "writing": _writing,
}


def _texts(arguments: Namespace) -> tuple[Path, ...]:
    if not arguments.texts:
        raise CommandError("Name a folder of .txt files with --texts.")
    texts = tuple(sorted(Path(arguments.texts).glob("*.txt")))
    if not texts:
        raise CommandError("There is no .txt file in this folder.", detail=arguments.texts)
    return texts


def _measure_interface(arguments: Namespace) -> int:
    """Run the window's own measurement in a process of its own: the application knows no Qt."""
    command = [sys.executable, "-m", "ui.bench"]
    if arguments.json:
        command += ["--json", arguments.json]
    return subprocess.run(command, check=False).returncode


def _model(arguments: Namespace) -> Path:
    if arguments.model:
        return Path(arguments.model)
    paths = app_paths()
    for entry in ModelLibrary([paths.models], paths.model_headers).scan():
        if not entry.error:
            return Path(entry.path)
    raise CommandError("Name a model with --model.", detail=str(paths.models))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
