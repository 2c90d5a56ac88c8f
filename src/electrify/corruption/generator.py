"""The learned corruptor. Shape suffixes: T flat tokens, M chosen positions, V vocabulary, D hidden width."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..draws import Draws
from ..model.heads import MaskedLM
from ..model.passes import Pass
from ..tokens import Tokens
from .masking import Corrupted, MaskMix, substitute
from .sampling import sample


@dataclass(frozen=True)
class Sampling:
    """How a learned corruptor draws: softmax(logits / temperature), the temperature moving from `temperature` to `temperature_end` over the run;
    with `disallow_correct` never the original token (both in 2003.10555, appendix of negative results)."""

    temperature: float = 1.0
    temperature_end: float | None = None
    disallow_correct: bool = False

    def draw(self, logits_MV: Tensor, was_M: Tensor, uniform_M: Tensor, progress: Tensor) -> tuple[Tensor, Tensor | None]:
        """One token a row, and softmax(logits) where it was drawn from just that. progress: share of the run that is done, 0-dim."""
        end = self.temperature if self.temperature_end is None else self.temperature_end
        moves = end != self.temperature
        temperature = self.temperature + (end - self.temperature) * progress if moves else self.temperature
        drawn_M, p_MV = sample(logits_MV, uniform_M, temperature=temperature, never_M=was_M if self.disallow_correct else None)
        return drawn_M, None if moves or temperature != 1.0 or self.disallow_correct else p_MV


class Generator(nn.Module):
    """Fills masked positions with samples from a masked LM (ELECTRA, 2003.10555 section 2).

    The corrupted text starts from the ORIGINAL, also where the mix kept or randomised a token, with the samples at the chosen positions.
    trains: False for a frozen generator, the second of two stages.
    """

    def __init__(self, mask: MaskMix, lm: MaskedLM, *, sampling: Sampling, trains: bool = True) -> None:
        super().__init__()
        self.mask, self.lm, self.sampling, self.trains = mask, lm, sampling, trains
        self.chooser, self.mask_id = mask.chooser, mask.mask_id

    def train(self, mode: bool = True) -> Generator:
        """A frozen generator stays in evaluation: without dropout."""
        super().train(mode)
        self.lm.train(mode and self.trains)
        return self

    def count(self, tokens: Tokens, draws: Draws) -> Tensor:
        """How many tokens its own loss is over: the chosen ones. Known before any forward pass."""
        return self.chooser.count(tokens, draws)

    def passes(self) -> list[Pass]:
        return [Pass(self.lm.encoder, 1.0, self.trains), Pass(self.lm.head, self.chooser.share, self.trains)]

    def forward(self, tokens: Tokens, draws: Draws) -> Corrupted:
        masked = self.mask(tokens, draws)
        with torch.set_grad_enabled(self.trains and torch.is_grad_enabled()):
            states_MD = self.lm.states(masked.tokens, masked.at_M)
            logits_MV = self.lm.head(states_MD)
        sampled_M, p_MV = self.sampling.draw(logits_MV, masked.was_M, draws.uniform_T("sample")[masked.at_M], draws.progress)
        z = substitute(tokens, masked.at_M, sampled_M, shown_M=masked.shown_M, logits_MV=logits_MV, padded=masked.padded)
        return replace(z, states_MD=states_MD, p_MV=p_MV)
