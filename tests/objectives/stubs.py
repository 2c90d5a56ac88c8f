"""Parts that answer what a test wrote down, handed to objectives in place of networks; and the
text of the examples by hand."""

from typing import Any

import torch
from torch import Tensor, nn

from batches import draws_of, pack, value
from electrify.corruption.choosing import Chooser
from electrify.corruption.generator import Generator
from electrify.corruption.masking import Frequency, MaskMix
from electrify.corruption.sampling import Sampling
from electrify.draws import Draws
from electrify.model.heads import MaskedLM
from electrify.objectives.objective import Step
from electrify.terms import Term, Terms
from electrify.tokens import SpecialIds, Tokens

BASIC = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
TEXT = pack([[[2, 5, 6, 3]]], row_length=5)


class At(nn.Module):
    """An encoder of one block whose hidden state is the flat position; keeps what it read."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [nn.Identity()]

    def forward(self, tokens: Tokens) -> Tensor:
        self.saw_T = tokens.ids_T
        return torch.arange(len(tokens.ids_T))[:, None]

    def embed(self, tokens: Tokens) -> Tensor:
        return self(tokens)

    def context(self, tokens: Tokens, x_T1: Tensor) -> None:
        return None

    def through(self, x_T1: Tensor, context: None, blocks: Any) -> Tensor:
        return x_T1

    def read(self, x_T1: Tensor) -> Tensor:
        return x_T1


class Ids(At):
    """An encoder whose hidden state is the token id."""

    def forward(self, tokens: Tokens) -> Tensor:
        super().forward(tokens)
        return tokens.ids_T[:, None]


class Written(nn.Module):
    """A head whose logits, or one logit, are written down for every hidden state."""

    def __init__(self, logits: Tensor | list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.as_tensor(logits))

    def inputs(self, states_TD: Tensor, tokens: Tokens) -> Tensor:
        return states_TD

    def read(self, encoder: Any, tokens: Tokens, at_M: Tensor) -> Tensor:
        return encoder(tokens)[at_M]

    def forward(self, x_N1: Tensor) -> Tensor:
        return self.logits[x_N1[:, 0]]

    def choose(self, x_N1: Tensor, ids_NK: Tensor) -> Tensor:
        self.asked_NK = ids_NK
        return self(x_N1).gather(1, ids_NK)


def part(module: nn.Module) -> Any:
    """A stub where a typed part is expected."""
    return module


def at_places(size: int, logits: dict[tuple[int, int], float]) -> Tensor:
    """[size, 8] zeros, but for the logit of each (flat position, word)."""
    found = torch.zeros(size, 8)
    for place, logit in logits.items():
        found[place] = logit
    return found


# Sure of 7 at position 1 (the original is 5) and of 6 at position 2 (which is right).
DRAWN = at_places(5, {(1, 7): 50.0, (2, 6): 50.0})


def chooser(vocab: int = 8) -> Chooser:
    return Chooser(BASIC, vocab, rate=0.9)  # both words of TEXT


def masks(vocab: int = 8, mix: tuple[float, ...] = (1.0, 0.0, 0.0)) -> MaskMix:
    return MaskMix(chooser(vocab), BASIC, vocab, mix=mix)


def generator(logits_TV: Tensor = DRAWN) -> Generator:
    return Generator(masks(), MaskedLM(part(At()), part(Written(logits_TV))), sampling=Sampling())


def frequency(counts: list[int]) -> Frequency:
    return Frequency(chooser(), BASIC, 8, counts_V=torch.tensor(counts))


def outcome(
    objective: Any, tokens: Tokens = TEXT, draws: Draws | None = None, *, fixed: bool = False
) -> tuple[Terms, dict[str, Tensor]]:
    """The terms, and the counts that the plan knows before them."""
    plan = objective.plan(tokens, draws_of(tokens) if draws is None else draws, fixed=fixed)
    return Step(objective)(tokens, plan), plan.counts


def total(term: Term) -> tuple[float, int]:
    """Sum and count."""
    return value(term.sum), int(term.count)


def whole(counts: dict[str, Tensor]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items()}
