"""Parts that answer what a test wrote down, handed to objectives in place of networks; and the
text of the examples by hand."""

from typing import Any

import torch
from torch import Tensor, nn

from batches import counts_of, draws_of, pack, terms_of, value
from electrify.corruption.choosing import Chooser
from electrify.corruption.generator import Generator
from electrify.corruption.masking import MaskMix
from electrify.corruption.sampling import Sampling
from electrify.draws import Draws
from electrify.terms import Term, Terms
from electrify.tokens import SpecialIds, Tokens

BASIC = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
TEXT = pack([[[2, 5, 6, 3]]], row_length=5)


def chooser(vocab: int = 8) -> Chooser:
    return Chooser(BASIC, vocab, rate=0.9)  # both words of TEXT


def masks(vocab: int = 8, mix: tuple[float, ...] = (1.0, 0.0, 0.0)) -> MaskMix:
    return MaskMix(chooser(vocab), BASIC, vocab, mix=mix)


def at_places(size: int, logits: dict[tuple[int, int], float]) -> Tensor:
    """[size, 8] zeros, but for the logit of each (flat position, word)."""
    found = torch.zeros(size, 8)
    for place, logit in logits.items():
        found[place] = logit
    return found


# Sure of 7 at position 1 (the original is 5) and of 6 at position 2 (which is right).
DRAWN = at_places(5, {(1, 7): 50.0, (2, 6): 50.0})


def generator(logits_TV: Tensor = DRAWN, mix: tuple[float, ...] = (1.0, 0.0, 0.0)) -> Generator:
    return Generator(masks(mix=mix), part(FixedLM(logits_TV)), sampling=Sampling())


def outcome(
    objective: Any, tokens: Tokens = TEXT, draws: Draws | None = None
) -> tuple[Terms, dict[str, Tensor]]:
    """The terms, and the counts that the plan knows before them."""
    draws = draws_of(tokens) if draws is None else draws
    return terms_of(objective, tokens, draws), counts_of(objective, tokens, draws)


def total(term: Term) -> tuple[float, int]:
    """Sum and count."""
    return value(term.sum), int(term.count)


def whole(counts: dict[str, Tensor]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items()}


class FixedLM(nn.Module):
    """Logits written down for every flat position; keeps what it was shown."""

    def __init__(self, logits_TV: Tensor) -> None:
        super().__init__()
        self.logits_TV = nn.Parameter(logits_TV)
        self.head = nn.Identity()

    def states(self, tokens: Tokens, at_M: Tensor) -> Tensor:
        return self(tokens, at_M)

    def forward(self, tokens: Tokens, at_M: Tensor) -> Tensor:
        self.saw_T = tokens.ids_T
        return self.logits_TV[at_M]


class At(nn.Module):
    """An encoder whose hidden state is the flat position."""

    def forward(self, tokens: Tokens) -> Tensor:
        self.saw_T = tokens.ids_T
        return torch.arange(len(tokens.ids_T))[:, None]


class HeadAt(nn.Module):
    """Logits over the vocabulary written down for every flat position, over the states of `At`."""

    def __init__(self, logits_TV: Tensor) -> None:
        super().__init__()
        self.logits_TV = nn.Parameter(logits_TV)

    def read(self, encoder: Any, tokens: Tokens, at_M: Tensor) -> Tensor:
        return encoder(tokens)[at_M]

    def forward(self, x_N1: Tensor) -> Tensor:
        return self.logits_TV[x_N1[:, 0]]


class Ids(nn.Module):
    """An encoder whose hidden state is the token id."""

    def forward(self, tokens: Tokens) -> Tensor:
        self.saw_T = tokens.ids_T
        return tokens.ids_T[:, None].float()


class StubHead(nn.Module):
    """A head that reads the state of a token alone."""

    def inputs(self, states_TD: Tensor, tokens: Tokens) -> Tensor:
        return states_TD


class FixedHead(StubHead):
    """A logit written down for every flat position."""

    def __init__(self, logits_T: list[float]) -> None:
        super().__init__()
        self.logits_T = nn.Parameter(torch.tensor(logits_T))

    def forward(self, x_ND: Tensor) -> Tensor:
        assert len(x_ND) == len(self.logits_T)
        return self.logits_T


def part(module: nn.Module) -> Any:
    """A stub where a typed part is expected."""
    return module
