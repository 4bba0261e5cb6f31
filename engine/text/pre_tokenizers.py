"""How byte-level BPE vocabularies cut text into words before merging, by the name in the file.

A rule is a list of patterns, applied one after the other: each cuts what the former left over.
Source: the ``pre_tokenizer`` of each family's published tokenizer.json, under the names that GGUF
files use (``tokenizer.ggml.pre``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from engine.errors import UnsupportedModelError

_log = logging.getLogger(__name__)

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    "\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    "\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One rule. patterns: Oniguruma syntax, in order.

    ignores_merges: a word that is in the vocabulary as it stands is taken whole.
    adds_bos: what holds where the file says nothing.
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False


def _qwen(letters: str = _LETTERS, digits: str = r"\p{N}", symbols: str = _SYMBOLS) -> str:
    return f"{_CONTRACTION}|{letters}|{digits}|{symbols}|{_SPACES}"


def _cased(digits: str, suffix: str = f"{_CONTRACTION}?") -> str:
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{start}{_UPPER}*{_LOWER}+{suffix}|{start}{_UPPER}+{_LOWER}*{suffix}"
        f"|{digits}|{_CASED_SYMBOLS}|{_SPACES}"
    )


_LLAMA3 = PreTokenizer((_qwen(digits=r"\p{N}{1,3}"),), ignores_merges=True, adds_bos=True)
_DIGITS_APART = PreTokenizer((r"\p{N}", _GPT2))
_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_LLAMA3_PLAIN = PreTokenizer(_LLAMA3.patterns)
_QWEN2 = PreTokenizer((_qwen(),))
_GPT4O = PreTokenizer((_cased(r"\p{N}{1,3}"),))
_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", _CJK, _DEEPSEEK_WORDS))
_BLOOM_WORDS = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_BLOOM = PreTokenizer((_BLOOM_WORDS,))
_BAILING = PreTokenizer(
    (rf"'(?i:[sdmt]|ll|ve|re)|{_LETTERS}|\p{{N}}|{_SYMBOLS}|\s*[\r\n]|\s+(?!\S)|\s+",)
)
_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))

_GROUPS: tuple[tuple[PreTokenizer, str], ...] = (
    (_DEFAULT, "default"),
    (_LLAMA3, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"),
    (_LLAMA3_PLAIN, "dbrx smaug-bpe glm4 chatglm-bpe"),
    (_DIGITS_APART, "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2"),
    (_PLAIN_GPT2, "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0"),
    (_PLAIN_GPT2, "mellum modern-bert jina-es jina-de jina-v2-es jina-v2-de"),
    (_QWEN2, "qwen2 stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan grok-2 solar-open"),
    (_GPT4O, "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (_DEEPSEEK3, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (_BLOOM, "bloom poro-chat gpt3-finnish"),
    (PreTokenizer((_BLOOM_WORDS, r"\p{N}")), "viking"),
    (_BAILING, "bailingmoe bailingmoe2 llada-moe"),
    (PreTokenizer((_cased(r"\p{N}", ""),), ignores_merges=True, adds_bos=True), "tekken"),
    (
        PreTokenizer(
            (
                _qwen(
                    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
                    symbols=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
                ),
            )
        ),
        "qwen35",
    ),
    (PreTokenizer((_qwen(symbols=r" ?[^\s\p{L}\p{N}\r\n]+"),)), "seed-coder"),
    (PreTokenizer((r"\p{N}{1,3}", _qwen(digits=r"\p{N}+")), ignores_merges=True), "minicpm5"),
    (PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", *_GPT4O.patterns)), "tiny_aya cohere2moe"),
    (
        PreTokenizer(
            (
                "[\r\n]",
                rf"\s?[{_DEEPSEEK_LETTERS}]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                r"\s+$",
                "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
                r"\p{N}+",
            )
        ),
        "deepseek-llm",
    ),
    (
        PreTokenizer(
            (
                "[\r\n]",
                r"\s?\p{L}+",
                r"\s?\p{P}+",
                "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
                r"\p{N}",
            )
        ),
        "deepseek-coder",
    ),
    (PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")), "falcon"),
)
_BY_NAME = {name: rule for rule, names in _GROUPS for name in names.split()}


def pre_tokenizer(name: str) -> PreTokenizer:
    """Return the rule that a file names in ``tokenizer.ggml.pre``.

    A file that names none gets "default", with a warning, since its answers may suffer.
    Raises: UnsupportedModelError when the name is not known.
    """
    if not name:
        _log.warning("The model file names no pre-tokenizer; taking 'default'.")
        return _DEFAULT
    rule = _BY_NAME.get(name)
    if rule is None:
        raise UnsupportedModelError(
            "The model cuts text into words in a way that is not supported.",
            detail=f"tokenizer.ggml.pre is {name[:80]!r}",
        )
    return rule
