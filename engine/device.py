"""What this machine offers: cores, memory, and a device beside the CPU."""

from __future__ import annotations

import psutil
import torch


def choose_threads(wished: int | None) -> int:
    """Return how many threads to compute with: the wish, else one per physical core."""
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return max(1, physical if wished is None else wished)


def find_accelerator(wished: str) -> torch.device | None:
    """Return the device on which layers can be computed instead of the CPU; None without one.

    wished: "auto" takes the one that torch finds, "cpu" none; else a device by torch's name, which
    is not looked for.
    Raises: ValueError when torch knows no such name.
    """
    if wished == "cpu":
        return None
    if wished == "auto":
        return torch.accelerator.current_accelerator(check_available=True)
    try:
        return torch.device(wished)
    except RuntimeError as error:
        raise ValueError(f"unknown device {wished!r}") from error


def free_memory_bytes(device: torch.device | None = None) -> int:
    """Return the bytes that can be taken of a device, by default the CPU, without swapping.

    Devices that cannot tell share the host's memory, as Apple's do.
    """
    if device is not None and device.type != "cpu":
        try:
            return int(torch.accelerator.get_memory_info(device)[0])
        except (RuntimeError, NotImplementedError):
            return _free_host_bytes()
    return _free_host_bytes()


def _free_host_bytes() -> int:
    return int(psutil.virtual_memory().available)
