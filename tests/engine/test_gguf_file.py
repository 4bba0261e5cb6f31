"""GGUF files: sound ones read as the format's own package does, damaged ones are typed errors."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import struct
import sys
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf_file import GGMLType, GGUFFile
from tests.reference import REFERENCE, needs_reference

NUM_DAMAGES = 100
HEADER_BYTES = 1 << 16


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dims + struct.pack("<IQ", kind, offset)


def build(
    values: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    header += b"".join(values) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data


def opened(folder: Path, data: bytes, name: str = "m.gguf") -> GGUFFile:
    path = folder / name
    path.write_bytes(data)
    return GGUFFile.open(path)


def refused(folder: Path, data: bytes) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        opened(folder, data)
    assert str(caught.value).endswith(".")
    return caught.value


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small file with a value of every kind and tensors of several types."""
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10_000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_int64("test.big", -(1 << 40))
    writer.add_array("tokenizer.ggml.tokens", [f"token \u2581{i}" for i in range(500)])
    writer.add_array("tokenizer.ggml.scores", [-float(i) for i in range(500)])
    writer.add_array("test.flags", [True, False])
    rng = np.random.default_rng(1)
    writer.add_tensor("token_embd.weight", rng.standard_normal((4, 64)).astype(np.float32))
    writer.add_tensor("norm.weight", rng.standard_normal(64).astype(np.float16))
    quantised = gguf.quants.quantize(
        rng.standard_normal((3, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0
    )
    writer.add_tensor("q.weight", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def assert_equals_package(path: Path) -> None:
    file, reader = GGUFFile.open(path), gguf.GGUFReader(path)
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert dict(file.metadata) == fields
    assert list(file.tensors) == [t.name for t in reader.tensors]
    for expected in reader.tensors:
        info = file.tensors[expected.name]
        assert info.shape == tuple(reversed(expected.shape.tolist()))
        assert (info.type, info.offset) == (int(expected.tensor_type), expected.data_offset)
        assert file.data(info.name).tobytes() == expected.data.tobytes()


def test_a_small_file_reads_as_the_package_reads_it(model: Path):
    assert_equals_package(model)


def test_a_forgotten_value_is_gone_and_the_others_stay(model: Path):
    file = GGUFFile.open(model)
    file.forget("tokenizer.ggml.scores")
    file.forget("tokenizer.ggml.scores")
    assert file.get("tokenizer.ggml.scores", None) is None
    assert file.get("llama.block_count", None) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_released_tensor_takes_no_memory_and_reads_the_same_again(tmp_path: Path):
    path = tmp_path / "large.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name in ("a", "b"):
        writer.add_tensor(name, np.arange(1 << 20, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile.open(path)
    sums = {name: int(file.data(name).sum()) for name in "ab"}
    before = file_mib()
    file.release_pages("b")
    assert before - file_mib() == pytest.approx(4.0, abs=0.5)
    assert {name: int(file.data(name).sum()) for name in "ab"} == sums


def file_mib() -> float:
    """Return how much of files this process holds in memory."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssFile:\s+(\d+)", status)[1]) / 1024


@needs_reference
@pytest.mark.parametrize("name", ["llama-q-q4_k_m", "gpt-oss-mxfp4", "llama-q-iq4_xs"])
def test_reference_models_read_as_the_package_reads_them(name: str):
    assert_equals_package(REFERENCE / "models" / f"{name}.gguf")


def test_type_table_equals_the_package():
    assert {t.name: t.value for t in GGMLType} == {
        t.name: t.value for t in gguf.GGMLQuantizationType
    }
    for ggml_type in GGMLType:
        sizes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(ggml_type)]
        assert (ggml_type.block_elements, ggml_type.block_bytes) == sizes


def test_data_stays_valid_and_read_only_after_close(model: Path):
    file = GGUFFile.open(model)
    data = file.data("norm.weight")
    file.close()
    assert data.nbytes == 128
    assert not data.flags.writeable


def test_version_2_and_other_alignments_are_read(tmp_path: Path):
    alignment = entry("general.alignment", 4, struct.pack("<I", 64))
    data = build(
        (alignment,), (tensor("a", (2,)), tensor("b", (2,), offset=64)), bytes(80),
        version=2, alignment=64,
    )  # fmt: skip
    file = opened(tmp_path, data)
    assert file.tensors["b"].offset % 64 == 0
    assert file.data("b").nbytes == 8


def test_require_names_the_key(model: Path):
    file = GGUFFile.open(model)
    assert file.require("llama.block_count", int) == 2
    assert file.require("llama.block_count", float) == 2.0
    assert file.get("nowhere", 7) == 7
    for key, kind in (("nowhere", int), ("llama.block_count", str)):
        with pytest.raises(ModelFileError) as caught:
            file.require(key, kind)
        assert key in caught.value.detail
    with pytest.raises(ModelFileError):
        file.require("tokenizer.ggml.add_bos_token", int)
    with pytest.raises(ModelFileError):
        file.data("no such tensor")


BAD_FILES = {
    "empty": b"",
    "one byte": b"G",
    "another format": b"PK\x03\x04" + bytes(60),
    "magic only": b"GGUF",
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "version 1": build(version=1),
    "version 99": build(version=99),
    "version 0": build(version=0),
    "absurd tensor count": b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0),
    "absurd value count": b"GGUF" + struct.pack("<IQQ", 3, 0, (1 << 64) - 1),
    "absurd string length": build((entry("k", 8, struct.pack("<Q", 1 << 62)),)),
    "absurd array length": build((entry("k", 9, struct.pack("<IQ", 4, 1 << 40)),)),
    "array longer than file": build((entry("k", 9, struct.pack("<IQ", 4, 1 << 20)),)),
    "array of strings longer than file": build((entry("k", 9, struct.pack("<IQ", 8, 1 << 20)),)),
    "array of arrays": build((entry("k", 9, struct.pack("<IQ", 9, 1) + bytes(64)),)),
    "unknown value kind": build((entry("k", 77, bytes(8)),)),
    "duplicate key": build((entry("k", 0, b"\1"), entry("k", 0, b"\1"))),
    "key not UTF-8": build((entry(b"\xff\xfe", 0, b"\1"),)),
    "value not UTF-8": build((entry("k", 8, text(b"\xc3\x28")),)),
    "alignment 0": build((entry("general.alignment", 4, struct.pack("<I", 0)),)),
    "alignment 3": build((entry("general.alignment", 4, struct.pack("<I", 3)),)),
    "alignment of text": build((entry("general.alignment", 8, text("32")),)),
    "duplicate tensor": build((), (tensor("a", (2,)), tensor("a", (2,))), bytes(64)),
    "five dimensions": build((), (tensor("a", (1,) * 5),), bytes(64)),
    "absurd shape": build((), (tensor("a", (1 << 62, 1 << 62)),), bytes(64)),
    "tensor beyond the end": build((), (tensor("a", (17,)),), bytes(64)),
    "offset beyond the end": build((), (tensor("a", (1,), offset=1 << 50),), bytes(64)),
    "unaligned offset": build((), (tensor("a", (1,), offset=3),), bytes(64)),
    "rows that are no whole blocks": build((), (tensor("a", (33,), kind=2),), bytes(64)),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_a_typed_error_that_names_a_place(name: str, tmp_path: Path):
    error = refused(tmp_path, BAD_FILES[name])
    assert error.detail.startswith("m.gguf")
    assert any(word in error.detail for word in ("offset", "general.alignment"))


def test_big_endian_files_are_called_by_name(tmp_path: Path):
    assert "big-endian" in str(refused(tmp_path, BAD_FILES["big-endian"]))


def test_unknown_tensor_type_names_the_tensor(tmp_path: Path):
    data = build((), (tensor("blk.0.attn_q.weight", (32,), kind=4),), bytes(64))
    with pytest.raises(UnsupportedModelError) as caught:
        opened(tmp_path, data)
    assert "blk.0.attn_q.weight" in caught.value.detail


def test_missing_files_and_folders_are_typed_errors(tmp_path: Path):
    for path in (tmp_path / "nowhere.gguf", tmp_path):
        with pytest.raises(ModelFileError):
            GGUFFile.open(path)


def split_part(number: int, count: int, total: int, tensors: tuple[bytes, ...]) -> bytes:
    values = [
        entry("split.no", 2, struct.pack("<H", number)),
        entry("split.count", 2, struct.pack("<H", count)),
        entry("split.tensors.count", 5, struct.pack("<i", total)),
    ]
    if number == 0:
        values.append(entry("general.architecture", 8, text("llama")))
    return build(tuple(values), tensors, bytes([number + 1]) * 64)


def write_split(folder: Path, *, total: int = 2) -> list[Path]:
    paths = [folder / f"m-{n:05}-of-00002.gguf" for n in (1, 2)]
    for number, path in enumerate(paths):
        path.write_bytes(split_part(number, 2, total, (tensor(f"t{number}", (4,)),)))
    return paths


@pytest.mark.parametrize("opened_part", [0, 1])
def test_any_part_opens_the_whole_model(opened_part: int, tmp_path: Path):
    paths = write_split(tmp_path)
    file = GGUFFile.open(paths[opened_part])
    assert file.paths == tuple(paths)
    assert file.get("general.architecture", "") == "llama"
    assert file.size_bytes == sum(path.stat().st_size for path in paths)
    assert [file.data(f"t{n}").tolist() for n in (0, 1)] == [[1] * 16, [2] * 16]


def test_parts_that_are_missing_or_mixed_up_are_typed_errors(tmp_path: Path):
    first, second = write_split(tmp_path)
    second.rename(tmp_path / "elsewhere.gguf")
    for path in (first, tmp_path / "elsewhere.gguf"):
        with pytest.raises(ModelFileError):
            GGUFFile.open(path)
    second.write_bytes(first.read_bytes())
    with pytest.raises(ModelFileError):
        GGUFFile.open(first)


def test_a_wrong_total_of_tensors_is_a_typed_error(tmp_path: Path):
    with pytest.raises(ModelFileError):
        GGUFFile.open(write_split(tmp_path, total=3)[0])


def flipped(head: bytes, rng: random.Random) -> bytes:
    changed = bytearray(head)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(head))] ^= rng.randint(1, 255)
    return bytes(changed)


def damaged(copy: Path, head: bytes, rng: random.Random) -> Path:
    """Return a file cut within its first 64 KiB, or the copy with up to eight bytes changed."""
    if rng.random() < 0.3:
        cut = copy.with_name("cut.gguf")
        cut.write_bytes(head[: rng.randrange(len(head))])
        return cut
    with copy.open("r+b") as file:
        file.write(flipped(head, rng))
    return copy


def read_everything(path: Path) -> None:
    file = GGUFFile.open(path)
    for name, info in file.tensors.items():
        assert file.data(name).nbytes == info.num_bytes


def assert_survives_damage(model: Path, folder: Path) -> None:
    rng = random.Random(5)
    copy = Path(shutil.copy(model, folder / "damaged.gguf"))
    with model.open("rb") as file:
        head = file.read(HEADER_BYTES)
    for _ in range(NUM_DAMAGES):
        # Of the processor: other work on the machine must not count.
        started = time.thread_time()
        with contextlib.suppress(ModelFileError, UnsupportedModelError):
            read_everything(damaged(copy, head, rng))
        assert time.thread_time() - started < 5


def test_random_damage_is_a_typed_error_or_harmless(model: Path, tmp_path: Path):
    tracemalloc.start()
    assert_survives_damage(model, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * model.stat().st_size + (1 << 20)


@pytest.mark.slow
def test_random_damage_of_a_real_model_is_a_typed_error_or_harmless(
    smollm2_path: Path, tmp_path: Path
):
    assert_survives_damage(smollm2_path, tmp_path)
