"""Our networks and those of Hugging Face's library with the same weights, for the tests of each
architecture."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from electrify.architectures import architecture_named
from electrify.architectures.architecture import Architecture, ExportedModel
from electrify.architectures.keys import to_theirs
from electrify.model.heads import Head, HeadKind
from electrify.tokens import SpecialIds, Tokens

PAD = 37
SPECIAL = SpecialIds(pad=PAD, unk=1, cls=2, sep=3, mask=4)
KINDS: list[HeadKind] = ["token", "binary"]


def shaken(module: nn.Module, seed: int) -> None:
    """Random values in every parameter, so that none can be forgotten unseen."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            size = p.shape[-1] ** -0.5 if p.ndim == 2 else 0.3
            p.copy_(torch.randn(p.shape, generator=rng) * size + ("norm" in name.lower()))


@dataclass(frozen=True)
class Family:
    """An architecture and the library's network with the same weights, in some shapes."""

    name: str
    trunk: str
    """The attribute of the library's classes that holds the encoder."""
    shapes: tuple[Any, ...]

    @property
    def architecture(self) -> Architecture:
        return architecture_named(self.name)

    def ours(self, shape: Any, kind: HeadKind, *, seed: int, dropout: float = 0.5) -> Any:
        """Dropout is high, so that an eval mode that drops would show."""
        known = self.architecture
        encoder = known.encoder(
            shape,
            known.embeddings(shape, dropout=dropout),
            dropout=dropout,
            attention_dropout=dropout,
        )
        head: Head = (
            known.lm_head(shape, encoder.embeddings.words)
            if kind == "token"
            else known.binary_head(shape)
        )
        for part in (encoder, head):
            shaken(part, seed)
            part.eval()
        return ExportedModel(encoder, head, known)

    def config_of(self, shape: Any, kind: HeadKind) -> Any:
        known = self.architecture
        return known.hf_config(shape, kind, special=SPECIAL, dropout=0.5, attention_dropout=0.5)

    def theirs(self, own: ExportedModel) -> Any:
        """The library's network with our weights."""
        kind = own.head.kind
        model = getattr(transformers, self.architecture.classes[kind])
        model = model(self.config_of(own.encoder.shape, kind)).eval()
        table = own.table()
        state = to_theirs(table.rows, own.parameters())
        state |= {again: state[source] for again, source in table.tied.items()}
        model.load_state_dict(state, strict=True)
        return model

    @torch.no_grad()
    def their_numbers(
        self, model: Any, own: ExportedModel, tokens: Tokens
    ) -> tuple[Tensor, Tensor]:
        """States and logits of real tokens, by the library's network."""
        inputs = self.architecture.inputs(tokens)
        logits = self.logits(model(**inputs), own.head.kind)
        states = getattr(model, self.trunk)(**inputs).last_hidden_state
        return states.flatten(0, 1)[tokens.real_T], logits.flatten(0, 1)[tokens.real_T]

    def logits(self, output: Any, kind: HeadKind) -> Tensor:
        return output.logits if kind == "token" else self.architecture.binary_logits(output)


def padded(lengths: list[int], *, left: bool = False, seed: int = 0, vocab: int = 41) -> Tokens:
    """One sequence a row, padded to the longest."""
    rng = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    ids_BL = torch.randint(vocab, (len(lengths), longest), generator=rng)
    pos_BL = torch.arange(longest).repeat(len(lengths), 1)
    length_B1 = torch.tensor(lengths)[:, None]
    real_BL = pos_BL < length_B1
    if left:
        real_BL = real_BL.flip(1)
        pos_BL = (pos_BL - longest + length_B1).clamp(min=0)
    ids_BL = ids_BL.where(real_BL, torch.tensor(PAD))
    nothing = torch.zeros_like(ids_BL).flatten()
    fields = (ids_BL.flatten(), real_BL.long().flatten(), pos_BL.flatten(), nothing)
    return Tokens(*fields, row_length=longest)


def with_segments(tokens: Tokens, own: ExportedModel) -> Tokens:
    """The later part of each sequence in the second segment, if there is one."""
    two = own.encoder.shape.type_vocab_size > 1
    return replace(tokens, segment_T=((tokens.pos_T > 5) & tokens.real_T & two).long())


def as_counted(tokens: Tokens, own: ExportedModel) -> Tokens:
    """With the positions that the library gives to tokens behind padding."""
    if not own.architecture.counts_padding:
        return tokens
    return replace(tokens, pos_T=torch.arange(tokens.row_length).repeat(tokens.num_rows))


def side_by_side(single: Tokens, lengths: list[int], *, row_length: int) -> Tokens:
    """Sequences of single rows in one row, and padding."""
    ids = single.ids_T.view(len(lengths), -1)
    left = row_length - sum(lengths)
    row = torch.cat([ids[k, :n] for k, n in enumerate(lengths)] + [torch.full((left,), PAD)])
    seq = torch.cat([torch.full((n,), k) for k, n in enumerate(lengths, 1)] + [torch.zeros(left)])
    pos = torch.cat([torch.arange(n) for n in (*lengths, left)])
    return Tokens(row, seq.long(), pos, torch.zeros_like(row), row_length=row_length)


@torch.no_grad()
def numbers(own: ExportedModel, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """States and logits of real tokens, by our network."""
    x_TD = own.encoder(tokens)
    return x_TD[tokens.real_T], own.head(x_TD)[tokens.real_T]


def close(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.shape == b.shape
        assert float(a.std()) > 1e-2, "outputs that say nothing agree about everything"
        assert float((a - b).abs().max()) <= 1e-5 * max(1.0, float(a.abs().max()))


def same_gradients(own: ExportedModel, model: nn.Module) -> None:
    """Of every parameter, to 1e-5 of the largest of its tensor."""
    named = dict(own.encoder.named_parameters(prefix="encoder"))
    named |= dict(own.head.named_parameters(prefix="head"))
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for row in own.table().rows:
        mine, other = named[row.ours].grad, torch.cat([grads[n] for n in row.theirs])
        assert mine is not None
        if len(other) > len(mine):
            other = other[1:]  # of the second label; the first one's logit is 0
        if row.ours.endswith("words.weight"):
            other[PAD] = mine[PAD]  # no gradient reaches [PAD] from their input
        assert float((mine - other).abs().max()) <= 1e-5 * max(1.0, float(mine.abs().max()))
