"""Parts that answer what a test wrote down, handed to objectives in place of networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from electrify.tokens import Tokens


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
