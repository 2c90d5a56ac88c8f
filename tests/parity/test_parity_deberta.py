"""Our encoder and heads against transformers' DeBERTa classes on the same weights, float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from electrify.architectures import architecture_named
from electrify.architectures.deberta_shape import DebertaShape
from electrify.architectures.exported import ExportedModel
from electrify.architectures.keys import to_ours, to_theirs, without_tied
from electrify.errors import UserError
from electrify.model.heads import Head, HeadKind
from electrify.tokens import SpecialIds, Tokens

DEBERTA = architecture_named("deberta")
PAD = 37
SPECIAL = SpecialIds(pad=PAD, unk=1, cls=2, sep=3, mask=4)
KINDS: list[HeadKind] = ["token", "binary"]


def shape_of(**numbers: Any) -> DebertaShape:
    """Three blocks; heads and vocabulary of odd sizes, and more distances than buckets."""
    return DebertaShape(
        **{
            "vocab_size": 41,
            "embedding_size": 24,
            "hidden_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "intermediate_size": 20,
            "max_position_embeddings": 600,
            "position_buckets": 256,
        }
        | numbers
    )


SHAPES = [
    shape_of(),
    shape_of(position_buckets=8, max_position_embeddings=64),
    shape_of(position_buckets=2, max_position_embeddings=40),
    shape_of(hidden_size=64, embedding_size=64, num_attention_heads=1, layer_norm_eps=1e-3),
    shape_of(position_buckets=64, max_position_embeddings=41, num_hidden_layers=1, vocab_size=50),
]


def shaken(module: nn.Module, seed: int) -> None:
    """Random values in every parameter, so that none can be forgotten unseen."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            size = p.shape[-1] ** -0.5 if p.ndim == 2 else 0.3
            p.copy_(torch.randn(p.shape, generator=rng) * size + ("norm" in name.lower()))


def ours(shape: DebertaShape, kind: HeadKind, *, seed: int, dropout: float = 0.5) -> Any:
    """Dropout is high, so that an eval mode that drops would show."""
    encoder = DEBERTA.encoder(
        shape,
        DEBERTA.embeddings(shape, dropout=dropout),
        dropout=dropout,
        attention_dropout=dropout,
    )
    head: Head = (
        DEBERTA.lm_head(shape, encoder.embeddings.words)
        if kind == "token"
        else DEBERTA.binary_head(shape)
    )
    for part in (encoder, head):
        shaken(part, seed)
        part.eval()
    return ExportedModel(encoder, head, DEBERTA)


def config_of(shape: DebertaShape, kind: HeadKind) -> Any:
    return DEBERTA.hf_config(shape, kind, special=SPECIAL, dropout=0.5, attention_dropout=0.5)


def theirs(own: ExportedModel) -> Any:
    """The library's network with our weights."""
    kind = own.head.kind
    shape: Any = own.encoder.shape
    model = getattr(transformers, DEBERTA.classes[kind])(config_of(shape, kind)).eval()
    table = own.table()
    state = to_theirs(table.rows, own.parameters())
    state |= {again: state[source] for again, source in table.tied.items()}
    model.load_state_dict(state, strict=True)
    return model


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


@torch.no_grad()
def numbers(own: ExportedModel, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """States and logits of real tokens, by our network."""
    x_TD = own.encoder(tokens)
    return x_TD[tokens.real_T], own.head(x_TD)[tokens.real_T]


@torch.no_grad()
def their_numbers(model: Any, own: ExportedModel, tokens: Tokens) -> tuple[Tensor, Tensor]:
    inputs = DEBERTA.inputs(tokens)
    out = model(**inputs)
    logits = out.logits if own.head.kind == "token" else DEBERTA.binary_logits(out)
    states = model.deberta(**inputs).last_hidden_state
    return states.flatten(0, 1)[tokens.real_T], logits.flatten(0, 1)[tokens.real_T]


def close(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.shape == b.shape
        assert float(a.std()) > 1e-2, "outputs that say nothing agree about everything"
        assert float((a - b).abs().max()) <= 1e-5 * max(1.0, float(a.abs().max()))


# ---------------------------------------------------------------- states and logits


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_the_same_numbers(shape: DebertaShape, kind: HeadKind, left: bool) -> None:
    own = ours(shape, kind, seed=1)
    tokens = padded([40, 39, 20, 3, 1], left=left)
    close(numbers(own, tokens), their_numbers(theirs(own), own, tokens))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [8, 127, 128, 129, 513])
def test_the_same_numbers_around_the_buckets(kind: HeadKind, length: int) -> None:
    own = ours(shape_of(), kind, seed=2)
    model = theirs(own)
    for left in (False, True):
        tokens = padded([length, length - 5], left=left, seed=length)
        close(numbers(own, tokens), their_numbers(model, own, tokens))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_rows_are_the_single_sequences(kind: HeadKind) -> None:
    """Sequences side by side in a row, against the library that reads each by itself."""
    own = ours(shape_of(position_buckets=8), kind, seed=3)
    model = theirs(own)
    single = padded([19, 7, 12, 1], seed=5)
    lengths = [19, 7, 12, 1]
    ids = single.ids_T.view(4, 19)
    row = torch.cat([ids[k, :n] for k, n in enumerate(lengths)] + [torch.tensor([PAD] * 3)])
    seq = torch.cat([torch.full((n,), k) for k, n in enumerate(lengths, 1)] + [torch.zeros(3)])
    pos = torch.cat([torch.arange(n) for n in (*lengths, 3)])
    packed = Tokens(row, seq.long(), pos, torch.zeros_like(row), row_length=len(row))
    close(numbers(own, packed), their_numbers(model, own, single))


@pytest.mark.parametrize("kind", KINDS)
def test_their_weights_in_our_modules(kind: HeadKind) -> None:
    """A folder that the library trained: every weight is used, and read back as it was."""
    shape = SHAPES[1]
    model = getattr(transformers, DEBERTA.classes[kind])(config_of(shape, kind)).eval()
    shaken(model, 7)
    own = ours(shape, kind, seed=8)
    table = own.table()
    left = own.fill(to_ours(table.rows, without_tied(table, model.state_dict())))
    assert left == []
    tokens = padded([33, 12])
    close(numbers(own, tokens), their_numbers(model, own, tokens))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_too(kind: HeadKind) -> None:
    own = ours(SHAPES[1], kind, seed=9, dropout=0.0)
    model, tokens = theirs(own), padded([21, 13])
    own.head(own.encoder(tokens))[tokens.real_T].square().mean().backward()
    out = model(**DEBERTA.inputs(tokens))
    logits = out.logits if kind == "token" else DEBERTA.binary_logits(out)
    logits.flatten(0, 1)[tokens.real_T].square().mean().backward()
    named = dict(own.encoder.named_parameters(prefix="encoder"))
    named |= dict(own.head.named_parameters(prefix="head"))
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for row in own.table().rows:
        mine, other = named[row.ours].grad, torch.cat([grads[n] for n in row.theirs])
        if row.ours.startswith("head.out."):
            other = other[1:]  # of the second label; the first one's logit is 0
        if row.ours.endswith("words.weight"):
            other[PAD] = mine[PAD]  # no gradient reaches [PAD] from their input
        assert float((mine - other).abs().max()) <= 1e-5 * max(1.0, float(mine.abs().max()))


def test_softmax_of_the_exported_labels_is_the_sigmoid() -> None:
    own = ours(SHAPES[0], "binary", seed=4)
    model, tokens = theirs(own), padded([15])
    assert model.config.id2label == {0: "original", 1: "replaced"}
    with torch.no_grad():
        logits = model(**DEBERTA.inputs(tokens)).logits[0]
    assert torch.equal(logits[:, 0], torch.zeros(15))
    close((logits.softmax(-1)[:, 1],), (numbers(own, tokens)[1].sigmoid(),))


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_as_many_parameters(shape: DebertaShape) -> None:
    for kind in KINDS:
        own = ours(shape, kind, seed=0)
        have = sum(p.numel() for p in own.parameters().values())
        assert have == sum(p.numel() for p in theirs(own).parameters())
    own = ours(shape, "binary", seed=0)
    norms = sum(p.numel() for p in own.encoder.parameters() if p.ndim == 1)
    assert shape.least_parameters + norms == sum(p.numel() for p in own.encoder.parameters())


# ---------------------------------------------------------------- configurations


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_a_configuration_says_the_shape(shape: DebertaShape, tmp_path: Any) -> None:
    config = config_of(shape, "token")
    config.save_pretrained(tmp_path)
    read = transformers.AutoConfig.from_pretrained(tmp_path)
    DEBERTA.must_compute_the_same("it", read)
    assert DEBERTA.shape_of(read) == shape
    assert read.pad_token_id == PAD
    assert not read.legacy
    assert (read.bos_token_id, read.eos_token_id) == (2, 3)


# What config.json of microsoft/deberta-v3-base says; sizes of small ones are put in their place.
PUBLISHED: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}


def test_the_published_configuration() -> None:
    """It does not name its class, nor the form of the language model's head."""
    config = transformers.DebertaV2Config(**PUBLISHED)
    DEBERTA.must_compute_the_same("it", config)
    assert config.legacy
    assert not DEBERTA.as_read(config).legacy
    assert DEBERTA.shape_of(config) == shape_of(
        vocab_size=128_100,
        embedding_size=768,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=512,
    )
    same = transformers.DebertaV2Config(**PUBLISHED | {"max_relative_positions": 512})
    DEBERTA.must_compute_the_same("it", same)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"hidden_act": "relu"}, "hidden_act relu"),
        ({"relative_attention": False}, "relative_attention False"),
        ({"share_att_key": False}, "share_att_key False"),
        ({"norm_rel_ebd": "none"}, "norm_rel_ebd none"),
        ({"position_biased_input": True}, "position_biased_input True"),
        ({"type_vocab_size": 2}, "type_vocab_size 2"),
        ({"conv_kernel_size": 3}, "conv_kernel_size 3"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings False"),
        ({"embedding_size": 64}, "embedding_size 64"),
        ({"attention_head_size": 32}, "attention_head_size 32"),
        ({"pos_att_type": "c2p"}, "pos_att_type c2p"),
        ({"pos_att_type": None}, "pos_att_type None"),
        ({"position_buckets": -1}, "position_buckets -1"),
        ({"position_buckets": 7}, "position_buckets 7"),
        ({"max_relative_positions": 256}, "max_relative_positions 256"),
    ],
    ids=str,
)
def test_what_we_do_not_compute_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as found:
        DEBERTA.must_compute_the_same("it", transformers.DebertaV2Config(**PUBLISHED | fields))
    assert str(found.value) == f"it computes what our encoder does not: {says}"


def test_the_library_s_defaults_are_refused() -> None:
    """Those of DeBERTa V2, which says nothing of most fields."""
    with pytest.raises(UserError, match="relative_attention False, share_att_key None"):
        DEBERTA.must_compute_the_same("it", transformers.DebertaV2Config())


# ---------------------------------------------------------------- the mask decoder


def decoded(shape: DebertaShape, *, seed: int) -> ExportedModel:
    made = ours(shape, "token", seed=seed)
    head = DEBERTA.with_decoder(True).masked_lm_head(shape, made.encoder.embeddings.words).eval()
    shaken(head, seed)
    return ExportedModel(made.encoder, head, DEBERTA.for_head(head))


def decoding(own: ExportedModel) -> Any:
    """The class that reads the folders, with our weights."""
    known, table = own.architecture, own.table()
    how: dict[str, Any] = {"special": SPECIAL, "dropout": 0.5, "attention_dropout": 0.5}
    shape: Any = own.encoder.shape
    model = known.network_class(table.name)(known.hf_config(shape, "token", **how)).eval()
    model.load_state_dict(to_theirs(table.rows, own.parameters()), strict=True)
    return model


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@torch.no_grad()
def test_the_same_numbers_with_a_mask_decoder(shape: DebertaShape, left: bool) -> None:
    """By the class that reads the folders, padded on either side; and packed."""
    own = decoded(shape, seed=10)
    lengths = [19, 7, 12, 1]
    single = padded(lengths, left=left, seed=5)
    real_T, row_B = single.real_T, torch.arange(1, 5)
    theirs_BLV = decoding(own)(**DEBERTA.inputs(single)).logits
    found_MV = theirs_BLV.flatten(0, 1)[real_T]
    packed = Tokens(
        single.ids_T[real_T],
        row_B.repeat_interleave(single.row_length)[real_T],
        single.pos_T[real_T],
        single.segment_T[real_T],
        row_length=sum(lengths),
    )
    for tokens in (single, packed):
        every_T = tokens.real_T.nonzero().flatten()
        logits_MV = own.head(own.head.read(own.encoder, tokens, every_T))
        close((logits_MV,), (found_MV,))
    plain = ours(shape, "token", seed=10)
    assert float((numbers(plain, single)[1] - found_MV).abs().max()) > 0.1, "another network"


def test_gradients_of_a_mask_decoder_agree_too() -> None:
    """Those of the table of positions with them."""
    made = decoded(SHAPES[1], seed=11)
    for part in (made.encoder, made.head):
        part.eval()
    model, tokens = decoding(made), padded([21, 13])
    at_M = tokens.real_T.nonzero().flatten()
    made.head(made.head.read(made.encoder, tokens, at_M)).square().mean().backward()
    logits = model(**DEBERTA.inputs(tokens)).logits.flatten(0, 1)
    logits[at_M].square().mean().backward()
    named = dict(made.encoder.named_parameters(prefix="encoder"))
    named |= dict(made.head.named_parameters(prefix="head"))
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for row in made.table().rows:
        mine, other = named[row.ours].grad, torch.cat([grads[n] for n in row.theirs])
        if row.ours.endswith("words.weight"):
            other[PAD] = mine[PAD]  # no gradient reaches [PAD] from their input
        assert float((mine - other).abs().max()) <= 1e-5 * max(1.0, float(mine.abs().max()))


# ---------------------------------------------------------------- DeBERTaV3's own head


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_the_same_numbers_with_its_own_head(shape: DebertaShape, left: bool) -> None:
    """By the class that reads the folders, padded on either side; and packed."""
    made = ours(shape, "binary", seed=6)
    head = DEBERTA.rtd_head(shape, "v3").eval()
    shaken(head, 6)
    known = DEBERTA.for_head(head)
    own = ExportedModel(made.encoder, head, known)
    table = own.table()
    config = known.hf_config(shape, "binary", special=SPECIAL, dropout=0.5, attention_dropout=0.5)
    model = known.network_class(table.name)(config).eval()
    model.load_state_dict(to_theirs(table.rows, own.parameters()), strict=True)
    lengths = [19, 7, 12, 1]
    single = padded(lengths, left=left, seed=5)
    found = their_numbers(model, own, single)
    real_T, row_B = single.real_T, torch.arange(1, 5)
    packed = Tokens(
        single.ids_T[real_T],
        row_B.repeat_interleave(single.row_length)[real_T],
        single.pos_T[real_T],
        single.segment_T[real_T],
        row_length=sum(lengths),
    )
    for tokens in (single, packed):
        with torch.no_grad():
            x_TD = own.encoder(tokens)
            logits_T = head(head.inputs(x_TD, tokens))
        close((x_TD[tokens.real_T], logits_T[tokens.real_T]), found)
