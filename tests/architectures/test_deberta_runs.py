"""Runs with DeBERTa's mask decoder and with DeBERTaV3's own head that detects, by the real verbs:
pre-training, export, what reads the folder back, and starting from folders as Microsoft publishes
them."""

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file as load_tensors
from short_runs import TEXTS, deberta_words, detects_as_the_run, network
from test_deberta_starts import line_of, published, same

from electrify import cli
from electrify.architectures.deberta import POSITIONS
from electrify.exporting.agreement import ExportError, check_folder
from electrify.exporting.loading import quiet
from electrify.recipe import load
from electrify.scoring.pll import load_scorer
from electrify.text.corpus import Corpus
from electrify.tokens import from_sequences
from small import DROPOUT, mistake, run


def words(data: Path, folder: Path, name: str = "electra-deberta", **fields: Any) -> list[str]:
    return deberta_words(data, folder, name, **({"mask_decoder": True} | fields))


@pytest.fixture(scope="module")
def decoder(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed, with dropout and with a rate at which the table changes."""
    folder = tmp_path_factory.mktemp("decoder") / "run"
    assert cli.main(words(small_data, folder, **DROPOUT, learning_rate=0.01)) == 0
    return folder


def test_the_folder_keeps_the_table(decoder: Path) -> None:
    """Under Microsoft's name; the library reads everything else. The discriminator has none."""
    config = json.loads((decoder / "generator" / "config.json").read_text())
    assert (config["architectures"], config["mask_decoder"]) == (["DebertaV2ForMaskedLM"], True)
    with quiet():
        for cls in (transformers.AutoModelForMaskedLM, transformers.AutoModel):
            _, info = cls.from_pretrained(decoder / "generator", output_loading_info=True)
            assert not info["missing_keys"]
    table = load_tensors(decoder / "generator" / "model.safetensors")[POSITIONS]
    assert table.shape == (32, 32)
    rows = table[: load(decoder / "config.yaml").data.max_seq_length].std(1)
    assert float(rows.max()) > 0.025, "it was trained from .02"
    kept = json.loads((decoder / "discriminator" / "config.json").read_text())
    assert "mask_decoder" not in kept
    assert POSITIONS not in load_tensors(decoder / "discriminator" / "model.safetensors")


def test_the_export_is_checked_with_the_decoder(small_data: Path, decoder: Path) -> None:
    """Against a computation of its own: a table that is another is found, as any weight is."""
    built = network(small_data, decoder)
    special = Corpus(small_data, "train").manifest.special_ids
    whole = built.exports["generator"]
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
    assert "a frozen generator does not learn to do without it" in said
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert cli.main(line(mask_decoder=True)) == 0


def test_a_run_starts_from_a_published_generator(small_data, tmp_path, capsys):
    """Every weight of its language model is used, and the table left under the same name; a run
    from the folder that this leaves finds all of it again."""
    start = published(tmp_path / "start", small_data)
    for folder in (tmp_path / "one", tmp_path / "two"):
        fields = {"init_generator": start, "mask_decoder": True}
        assert cli.main(line_of(small_data, folder, "electra-deberta-tiny", **fields)) == 0
        assert f"generator: {start}: every weight found and used" in capsys.readouterr().err
        same(start, folder / "generator", "deberta.")
        same(start, folder / "generator", "lm_predictions.")
        assert POSITIONS in load_tensors(folder / "generator" / "model.safetensors")
        start = folder / "generator"


HEAD = {
    f"mask_predictions.{layer}.{part}"
    for layer in ("LayerNorm", "dense", "classifier")
    for part in ("weight", "bias")
}


@pytest.fixture(scope="module")
def v3(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with dropout and with a rate at which the head changes."""
    folder = tmp_path_factory.mktemp("v3") / "run"
    fields = {"rtd_head": "v3", "learning_rate": 0.01, **DROPOUT}
    assert cli.main(deberta_words(small_data, folder, **fields)) == 0
    return folder


def test_the_folder_is_that_of_an_encoder(v3: Path) -> None:
    """The library reads every weight of it, and leaves the head alone; another run's generator has
    the library's own class."""
    folder = v3 / "discriminator"
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["DebertaV2Model"]
    with quiet():
        _, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert set(info["unexpected_keys"]) == HEAD
    assert {n for n in load_tensors(folder / "model.safetensors") if n in HEAD} == HEAD
    beside = json.loads((v3 / "generator" / "config.json").read_text())
    assert beside["architectures"] == ["DebertaV2ForMaskedLM"]


def test_a_run_of_another_objective(small_data, tmp_path, capsys):
    """Its export was compared with the library's encoder; the doctor knows its head."""
    folder = tmp_path / "run"
    fields = {"rtd_head": "v3", "generator_size": 1.0}
    assert cli.main(deberta_words(small_data, folder, "corrective-deberta", **fields)) == 0
    corrector = json.loads((folder / "corrector" / "config.json").read_text())
    assert corrector["architectures"] == ["DebertaV2ForMaskedLM"]
    capsys.readouterr()
    status = run("doctor", str(folder), str(folder / "discriminator"))
    out = capsys.readouterr().out
    assert status == 0, out
    assert "DebertaV2Model loads with every weight, those of a head or decoder that" in out
    assert "have no place" not in out


def test_detect_gives_the_numbers_of_the_network(small_data: Path, v3: Path) -> None:
    detects_as_the_run(small_data, v3)
