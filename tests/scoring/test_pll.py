"""Scores of sentences against the definition, one sentence and one masked token at a time, with
transformers' own models."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from scored import SHAPE, VOCABULARY
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ModernBertConfig,
    RobertaConfig,
)
from transformers.modeling_outputs import MaskedLMOutput

from electrify.scoring.pll import is_short, load_scorer, logits_at
from electrify.scoring.word_substitution import (
    SPAN,
    WORDS,
    Planted,
    Verdict,
    first_sentences,
    plant,
    planted_pairs,
    summary,
)
from electrify.text.tokenizer import load_tokenizer

TEXTS = ["The chef cooked the meal", "the", "the meal cooked the chef the meal", "chef, cooked"]


@pytest.fixture(scope="module")
def run(models_root: Path) -> Path:
    return models_root / "run"


def ids_of(folder: Path, text: str) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]


@pytest.mark.parametrize("batch_tokens", [1, 20, 8192])
def test_a_masked_language_model_by_hand(run: Path, batch_tokens: int):
    folder = run / "generator"
    model = ElectraForMaskedLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    wanted = []
    for text in TEXTS:
        ids, total = ids_of(folder, text), 0.0
        for i in range(1, len(ids) - 1):
            masked = torch.tensor([ids])
            masked[0, i] = tokenizer.mask_token_id
            with torch.no_grad():
                total += float(model(input_ids=masked).logits[0, i].log_softmax(-1)[ids[i]])
        wanted.append(total)
    scorer = load_scorer(str(folder))
    assert scorer.kind == "mlm"
    assert scorer.scores(TEXTS, batch_tokens=batch_tokens) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("kind", ["rtd", "electric"])
def test_one_pass_by_hand(run: Path, tmp_path: Path, kind: str):
    """Log P(original) of every token; for a folder whose mark says so, minus the energies."""
    folder = shutil.copytree(run / "discriminator", tmp_path / "model")
    (folder / "electrify.json").write_text(
        json.dumps({"logits": "energy" if kind == "electric" else "replaced"})
    )
    model = ElectraForPreTraining.from_pretrained(folder).eval()
    wanted = []
    for text in TEXTS:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids_of(folder, text)])).logits[0, 1:-1].double()
        wanted.append(
            float(-logits.sum() if kind == "electric" else (1 - logits.sigmoid()).log().sum())
        )
    scorer = load_scorer(str(folder))
    assert scorer.kind == kind
    assert scorer.scores(TEXTS) == pytest.approx(wanted, abs=1e-4)


WORDS_OF_TEXTS = st.lists(st.sampled_from(["the", "chef", "meal"]), min_size=1, max_size=6)


@settings(max_examples=6, deadline=None)
@given(st.lists(WORDS_OF_TEXTS.map(" ".join), min_size=1, max_size=6), st.integers(1, 200))
def test_neighbours_in_a_batch_do_not_matter(models_root, texts, batch_tokens):
    """And every text is counted once."""
    for half in ("generator", "discriminator"):
        scorer = load_scorer(str(models_root / "run" / half))
        done: list[float] = []
        together = scorer.scores(texts, batch_tokens=batch_tokens, after=done.append)
        assert sum(done) == pytest.approx(len(texts))
        assert together == pytest.approx([scorer.scores([text])[0] for text in texts], abs=1e-4)


@pytest.mark.parametrize(
    "config",
    [RobertaConfig, BertConfig, DistilBertConfig, AlbertConfig, DebertaV2Config, ModernBertConfig],
    ids=lambda c: c.model_type,
)
def test_the_short_way_is_the_whole_way(config: Any):
    """Random models of other architectures: at one place of each row, the same logits."""
    small: dict[str, Any] = SHAPE | {"vocab_size": 40, "pad_token_id": 0}
    if config is DistilBertConfig:
        small |= {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 32}
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(config(**small)).eval()
    inputs = {
        "input_ids": torch.randint(5, 40, (3, 7)),
        "attention_mask": torch.ones(3, 7, dtype=torch.long),
    }
    at_B = torch.tensor([1, 5, 6])
    with torch.inference_mode():
        whole = logits_at(model, at_B, short=False, **inputs)
        assert torch.equal(whole, model(**inputs).logits[torch.arange(3), at_B])
        assert is_short(model, vocab_size=40)
        torch.testing.assert_close(
            logits_at(model, at_B, short=True, **inputs), whole, atol=1e-5, rtol=1e-4
        )
        assert model(**inputs).logits.shape == (3, 7, 40), "the hook is gone"


def test_a_head_that_needs_the_whole_row_gets_it():
    """A model whose logits depend on the other places: noticed, and run the whole way."""

    class Mixing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_model = torch.nn.Embedding(40, 8)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            states = self.base_model(input_ids)
            return MaskedLMOutput(logits=states + states.mean(1, keepdim=True))

    assert not is_short(Mixing(), vocab_size=40)


PADDED = {"pad_token_id": 1}
MODELS: dict[str, dict[str, Any]] = {
    "MPNet": PADDED,
    "Roberta": PADDED,
    "Camembert": {"pad_token_id": 0},
    "Longformer": PADDED | {"attention_window": 4},
    "Nystromformer": {"num_landmarks": 8, "segment_means_seq_len": 16},
    "Bert": {},
    "ModernBert": {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
    | {"bos_token_id": 2, "eos_token_id": 3},
    "DebertaV2": {},
}


def made(folder: Path, tokenizer: Path, kind: str) -> Path:
    shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors", "config*"))
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(VOCABULARY), **SHAPE, **MODELS[kind]
    )
    torch.manual_seed(0)
    getattr(transformers, f"{kind}ForMaskedLM")(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", MODELS)
def test_a_text_as_long_as_the_model_reads(models_root: Path, tmp_path: Path, kind: str) -> None:
    """Some count their positions from behind the padding token's id; the last ones do not exist."""
    scorer = load_scorer(str(made(tmp_path / "model", models_root / "bert", kind)))
    longest = scorer.longest
    assert 14 <= longest <= 16
    ids, scores_T = scorer.token_scores(["a " * (longest - 2)])[0]
    assert len(ids) == longest - 2  # one window
    ids, scores_T = scorer.token_scores(["a " * 40])[0]
    assert len(ids) == 40
    assert scores_T.isfinite().all()


def test_first_sentences_are_of_plain_words_and_not_repeated():
    texts = [
        "Return the names of all\n  files in order. Second sentence that is left out here.",
        "Return the names of all files in order.",
        "Return os.path.join of all the names given here.",
        "Too short.",
        "One two three four five six, seven.",
        " ".join(["Many", *["words"] * 20]) + ".",
    ]
    assert first_sentences(texts) == [
        "Return the names of all files in order.",
        "One two three four five six, seven.",
    ]


SENTENCES = [
    f"The {a} sits on the {b} today."
    for a, b in (("chef", "table"), ("dog", "meadow"), ("king", "throne"), ("bird", "branch"))
]


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_word_is_foreign_and_the_rest_is_untouched(seed: int):
    planted = plant(SENTENCES, count=3, seed=seed)
    assert 1 <= len(planted) <= 3
    assert planted == plant(SENTENCES, count=3, seed=seed)
    for p in planted:
        original = p.text[: p.start] + p.right + p.text[p.end :]
        assert original in SENTENCES
        assert p.wrong not in original
        assert len(p.wrong) >= 4 <= len(p.right)
        assert any(p.wrong in s for s in SENTENCES)
    assert len({p.text[: p.start] + p.right + p.text[p.end :] for p in planted}) == len(planted)


def test_summary_by_hand():
    p = Planted("a bcd ef", 2, 5, "xyz")
    caught, missed = Verdict(p, 0.5, (0.1, 0.2, 0.3)), Verdict(p, 0.2, (0.1, 0.3))
    tie = Verdict(p, 0.3, (0.3,))
    assert p.wrong == "bcd"
    assert (caught.caught, missed.caught, tie.caught) == (True, False, False)
    # Guessing: 1/4 + 1/3 + 1/2 = 1.08; medians of .5 .2 .3 and of .1 .2 .3 .1 .3 .3.
    text = summary([caught, missed, tie])
    assert "1 of 3 sentences (guessing: 1)" in text
    assert "30.0% for substituted words, 25.0% for the others" in text


def test_one_word_differs_and_has_as_many_tokens(small_data: Path) -> None:
    tokenizer = load_tokenizer(small_data / "tokenizer")
    paradigm = planted_pairs(small_data, count=20)
    assert (len(paradigm.pairs), paradigm.part) == (20, "planted")
    for pair in paradigm.pairs:
        good, bad = pair.good.split(), pair.bad.split()
        assert len(good) >= WORDS
        assert sum(a != b for a, b in zip(good, bad, strict=True)) == 1
        lengths = [len(tokenizer(t, add_special_tokens=False)["input_ids"]) for t in (good, bad)]
        assert lengths[0] == lengths[1] <= SPAN


def test_the_text_is_held_out(small_data: Path) -> None:
    from electrify.text.corpus import Corpus

    corpus = Corpus(small_data, "valid")
    tokenizer = load_tokenizer(small_data / "tokenizer")
    whole = " ".join(
        tokenizer.decode(corpus.tokens[0][a:b].tolist()) for a, b in pairwise(corpus.documents[0])
    )
    assert all(pair.good.strip() in whole for pair in planted_pairs(small_data, count=20).pairs)
