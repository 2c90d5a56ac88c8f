"""Every class that is exported, as a folder that the library reads, against our own network: each
length, padding on either side, and packed rows, float32."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from families import deberta_shape, electra_shape, modernbert_shape
from torch import Tensor
from two_networks import SPECIAL, as_counted, close, padded, shaken, side_by_side, with_segments

from electrify.architectures import architecture_named
from electrify.architectures.architecture import ExportedModel
from electrify.exporting.folder import write_model
from electrify.tokens import Tokens

LONGEST = 2048
LENGTHS = [8, 129, 300, pytest.param(LONGEST, marks=pytest.mark.slow)]
SHAPES: dict[str, Any] = {
    "electra": electra_shape(max_position_embeddings=LONGEST),
    "modernbert": modernbert_shape(
        max_position_embeddings=LONGEST, hidden_size=48, embedding_size=48
    ),
    "deberta": deberta_shape(max_position_embeddings=LONGEST),
}
HEADS: dict[str, Any] = {
    "token": lambda known, shape, words: known.lm_head(shape, words),
    "binary": lambda known, shape, words: known.binary_head(shape),
    "select": lambda known, shape, words: known.selection_head(shape, words, 5),
    "linear": lambda known, shape, words: known.rtd_head(shape, "linear"),
    "v3": lambda known, shape, words: known.rtd_head(shape, "v3"),
    "decoder": lambda known, shape, words: known.for_config({"mask_decoder": True}).masked_lm_head(
        shape, words
    ),
}
EXPORTS = {
    "electra-token": "ElectraForMaskedLM",
    "electra-binary": "ElectraForPreTraining",
    "electra-select": "ElectraForMaskedLM",
    "electra-linear": "ElectraForPreTraining",
    "modernbert-token": "ModernBertForMaskedLM",
    "modernbert-binary": "ModernBertForTokenClassification",
    "modernbert-select": "ModernBertForMaskedLM",
    "deberta-token": "DebertaV2ForMaskedLM",
    "deberta-binary": "DebertaV2ForTokenClassification",
    "deberta-select": "DebertaV2ForMaskedLM",
    "deberta-v3": "DebertaV2Model",
    "deberta-decoder": "DebertaV2ForMaskedLM",
}


@dataclass(frozen=True)
class Pair:
    """A network of ours, and what the library reads from its folder: the encoder by itself, and the
    whole network."""

    own: ExportedModel
    encoder: Any
    theirs: Any

    @torch.no_grad()
    def by_theirs(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """States and logits of real tokens."""
        known = self.own.architecture
        inputs = known.inputs(tokens)
        output = self.theirs(**inputs)
        logits = known.binary_logits(output) if self.own.head.kind == "binary" else output.logits
        states = self.encoder(**inputs).last_hidden_state
        return states.flatten(0, 1)[tokens.real_T], logits.flatten(0, 1)[tokens.real_T]

    @torch.no_grad()
    def by_ours(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        encoder, head = self.own.encoder, self.own.head
        at_M = tokens.real_T.nonzero().flatten()
        return encoder(tokens)[at_M], head(head.read(encoder, tokens, at_M))


@pytest.fixture(scope="module", params=EXPORTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Random weights in every parameter, written as `export` writes them."""
    import transformers

    name, form = request.param.split("-")
    shape, known = SHAPES[name], architecture_named(name)
    encoder = known.encoder(
        shape, known.embeddings(shape, dropout=0.5), dropout=0.5, attention_dropout=0.5
    )
    head = HEADS[form](known, shape, encoder.embeddings.words)
    for part in (encoder, head):
        shaken(part, seed=10)
        part.eval()
    own = ExportedModel(encoder, head, known.for_head(head))
    folder: Path = tmp_path_factory.mktemp(request.param)
    write_model(folder, own, special=SPECIAL, dropout=0.5, attention_dropout=0.5)
    bare = transformers.AutoModel.from_pretrained(folder)
    reader = own.architecture.network_class(own.table().name)
    whole, info = reader.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert whole.config.architectures == [EXPORTS[request.param]]
    return Pair(own, bare.eval(), whole.eval())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_the_same_numbers_at_each_length(pair: Pair, length: int, left: bool) -> None:
    lengths = [length, length // 2 + 1, *([length - 1] if length < LONGEST else [])]
    single = with_segments(padded(lengths, left=left, seed=length), pair.own)
    close(pair.by_ours(as_counted(single, pair.own)), pair.by_theirs(single))


@pytest.mark.parametrize(
    ("lengths", "row_length"),
    [
        ([8, 1, 5], 16),
        ([127, 128, 129, 1, 8], 393),
        ([129, 300, 8, 1, 127], 600),
        pytest.param([700, 1200, 129], LONGEST, marks=pytest.mark.slow),
    ],
    ids=lambda x: str(x) if isinstance(x, int) else None,
)
def test_the_same_numbers_packed(pair: Pair, lengths: list[int], row_length: int) -> None:
    """Ours in one row; the library's each in its own."""
    single = with_segments(padded(lengths, seed=row_length), pair.own)
    packed = with_segments(side_by_side(single, lengths, row_length=row_length), pair.own)
    close(pair.by_ours(packed), pair.by_theirs(single))
