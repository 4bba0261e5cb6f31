"""How much a K/V format changes what a model predicts: the same text, read exactly and read so.

Knows no model: two streams of logits over the same tokens are compared chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.config import KVCodec
from engine.engine import Engine


@dataclass(frozen=True, slots=True)
class CodecScore:
    """A format measured on one text, against the exact one.

    nll, nll_exact: mean negative log-likelihood in nats. top1: share of positions where both
    predict the same token. kl: mean divergence of the exact prediction from this one, in nats.
    bytes_per_token, exact_bytes_per_token: in full blocks. hot_bytes, exact_hot_bytes: really
    held for the text, parts that stay exact included.
    """

    num_tokens: int
    nll: float
    nll_exact: float
    top1: float
    kl: float
    bytes_per_token: int
    exact_bytes_per_token: int
    hot_bytes: int
    exact_hot_bytes: int

    @property
    def nll_change(self) -> float:
        """Relative change of the negative log-likelihood; positive is worse."""
        return self.nll / self.nll_exact - 1.0


def score_codec(
    engine: Engine,
    codec: KVCodec,
    token_ids: Sequence[int],
    *,
    chunk: int,
    rests: bool = False,
    on_read: Callable[[int], None] = lambda num_tokens: None,
) -> CodecScore:
    """Read token_ids twice, in memories of their own, and compare.

    chunk: tokens read at once; smaller ones look back at more quantised tokens. rests: all of these
    are quantised, recent ones too, so that large chunks, which are quick, look back at as many.
    on_read is told how many tokens were read, of twice all but the last; what it raises ends it.
    """
    exact, packed = engine.probe(KVCodec.F16), engine.probe(codec)
    # What would follow the last token is not known.
    scored = token_ids[:-1]
    streams = zip(
        _told(exact.logits(scored, chunk=chunk), 0, on_read),
        _told(packed.logits(scored, chunk=chunk, rests=rests), 1, on_read),
        strict=True,
    )
    nll, nll_exact, top1, kl = compare(streams, token_ids)
    of_exact, of_packed = exact.breakdown(), packed.breakdown()
    return CodecScore(
        len(token_ids) - 1,
        nll,
        nll_exact,
        top1,
        kl,
        of_packed.bytes_per_token,
        of_exact.bytes_per_token,
        exact_hot_bytes=of_exact.tiers[0].used_bytes,
        hot_bytes=of_packed.tiers[0].used_bytes,
    )


def _told(stream: Iterable[Tensor], turn: int, on_read: Callable[[int], None]) -> Iterator[Tensor]:
    """Tell after each chunk how many tokens both streams have read, this one in its turn."""
    num_read = 0
    for logits in stream:
        before, num_read = num_read, num_read + len(logits)
        on_read(num_read + (num_read if turn else before))
        yield logits


@torch.inference_mode()
def compare(
    chunks: Iterable[tuple[Tensor, Tensor]], token_ids: Sequence[int]
) -> tuple[float, float, float, float]:
    """Return (nll, nll of the exact one, top-1 agreement, KL), means over all positions.

    chunks: (exact, other) logits (T, V) float32 of consecutive tokens.
    """
    sums = torch.zeros(4, dtype=torch.float64)
    position = 0
    for exact, other in chunks:
        following = token_ids[position + 1 : position + 1 + len(exact)]
        targets = torch.tensor(following, dtype=torch.long)
        sums += _sums(exact[: len(targets)], other[: len(targets)], targets)
        position += len(exact)
    nll, nll_exact, hits, kl = (sums / (len(token_ids) - 1)).tolist()
    return nll, nll_exact, hits, kl


def _sums(exact: Tensor, other: Tensor, targets: Tensor) -> Tensor:
    log_p, log_q = exact.log_softmax(-1), other.log_softmax(-1)
    return torch.stack(
        (
            F.nll_loss(log_q, targets, reduction="sum"),
            F.nll_loss(log_p, targets, reduction="sum"),
            (exact.argmax(-1) == other.argmax(-1)).sum(),
            F.kl_div(log_q, log_p, reduction="sum", log_target=True),
        )
    ).double()
