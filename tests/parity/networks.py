"""Our networks and those of Hugging Face's library with the same weights, in several shapes."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from batches import shaken
from electrify.architectures import architecture_named
from electrify.architectures.architecture import ExportedModel
from electrify.exporting.folder import write_model
from electrify.tokens import SpecialIds, Tokens

PAD = 37
SPECIAL = SpecialIds(pad=PAD, unk=1, cls=2, sep=3, mask=4)
HOW: dict[str, Any] = {"special": SPECIAL, "dropout": 0.5, "attention_dropout": 0.5}
# Heads and vocabulary of odd sizes; of ModernBERT two local blocks, of DeBERTa more distances than
# buckets.
SIZES: dict[str, Any] = {"vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 3}
SIZES |= {"num_attention_heads": 3, "intermediate_size": 20, "max_position_embeddings": 600}
OWN: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 8},
    "modernbert": {"num_hidden_layers": 4, "local_attention": 128, "global_attn_every_n_layers": 3}
    | {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0},
    "deberta": {"position_buckets": 256},
}
ONE_WIDE_HEAD = {"hidden_size": 64, "num_attention_heads": 1, "layer_norm_eps": 1e-3}
SHAPES: dict[str, list[dict[str, Any]]] = {
    "electra": [
        {},
        {"embedding_size": 24, "max_position_embeddings": 40},
        {"hidden_size": 10, "num_hidden_layers": 1, "num_attention_heads": 1}
        | {"layer_norm_eps": 1e-5},
        {"vocab_size": 101, "embedding_size": 24, "hidden_size": 12, "num_attention_heads": 2},
        {"embedding_size": 4, "hidden_size": 64, "num_attention_heads": 8, "layer_norm_eps": 1e-3},
    ],
    "modernbert": [
        {},
        {"local_attention": 6, "global_attn_every_n_layers": 2, "global_rope_theta": 50.0},
        ONE_WIDE_HEAD,
        {"global_attn_every_n_layers": 1, "num_hidden_layers": 2},
        {"global_attn_every_n_layers": 9, "local_attention": 2, "vocab_size": 50},
    ],
    "deberta": [
        {},
        {"position_buckets": 8, "max_position_embeddings": 64},
        {"position_buckets": 2, "max_position_embeddings": 40},
        ONE_WIDE_HEAD,
        {"position_buckets": 64, "max_position_embeddings": 41, "num_hidden_layers": 1}
        | {"vocab_size": 50},
    ],
}
HEADS: dict[str, Any] = {
    "token": lambda known, shape, words: known.lm_head(shape, words),
    "binary": lambda known, shape, words: known.binary_head(shape),
    "select": lambda known, shape, words: known.selection_head(shape, words, 5),
    "linear": lambda known, shape, words: known.rtd_head(shape, "linear"),
    "v3": lambda known, shape, words: known.rtd_head(shape, "v3"),
    "decoder": lambda known, shape, words: type(known)({"mask_decoder": True}).masked_lm_head(
        shape, words
    ),
}


def shape_of(name: str, **numbers: Any) -> Any:
    numbers = SIZES | OWN[name] | numbers
    numbers = {"embedding_size": numbers["hidden_size"]} | numbers
    return architecture_named(name).shape_type(**numbers)


def ours(name: str, shape: Any, form: str, *, seed: int) -> ExportedModel:
    """Dropout is high, so that an eval mode that drops would show."""
    known = architecture_named(name)
    embeddings = known.embeddings(shape, dropout=0.5)
    encoder = known.encoder(shape, embeddings, dropout=0.5, attention_dropout=0.5)
    head = HEADS[form](known, shape, encoder.embeddings.words)
    for part in (encoder, head):
        shaken(part, seed)
        part.eval()
    return ExportedModel(encoder, head, known.for_head(head))


@dataclass(frozen=True)
class Pair:
    """A network of ours and the library's with the same weights: its encoder, and the whole."""

    own: ExportedModel
    encoder: Any
    theirs: Any

    @classmethod
    def of(cls, own: ExportedModel) -> "Pair":
        known, table = own.architecture, own.table()
        config = known.hf_config(own.encoder.shape, own.head.kind, **HOW)
        model = known.network_class(table.name)(config).eval()
        state = own.exported()
        state |= {again: state[source] for again, source in model.all_tied_weights_keys.items()}
        model.load_state_dict(state, strict=True)
        return cls(own, model.base_model, model)

    @classmethod
    def in_folder(cls, own: ExportedModel, folder: Path) -> "Pair":
        """As the library reads what `export` writes."""
        write_model(folder, own, **HOW)
        encoder = transformers.AutoModel.from_pretrained(folder)
        reader = own.architecture.network_class(own.table().name)
        whole, info = reader.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        return cls(own, encoder.eval(), whole.eval())

    def logits(self, tokens: Tokens) -> Tensor:
        """By theirs, of real tokens."""
        known = self.own.architecture
        output = self.theirs(**known.inputs(tokens))
        logits = known.binary_logits(output) if self.own.head.kind == "binary" else output.logits
        return logits.flatten(0, 1)[tokens.real_T]

    def own_logits(self, tokens: Tokens) -> Tensor:
        encoder, head = self.own.encoder, self.own.head
        return head(head.read(encoder, tokens, tokens.real_T.nonzero().flatten()))

    @torch.no_grad()
    def must_agree(self, single: Tokens, other: Tokens | None = None) -> None:
        """States and logits of real tokens, to 1e-5. other: the same sequences, for ours."""
        tokens = as_counted(single, self.own) if other is None else other
        inputs = self.own.architecture.inputs(single)
        states = self.encoder(**inputs).last_hidden_state.flatten(0, 1)[single.real_T]
        for a, b in (
            (self.own.encoder(tokens)[tokens.real_T], states),
            (self.own_logits(tokens), self.logits(single)),
        ):
            assert a.shape == b.shape
            assert float(a.std()) > 1e-2, "outputs that say nothing agree about everything"
            assert float((a - b).abs().max()) <= 1e-5 * max(1.0, float(a.abs().max()))


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
