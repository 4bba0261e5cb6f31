from __future__ import annotations

import ctypes
import random
import zlib

import pytest

from engine.kernels import checksum
from engine.kernels.checksum import CheckedTarget, crc32


@pytest.fixture(params=["native", "zlib"])
def way(request, monkeypatch):
    checksum._native.cache_clear()
    if request.param == "zlib":
        monkeypatch.setattr(checksum, "load_library", lambda: None)
    elif checksum._native() is None:
        pytest.skip("no native checksum here")
    yield
    checksum._native.cache_clear()


def test_it_is_that_of_zlib_whatever_the_length_and_the_place(way):
    data = random.Random(0).randbytes(5_000)
    for length in (*range(300), 4095, 4096, 4097):
        part = memoryview(data)[length % 7 : length % 7 + length]
        writable = memoryview(bytearray(data))[length % 7 : length % 7 + length]
        assert crc32(part) == crc32(bytes(part)) == crc32(writable) == zlib.crc32(part)
        assert crc32(data, len(data) - length) == zlib.crc32(data[len(data) - length :])


def test_it_is_the_same_of_bytes_that_are_copied_and_nothing_else_is_written(way):
    data = random.Random(2).randbytes(5_000)
    for length in (*range(150), 4095, 4096, 4097):
        for place in (0, 3, 16):
            part = memoryview(data)[length % 7 : length % 7 + length]
            target = memoryview(bytearray(b"." * (length + 64)))
            start = -ctypes.addressof(ctypes.c_ubyte.from_buffer(target)) % 16 + place
            checked = CheckedTarget(target)
            writable = memoryview(bytearray(part))
            sums = {checked.write(start, one) for one in (part, bytes(part), writable)}
            assert sums == {zlib.crc32(part)}
            end = start + length
            assert bytes(target) == b"." * start + part.tobytes() + b"." * (len(target) - end)


def test_every_flipped_bit_shows(way):
    data = bytearray(random.Random(1).randbytes(200))
    sums = {crc32(bytes(data))}
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        sums.add(crc32(bytes(data)))
        data[bit // 8] ^= 1 << bit % 8
    assert len(sums) == 8 * len(data) + 1
