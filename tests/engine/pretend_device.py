"""A device that torch believes in: its numbers lie on the CPU, but nothing else may touch them.

What forgets to move a tensor to the device of the others raises here as it would on an
accelerator. It has no float64, like Apple's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.backend_registration as registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "pretend"


class PretendTensor(torch.Tensor):
    """A tensor on the pretended device. numbers: where they really are."""

    numbers: torch.Tensor

    @staticmethod
    def __new__(cls, numbers):
        assert numbers.dtype is not torch.float64, "this device has no float64"
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=torch.device(NAME, 0),
        )
        tensor.numbers = numbers
        return tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            # torch asks the device which of its own kernels it wants.
            return _run(func, args, kwargs or {})
        if func is torch.Tensor.tolist:
            return args[0].numbers.tolist()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class PretendDevice(TorchDispatchMode):
    """While entered, ``torch.device("pretend", 0)`` can be used."""

    def __enter__(self):
        if not hasattr(torch, NAME):
            registration._setup_privateuseone_for_python_backend(NAME)
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = getattr(func, "__name__", "").split(".")[0]
    if name == "copy_":
        _inner(args[0]).copy_(_inner(args[1]))
        return args[0]
    device = kwargs.get("device")
    inner_args = tree_map(_inner, args)
    inner_kwargs = tree_map(_inner, kwargs)
    if device is not None:
        out = func(*inner_args, **{**inner_kwargs, "device": "cpu"})
        return tree_map(_wrapped, out) if torch.device(device).type == NAME else out
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    ours = [isinstance(one, PretendTensor) for one in tensors if one.dim()]
    if any(ours) and not all(ours):
        raise RuntimeError(f"{name}: tensors of two devices")
    out = func(*inner_args, **inner_kwargs)
    if name.endswith("_") and isinstance(out, torch.Tensor):
        return args[0]
    is_ours = any(isinstance(one, PretendTensor) for one in tensors)
    return tree_map(_wrapped, out) if is_ours else out


def _inner(value: Any) -> Any:
    return value.numbers if isinstance(value, PretendTensor) else value


def _wrapped(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    # A view of an ordinary tensor must be one, also where no gradients are computed.
    with torch.inference_mode(False):
        return PretendTensor(value)
