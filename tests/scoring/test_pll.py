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
from transformers import AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

import electrify
from electrify.scoring.blimp import Pair
from electrify.scoring.detect import Piece
from electrify.scoring.pll import load_scorer, logits_at
from electrify.scoring.windows import windows_of
from electrify.scoring.word_substitution import (
    SPAN,
    WORDS,
    Verdict,
    judge,
    substitution_pairs,
    summary,
)
from electrify.text.corpus import Corpus
from electrify.text.tokenizer import load_tokenizer
from tiny_models import SHAPE

VOCAB = 18  # words of models_root
LONG = "the chef cooked a meal , " * 6 + "a b c d"  # 46 tokens; the models read 14 at once
TEXTS = ["The chef cooked the meal", "the", "the meal cooked the chef the meal", "chef, cooked"]


def by_hand(folder: Path, kind: str, text: str) -> list[float]:
    """The scores of the tokens, one at a time."""
    cls = ElectraForMaskedLM if kind == "mlm" else ElectraForPreTraining
    model, tokenizer = cls.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    scores = []
    for start, stop, first, last in windows_of(len(ids), size=14):
        for token in range(first, last):
            place = 1 + token - start
            frame = tokenizer.cls_token_id, *ids[start:stop], tokenizer.sep_token_id
            window = torch.tensor([frame])
            if kind == "mlm":
                window[0, place] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(input_ids=window).logits[0, place].double()
            if kind == "mlm":
                scores.append(float(logits.log_softmax(-1)[ids[token]]))
            else:
                scores.append(
                    float(-logits if kind == "electric" else (1 - logits.sigmoid()).log())
                )
    return scores


@pytest.mark.parametrize(
    ("kind", "batch_tokens"),
    [("mlm", 1), ("mlm", 20), ("mlm", 8192), ("rtd", 100), ("electric", 8192)],
)
def test_scores_by_hand(models_root: Path, tmp_path: Path, kind: str, batch_tokens: int):
    """Each token masked by itself; log P(original) of every token; for a folder whose mark says so,
    minus the energies. Of a long text, each token in the window where it sees the most."""
    part = "generator" if kind == "mlm" else "discriminator"
    folder = shutil.copytree(models_root / "run" / part, tmp_path / "model")
    if kind != "mlm":
        logits = "energy" if kind == "electric" else "replaced"
        (folder / "electrify.json").write_text(json.dumps({"logits": logits}))
    scorer = load_scorer(str(folder))
    assert scorer.kind == kind
    wanted = [by_hand(folder, kind, text) for text in (*TEXTS, LONG)]
    found = scorer.token_scores([*TEXTS, LONG], batch_tokens=batch_tokens)
    for text, by_token in zip(found, wanted, strict=True):
        assert len(text.tokens) == len(by_token)
        near = 1e-4 if kind == "electric" else 1e-5  # energies are larger than logarithms
        assert text.token_scores == pytest.approx(by_token, abs=near)
    sums = scorer.scores(TEXTS, batch_tokens=batch_tokens)
    assert sums == pytest.approx(list(map(sum, wanted[:-1])), abs=1e-4)


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


PADDED = {"pad_token_id": 1}
MODELS: dict[str, dict[str, Any]] = {
    "MPNet": PADDED,
    "Roberta": PADDED,
    "Camembert": {"pad_token_id": 0},
    "Longformer": PADDED | {"attention_window": 4},
    "Nystromformer": {"num_landmarks": 8, "segment_means_seq_len": 16},
    "Bert": {},
    "DistilBert": {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 32},
    "Albert": {"pad_token_id": 0},
    "ModernBert": {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
    | {"bos_token_id": 2, "eos_token_id": 3},
    "DebertaV2": {"position_biased_input": False},  # relative positions have no end
}
SHORT = ("Roberta", "Camembert", "Bert", "DistilBert", "Albert", "DebertaV2", "ModernBert")


@pytest.mark.parametrize("kind", MODELS)
def test_every_architecture(models_root: Path, tmp_path: Path, kind: str) -> None:
    """A text as long as the model reads: some count their positions from behind the padding token's
    id, and the last ones do not exist. At one place of each row, the head on that place alone gives
    the logits of the head on all."""
    folder, size = tmp_path / "model", SHAPE | {"vocab_size": VOCAB}
    unlike = shutil.ignore_patterns("*.safetensors", "config*")
    shutil.copytree(models_root / "bert", folder, ignore=unlike)
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**size | MODELS[kind])
    getattr(transformers, f"{kind}ForMaskedLM")(config).save_pretrained(folder)
    scorer = load_scorer(str(folder))
    assert 14 <= scorer.positions <= 16
    for text, length in ("a " * (scorer.positions - 2), scorer.positions - 2), ("a " * 40, 40):
        (found,) = scorer.token_scores([text])
        assert len(found.tokens) == len(found.token_scores) == length
    if kind not in SHORT:
        return
    assert scorer.short
    model, at_B = scorer.model, torch.tensor([1, 5, 6])
    inputs = {"input_ids": torch.randint(5, VOCAB, (3, 7))}
    inputs["attention_mask"] = torch.ones(3, 7, dtype=torch.long)
    with torch.inference_mode():
        whole = model(**inputs).logits[torch.arange(3), at_B]
        assert torch.equal(logits_at(model, at_B, short=False, **inputs), whole)
        short = logits_at(model, at_B, short=True, **inputs)
        torch.testing.assert_close(short, whole, atol=1e-5, rtol=1e-4)
        assert model(**inputs).logits.shape == (3, 7, VOCAB), "the hook is gone"


def verdict(wrong: float, *others: float) -> Verdict:
    return Verdict("a bcd ef", Piece("bcd", 2, 5, wrong), others)


def test_summary_by_hand():
    caught, missed, tie = verdict(0.5, 0.1, 0.2, 0.3), verdict(0.2, 0.1, 0.3), verdict(0.3, 0.3)
    assert (caught.caught, missed.caught, tie.caught) == (True, False, False)
    # Guessing: 1/4 + 1/3 + 1/2 = 1.08; medians of .5 .2 .3 and of .1 .2 .3 .1 .3 .3.
    text = summary([caught, missed, tie])
    for number in ("1 of 3 texts (guessing: 1)", "30.0% for substituted", "25.0% for the"):
        assert number in text


def test_the_verdict_on_a_word_by_hand(models_root: Path):
    folder = str(models_root / "run" / "discriminator")
    pairs = [Pair("the chef ate the meal", "the chef cooked the meal", 9), Pair("a b", "c b", 0)]
    for pair, word, found in zip(pairs, ("cooked", "c"), judge(folder, pairs), strict=True):
        (wanted,) = electrify.detect(folder, [pair.bad])
        probabilities = {w.token: w.probability for w in wanted.words}
        assert (found.wrong.token, found.wrong.start) == (word, pair.at)
        assert found.wrong.probability == pytest.approx(probabilities[word], abs=1e-6)
        rest = [w.probability for w in wanted.words if w.start != pair.at]
        assert found.others == pytest.approx(rest, abs=1e-6)


def test_one_word_of_held_out_text_differs_and_has_as_many_tokens(small_data: Path) -> None:
    tokenizer, corpus = load_tokenizer(small_data / "tokenizer"), Corpus(small_data, "valid")
    whole = " ".join(
        tokenizer.decode(corpus.tokens[0][a:b].tolist()) for a, b in pairwise(corpus.documents[0])
    )
    paradigm = substitution_pairs(small_data, count=20)
    assert (len(paradigm.pairs), paradigm.part) == (20, "substitution")
    for pair in paradigm.pairs:
        assert pair.good.strip() in whole
        good, bad = pair.good.split(), pair.bad.split()
        assert len(good) >= WORDS
        assert sum(a != b for a, b in zip(good, bad, strict=True)) == 1
        lengths = [len(tokenizer(t, add_special_tokens=False)["input_ids"]) for t in (good, bad)]
        assert lengths[0] == lengths[1] <= SPAN
        good, bad = (text[pair.at :].split()[0] for text in (pair.good, pair.bad))
        assert (good != bad, pair.good[: pair.at]) == (True, pair.bad[: pair.at])
