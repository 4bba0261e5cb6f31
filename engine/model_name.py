"""What a model is called: by its file, which people know, not by what a training run left in it."""

from __future__ import annotations

import re
from pathlib import Path

_PART = re.compile(r"-\d{5}-of-\d{5}$")
_QUANTISATION = re.compile(r"[-._](I?Q\d\w*|F16|F32|BF16|MXFP4)$", re.IGNORECASE)


def model_name(path: Path) -> str:
    """Return the file's name without part number and quantisation, e.g. "SmolLM2-135M-Instruct"."""
    stem = _PART.sub("", path.stem)
    return _QUANTISATION.sub("", stem) or stem
