"""What only DeBERTa has, by the real verbs: runs with its mask decoder and with DeBERTaV3's own
head that detects, and runs that start from folders as Microsoft publishes them (small random
networks of the same classes, with the published values of config.json)."""

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from short_runs import SHORT, STILL, TEXTS, config_of, detects_as_the_run, network, same, weights_of

from batches import from_sequences
from electrify import cli, detect
from electrify.exporting.agreement import ExportError, check_folder
from electrify.exporting.loading import quiet
from electrify.recipe import load
from electrify.scoring.pll import load_scorer
from electrify.text.corpus import Corpus
from published import DEBERTA_V3
from small import DROPOUT, mistake, pretrain_words, run

POSITIONS = "deberta.embeddings.position_embeddings.weight"
HEAD = {
    f"mask_predictions.{layer}.{part}": (1,) * (layer == "classifier") or (32,)
    for layer in ("dense", "LayerNorm", "classifier")
    for part in ("weight", "bias")
}
HEAD |= {"mask_predictions.dense.weight": (32, 32), "mask_predictions.classifier.weight": (1, 32)}


def words(data: Path, folder: Path, name: str = "electra-deberta", **fields: Any) -> list[str]:
    """The command of a short run of a tiny recipe with DeBERTa's blocks."""
    own = SHORT | {"position_buckets": 8} | fields
    return [str(w) for w in pretrain_words(data, folder, recipe=f"{name}-tiny", **own)]


def still(data: Path, folder: Path, name: str = "electra-deberta", **fields: Any) -> list[str]:
    own = STILL | fields
    return [str(w) for w in pretrain_words(data, folder, recipe=f"{name}-tiny", **own)]


# ------------------------------------------------------------------ the mask decoder


@pytest.fixture(scope="module")
def decoder(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed, with dropout and with a rate at which the table changes."""
    folder = tmp_path_factory.mktemp("decoder") / "run"
    fields = {"mask_decoder": True, "learning_rate": 0.01, **DROPOUT}
    assert cli.main(words(small_data, folder, **fields)) == 0
    return folder


def test_the_folder_keeps_the_table(decoder: Path) -> None:
    """Under Microsoft's name; the library reads everything else. The discriminator has none."""
    config = config_of(decoder / "generator")
    assert (config["architectures"], config["mask_decoder"]) == (["DebertaV2ForMaskedLM"], True)
    with quiet():
        for cls in (transformers.AutoModelForMaskedLM, transformers.AutoModel):
            _, info = cls.from_pretrained(decoder / "generator", output_loading_info=True)
            assert not info["missing_keys"]
    table = weights_of(decoder / "generator")[POSITIONS]
    assert table.shape == (32, 32)
    rows = table[: load(decoder / "config.yaml").data.max_seq_length].std(1)
    assert float(rows.max()) > 0.025, "it was trained from .02"
    assert "mask_decoder" not in config_of(decoder / "discriminator")
    assert POSITIONS not in weights_of(decoder / "discriminator")


def test_the_export_is_checked_with_the_decoder(small_data: Path, decoder: Path) -> None:
    """Against a computation of its own: a table that is another is found, as any weight is."""
    special = Corpus(small_data, "train").manifest.special_ids
    whole = network(small_data, decoder).exports["generator"]
    assert check_folder(decoder / "generator", whole, special) < 1e-5
    odd = copy.deepcopy(whole)
    with torch.no_grad():
        odd.parameters()["head.positions.weight"].mul_(-1.1).add_(0.01)
    with pytest.raises(ExportError, match="computes other numbers"):
        check_folder(decoder / "generator", odd, special)


@torch.no_grad()
def test_evaluate_scores_with_the_decoder(small_data: Path, decoder: Path) -> None:
    """The sum over a sentence of log p of each token, masked by itself, by the run's network."""
    folder = str(decoder / "generator")
    scorer = load_scorer(folder)
    assert scorer.kind == "mlm"
    assert scorer.short, "the head runs on masked positions only"
    generator = network(small_data, decoder).exports["generator"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    special = Corpus(small_data, "train").manifest.special_ids
    for text, score in zip(TEXTS, scorer.scores(TEXTS), strict=True):
        ids = tokenizer(text)["input_ids"]
        wanted = ordinary = 0.0
        for place in range(1, len(ids) - 1):
            shown = [special.mask if k == place else n for k, n in enumerate(ids)]
            tokens = from_sequences([shown], row_length=len(ids), pad=special.pad)
            at = torch.tensor([place])
            read = generator.head.read(generator.encoder, tokens, at)
            wanted += float(generator.head(read)[0].log_softmax(-1)[ids[place]])
            plain = generator.head(generator.encoder(tokens)[at])[0]
            ordinary += float(plain.log_softmax(-1)[ids[place]])
        assert score == pytest.approx(wanted, abs=1e-4)
        assert abs(wanted - ordinary) > 1e-3, "without the decoder it is another score"


def test_a_frozen_generator_keeps_its_decoder(decoder, small_data, tmp_path, capsys):
    """Without it the words that it draws would be others, and nothing trains it to do without."""
    fields: dict[str, Any] = {"architecture": "deberta", "init": "published", "tie": "none"}
    fields |= {"generator_training": "frozen", "init_generator": decoder / "generator"}
    line = partial(words, small_data, tmp_path / "run", "electra", term_weights="rtd=50", **fields)
    said = mistake(capsys, *line(mask_decoder=False))
    assert f"left out {POSITIONS}, the table of a mask decoder; with --mask-decoder true" in said
    assert cli.main(line(mask_decoder=True)) == 0


# ------------------------------------------------------------------ the head of DeBERTaV3


@pytest.fixture(scope="module")
def v3(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of another objective, with dropout and with a rate at which the head changes."""
    folder = tmp_path_factory.mktemp("v3") / "run"
    fields = {"rtd_head": "v3", "generator_size": 1.0, "learning_rate": 0.01, **DROPOUT}
    assert cli.main(words(small_data, folder, "corrective-deberta", **fields)) == 0
    return folder


def test_the_folder_is_that_of_an_encoder(v3: Path, capsys: Any) -> None:
    """The library reads every weight of it, and leaves the head alone, which the doctor knows; the
    other networks have the library's own class."""
    folder = v3 / "discriminator"
    assert config_of(folder)["architectures"] == ["DebertaV2Model"]
    with quiet():
        _, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert set(info["unexpected_keys"]) == {*HEAD}
    assert {name for name in weights_of(folder) if name in HEAD} == {*HEAD}
    for part in ("generator", "corrector"):
        assert config_of(v3 / part)["architectures"] == ["DebertaV2ForMaskedLM"]
    status, out = run("doctor", str(v3), str(folder)), capsys.readouterr().out
    assert status == 0, out
    assert "have no place" not in out


def test_detect_gives_the_numbers_of_the_network(small_data: Path, v3: Path) -> None:
    detects_as_the_run(small_data, v3)


# ------------------------------------------------------------------ Microsoft's folders

# What config.json of microsoft/deberta-v3-base says, which names neither a class nor `legacy`;
# without dropout.
PUBLISHED: dict[str, Any] = DEBERTA_V3 | {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.0,
    "hidden_dropout_prob": 0.0,
    "pooler_dropout": 0,
    "pooler_hidden_act": "gelu",
}


def folder_of(path: Path, data: Path, name: str, blocks: int = 2, **more: Any) -> Path:
    """A random network of a class of the library, every parameter of it drawn."""
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    sizes |= {"num_hidden_layers": blocks, "vocab_size": Corpus(data, "train").manifest.vocab_size}
    model = getattr(transformers, name)(transformers.DebertaV2Config(**PUBLISHED | sizes | more))
    rng = torch.Generator().manual_seed(blocks)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.1 * torch.randn(p.shape, generator=rng) + (p.ndim == 1))
    with quiet():
        model.save_pretrained(path)
    return path


def published(path: Path, data: Path, blocks: int = 2) -> Path:
    """As on the Hub: both heads under Microsoft's names, a table of positions that nothing reads,
    and a config.json without class and form of the head."""
    folder_of(path, data, "DebertaV2ForMaskedLM", blocks, legacy=False)
    kept = {key: config_of(path)[key] for key in PUBLISHED} | {"pos_att_type": "p2c|c2p"}
    (path / "config.json").write_text(json.dumps(kept))
    rng, weights = torch.Generator().manual_seed(9), weights_of(path)
    weights |= {name: torch.randn(shape, generator=rng) for name, shape in HEAD.items()}
    weights[POSITIONS] = torch.ones(512, 32)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def test_both_halves_of_a_published_pair(small_data, tmp_path, capsys):
    """Encoder and language model's head of both; the head that detects is of another form than the
    linear one."""
    kept = published(tmp_path / "kept", small_data)
    generator = published(tmp_path / "generator", small_data, blocks=1)
    fields = {"init_discriminator": kept, "init_generator": generator}
    assert cli.main(still(small_data, tmp_path / "run", **fields)) == 0
    said = capsys.readouterr().err
    assert f"discriminator: {kept}: it has no weights of the head, which keeps its ini" in said
    assert f"{kept}: ignored 11 weights without a place here (lm_predictions." in said
    assert f"generator: {generator}: left out {POSITIONS.removesuffix('.weight')}" in said
    same(kept, tmp_path / "run" / "discriminator", "deberta.")
    for prefix in ("deberta.", "lm_predictions."):
        same(generator, tmp_path / "run" / "generator", prefix)
    config = config_of(tmp_path / "run" / "generator")
    assert (config["num_hidden_layers"], config["position_buckets"]) == (1, 256)


def test_a_run_starts_from_a_published_generator(small_data, tmp_path, capsys):
    """Every weight of its language model is used, and the table left under the same name; a run
    from the folder that this leaves finds all of it again."""
    start = published(tmp_path / "start", small_data)
    for folder in (tmp_path / "one", tmp_path / "two"):
        fields = {"init_generator": start, "mask_decoder": True}
        assert cli.main(still(small_data, folder, **fields)) == 0
        assert f"generator: {start}: every weight found and used" in capsys.readouterr().err
        for prefix in ("deberta.", "lm_predictions."):
            same(start, folder / "generator", prefix)
        assert POSITIONS in weights_of(folder / "generator")
        start = folder / "generator"


def test_the_head_that_detects(small_data, tmp_path, capsys):
    """With rtd_head v3, the run goes on with it, and leaves it under the same names."""
    start = published(tmp_path / "start", small_data)
    fields = {"init_discriminator": start, "rtd_head": "v3"}
    assert cli.main(still(small_data, tmp_path / "run", "corrective-deberta", **fields)) == 0
    said = capsys.readouterr().err
    assert "keeps its initial values" not in said
    assert f"{start}: ignored 5 weights without a place here (lm_predictions." in said
    for prefix in ("mask_predictions.", "deberta."):
        same(start, tmp_path / "run" / "discriminator", prefix)


def test_detecting_with_a_published_folder(small_data, tmp_path, capsys):
    """By its own head, computed from the states that the library gives; a folder without it is
    refused."""
    start, text = published(tmp_path / "start", small_data), TEXTS[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(small_data / "tokenizer")
    tokenizer.save_pretrained(start)
    (found,) = detect(str(start), [text])
    with quiet():
        model = transformers.AutoModel.from_pretrained(start)
    weights = weights_of(start)
    norm, dense, out = (
        [weights[f"mask_predictions.{layer}.{part}"] for part in ("weight", "bias")]
        for layer in ("LayerNorm", "dense", "classifier")
    )
    with torch.no_grad():
        x = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        x = F.gelu(F.linear(F.layer_norm(x + x[0], (32,), *norm, 1e-7), *dense))
        wanted = F.linear(x, *out)[1:-1, 0].sigmoid()
    said = torch.tensor([piece.probability for piece in found.tokens])
    assert torch.allclose(said, wanted, atol=1e-5)
    assert float(said.std()) > 1e-2
    del weights["mask_predictions.dense.bias"]
    save_file(weights, start / "model.safetensors", metadata={"format": "pt"})
    assert "has no replaced-token head" in mistake(capsys, "detect", str(start), text)


def test_another_encoder_of_the_family_is_refused(small_data, tmp_path, capsys):
    start = folder_of(tmp_path / "start", small_data, "DebertaV2Model", share_att_key=False)
    line = still(small_data, tmp_path / "run", "bert-deberta", init_discriminator=start)
    assert "share_att_key" in mistake(capsys, *line)
