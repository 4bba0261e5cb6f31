"""One file per family of models; ``ARCHITECTURES`` names what can be run."""

from __future__ import annotations

from engine.models.gemma import Gemma2, Gemma3
from engine.models.glm import Glm4
from engine.models.gpt_oss import GptOss
from engine.models.granite import Granite
from engine.models.lfm2 import Lfm2
from engine.models.llama import Llama
from engine.models.mamba import Mamba
from engine.models.mistral import Mistral3
from engine.models.olmo import Olmo2
from engine.models.phi import Phi3
from engine.models.qwen import Qwen2, Qwen3
from engine.models.smollm import SmolLM3
from engine.models.stablelm import StableLM
from engine.models.starcoder import StarCoder2

Model = Llama

ARCHITECTURES: dict[str, type[Llama]] = {
    "gemma2": Gemma2,
    "gemma3": Gemma3,
    "glm4": Glm4,
    "gpt-oss": GptOss,
    "granite": Granite,
    "lfm2": Lfm2,
    "llama": Llama,
    "mamba": Mamba,
    "mistral3": Mistral3,
    "olmo2": Olmo2,
    "phi3": Phi3,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
    "qwen3moe": Qwen3,
    "smollm3": SmolLM3,
    "stablelm": StableLM,
    "starcoder2": StarCoder2,
}
