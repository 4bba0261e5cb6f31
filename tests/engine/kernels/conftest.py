"""Every kernel test runs on every instruction set this machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.kernels import KernelInfo, instruction_sets
from engine.kernels.context import Context, Limits

LIMITS = Limits(max_rows=64, max_columns=1024, num_heads=16, head_dim=128)


@pytest.fixture(params=instruction_sets() or [None], ids=lambda info: info.isa if info else "none")
def isa(request: pytest.FixtureRequest) -> KernelInfo:
    if request.param is None:
        pytest.skip("the native kernels are not built")
    info: KernelInfo = request.param
    return info


@pytest.fixture
def context(isa: KernelInfo) -> Iterator[Context]:
    made = Context(LIMITS, num_threads=2, info=isa)
    yield made
    made.close()
