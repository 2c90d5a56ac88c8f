"""Every class that is exported, as a folder that the library reads, against our own network: each
length, padding on either side, and packed rows, float32."""

import pytest
from networks import Pair, ours, padded, shape_of, side_by_side, with_segments

LONGEST = 2048
LENGTHS = [8, 129, 300, pytest.param(LONGEST, marks=pytest.mark.slow)]
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


@pytest.fixture(scope="module", params=EXPORTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Random weights in every parameter, written as `export` writes them."""
    name, form = request.param.split("-")
    wide = {"hidden_size": 48} if name == "modernbert" else {}
    shape = shape_of(name, max_position_embeddings=LONGEST, **wide)
    own = ours(name, shape, form, seed=10)
    made = Pair.in_folder(own, tmp_path_factory.mktemp(request.param))
    assert made.theirs.config.architectures == [EXPORTS[request.param]]
    return made


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_the_same_numbers_at_each_length(pair: Pair, length: int, left: bool) -> None:
    lengths = [length, length // 2 + 1, *([length - 1] if length < LONGEST else [])]
    pair.must_agree(with_segments(padded(lengths, left=left, seed=length), pair.own))


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
    packed = side_by_side(single, lengths, row_length=row_length)
    pair.must_agree(single, with_segments(packed, pair.own))
