"""The interface of every corruptor: what it is built from, what it returns, and what is watched of
its language model.

Shape suffixes: T flat tokens, M chosen positions, V vocabulary, E embedding width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..architectures.architecture import Architecture
from ..draws import Draws
from ..model.costs import Pass
from ..model.embeddings import Shape, Words, own_table
from ..model.encoder import Encoder
from ..model.heads import Head, Network, likeliest
from ..terms import Loss, Terms, term
from ..tokens import SpecialIds, Tokens
from .choosing import Chooser, Plan
from .sampling import Sampling


@dataclass(frozen=True)
class GeneratorParts:
    """What the networks of a learned corruptor are built from."""

    architecture: Architecture
    shape: Shape
    """The generator's, or that of each of its parts."""
    embeddings: nn.Module
    """The embeddings that every encoder made here reads, perhaps shared with the discriminator."""
    dropout: dict[str, Any]
    discriminator: Encoder
    tied: int = 0
    """How many of its lowest blocks the generator shares; if all, it is itself the generator."""

    def encoder(self, **how: Any) -> Encoder:
        """An encoder of the generator's shape. how: `direction` of a tower."""
        if (
            self.tied
            and self.tied == len(self.discriminator.blocks) == self.shape.num_hidden_layers
        ):
            return self.discriminator
        if self.tied:
            how = how | {"lower": self.discriminator, "tied": self.tied}
        return self.architecture.encoder(self.shape, self.embeddings, **how, **self.dropout)

    def lm_head(self, *, encoders: int = 1) -> Head:
        """A language model's head over the generator's word table, which reads the states of this
        many encoders side by side."""
        width = encoders * self.shape.hidden_size
        return self.architecture.lm_head(replace(self.shape, hidden_size=width), self.words)

    def masked_lm_head(self) -> Head:
        """The head of a network that is a masked language model and nothing else."""
        return self.architecture.masked_lm_head(self.shape, self.words)

    @property
    def words(self) -> Words:
        """The generator's word table."""
        return own_table(self.embeddings.words)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a corruptor is built from."""

    chooser: Chooser
    special: SpecialIds
    vocab_size: int
    counts_V: Tensor | None
    """[V] how often each token occurs in the corpus; None if nothing is trained."""
    mask_mix: tuple[float, ...]
    """Shares of the chosen tokens that are shown as [MASK], unchanged, random."""
    sampling: Sampling
    trains: bool
    """Whether a learned corruptor learns beside the objective."""
    parts: GeneratorParts | None
    """None for a corruptor whose row is not `learned`."""

    @property
    def networks(self) -> GeneratorParts:
        assert self.parts is not None
        return self.parts


@dataclass(frozen=True)
class Corrupted:
    """Corrupted text and everything that an objective may need to know about it. A corruptor that
    knows more returns a subclass."""

    tokens: Tokens
    """The changed text."""
    original_T: Tensor
    plan: Plan
    logits_MV: Tensor | None = None
    """The predictions (logits) of a learned corruptor; None for one without parameters."""
    rows_ME: Tensor | None = None
    """What the discriminator adds to its word vectors at `at_M`: zeros whose gradient leads
    from its losses to the corruptor. None if no gradient does."""

    @property
    def at_M(self) -> Tensor:
        return self.plan.at_M

    @property
    def valid_M(self) -> Tensor | None:
        """Which entries of at_M are chosen positions; None where all are."""
        return self.plan.valid_M

    @property
    def was_M(self) -> Tensor:
        return self.original_T[self.at_M]

    @property
    def now_M(self) -> Tensor:
        return self.tokens.ids_T[self.at_M]

    @property
    def chosen_T(self) -> Tensor:
        """True at the chosen positions."""
        chosen_T = torch.zeros_like(self.original_T, dtype=torch.bool).index_fill(
            0, self.at_M, True
        )
        if self.valid_M is None:
            return chosen_T
        # Fillers point at token 0, which is never chosen.
        return chosen_T & (torch.arange(len(chosen_T), device=chosen_T.device) > 0)

    @property
    def replaced_T(self) -> Tensor:
        """True where a token differs from the original: a sample equal to the original counts as
        original."""
        return self.tokens.ids_T != self.original_T


class Corruptor(Protocol):
    """Changes text. It decides in `plan`, on the CPU, and runs its networks, if it has any, when it
    is called. Its class has a class method `build(source, **options)`, which takes the fields of
    its row's own options (methods.py)."""

    chooser: Chooser

    def plan(self, tokens: Tokens, draws: Draws, *, fixed: bool = False) -> Plan:
        """Everything that is chosen in this batch, and the count of the corruptor's own loss.
        fixed: pad lists to one of a few lengths."""
        ...

    def __call__(self, tokens: Tokens, plan: Plan) -> Corrupted: ...

    def likelihood(self, z: Corrupted) -> dict[str, Loss]:
        """Its own loss, under the name `generator`; nothing if it has no network."""
        ...

    def rates(self, z: Corrupted, losses: dict[str, Loss]) -> Terms:
        """What is watched of its network beside the loss; nothing if it has none. losses: those of
        the forward pass, its own among them. A masked language model gives `lm_rates` of
        this module: its loss on [MASK] tells train/monitor.py whether it learns."""
        ...

    def passes(self) -> list[Pass]: ...

    def networks(self) -> dict[str, Network]:
        """Its networks that can be exported, by the name of their folder."""
        ...


def ordinary(special: SpecialIds, vocab_size: int) -> Tensor:
    """Ids that a random token may have: neither special nor [UNK]."""
    return torch.tensor(sorted(set(range(vocab_size)) - set(special.never_chosen) - {special.unk}))


def substitute(tokens: Tokens, plan: Plan, new_M: Tensor) -> Tokens:
    """`tokens` with `new_M` written at the chosen positions."""
    if plan.valid_M is not None:  # the fillers write the first token to its own place
        new_M = torch.where(plan.valid_M, new_M, tokens.ids_T[0])
    return replace(tokens, ids_T=tokens.ids_T.index_copy(0, plan.at_M, new_M))


def is_best(score_MV: Tensor, z: Corrupted) -> Tensor:
    """[M] 1 where the original has the highest score, else 0."""
    return (likeliest(score_MV) == z.was_M).float()


def lm_rates(
    name: str,
    logits_MV: Tensor,
    loss: Loss,
    z: Corrupted,
    *,
    mask_id: int,
    p_MV: Tensor | None = None,
) -> Terms:
    """A masked LM on what it was asked for: the accuracy, and the losses on [MASK], kept and random
    positions apart (BERT's mix lets the loss fall below the unigram entropy by copying alone).
    p_MV: softmax of the logits, where it is there already."""
    assert z.plan.shown_M is not None
    shown_M = z.plan.shown_M
    was_M = z.was_M
    valid_M = z.valid_M
    masked_M = shown_M == mask_id
    kept_M = shown_M == was_M
    random_M = ~kept_M & ~masked_M
    kept_M = kept_M & ~masked_M
    if valid_M is not None:
        masked_M = masked_M & valid_M
        kept_M = kept_M & valid_M
        random_M = random_M & valid_M
    right_M = is_best(logits_MV if p_MV is None else p_MV, z)
    return {
        f"{name}_accuracy": term(right_M, valid_M),
        f"{name}_loss_masked": term(loss.values_N, masked_M),
        f"{name}_loss_kept": term(loss.values_N, kept_M),
        f"{name}_loss_random": term(loss.values_N, random_M),
        f"{name}_accuracy_masked": term(right_M, masked_M),
    }
