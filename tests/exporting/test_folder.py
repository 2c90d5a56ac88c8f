"""Exported folders: what is in them, that transformers alone reads them, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from runs import ENCODERS, MLM, RTD, SPECIAL, WORDS, export_run, exports, random_built, write_run
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, pipeline

import electrify
from electrify.cli import main
from electrify.errors import UserError
from electrify.exporting import agreement
from electrify.exporting.agreement import ExportError
from electrify.exporting.card import Run, details
from electrify.exporting.folder import export, export_as, read_run
from electrify.exporting.options import Export
from electrify.model import attention, relative
from electrify.recipe import Recipe, load, override, values_of

FILES = {"README.md", "config.json", "electrify.json", "model.safetensors"}
FILES |= {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def masked_lm(architecture: str, **fields: object) -> Recipe:
    """A run of this architecture, whose attention changes with the distance within a few tokens."""
    return override(MLM, ENCODERS[architecture] | fields)


def test_the_tokenizer_names_the_inputs_of_its_model(tmp_path):
    """Whatever the given one named: without token types, a pair would be one segment."""
    built = write_run(tmp_path / "run", MLM)
    path = tmp_path / "run" / "tokenizer" / "tokenizer_config.json"
    options = json.loads(path.read_text()) | {"model_input_names": ["input_ids", "attention_mask"]}
    path.write_text(json.dumps(options))
    folder = export_run(tmp_path / "run", built)["discriminator"]
    pair = AutoTokenizer.from_pretrained(folder)("the", "cat")
    assert pair["token_type_ids"] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("architecture", ENCODERS)
def test_a_text_may_be_as_long_as_the_network_reads(tmp_path, architecture):
    """Tokenizers that `prepare` trains say 512, whatever a recipe asks for later."""
    config = masked_lm(architecture, max_position_embeddings=600)
    tokenizer = AutoTokenizer.from_pretrained(exports(tmp_path / "run", config)["discriminator"])
    assert tokenizer.model_max_length == 600
    assert len(tokenizer("cat " * 700, truncation=True)["input_ids"]) == 600


CLASSES = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}


def test_both_halves_of_a_run(tmp_path):
    """transformers reads them as any folder of its own (in a process that cannot import electrify:
    finetuning/test_without_electrify.py)."""
    folders = exports(tmp_path / "run", RTD)
    assert folders == {name: tmp_path / "run" / name for name in CLASSES}
    for (name, folder), width in zip(folders.items(), (16, 8), strict=True):
        assert {p.name for p in folder.iterdir()} == FILES
        config = json.loads((folder / "config.json").read_text())
        wanted = {"model_type": "electra", "dtype": "float32", "pad_token_id": 0}
        wanted |= {"architectures": [CLASSES[name]], "type_vocab_size": 2, "hidden_size": width}
        wanted |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
        assert config.items() >= wanted.items()
        weights = load_file(folder / "model.safetensors").values()
        assert {t.dtype for t in weights} == {torch.float32}
        assert (folder / "vocab.txt").read_text().split("\n")[:-1] == WORDS
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert tokenizer.model_max_length == 20
        inputs = tokenizer("the chef ate the meals", "a cat sat", return_tensors="pt")
        assert inputs["input_ids"][0, 0] == 2
        assert inputs["token_type_ids"].max() == 1
        states = AutoModel.from_pretrained(folder)(**inputs).last_hidden_state
        assert tuple(states.shape) == (1, 12, width)
    fill = pipeline("fill-mask", model=str(folders["generator"]), top_k=1)
    assert fill("the [MASK] ate")[0].keys() == {"score", "sequence", "token", "token_str"}


def test_it_replaces_its_own_folder_and_nothing_else(tmp_path):
    run, found = tmp_path / "run", []
    write_run(run, MLM)
    for seed in (5, 6):
        kept = export_run(run, random_built(MLM, seed=seed))["discriminator"]
        found.append(load_file(kept / "model.safetensors")["generator_lm_head.bias"])
        with (kept / "notes.txt").open("a", encoding="utf-8") as notes:
            notes.write("mine")
    assert not torch.equal(*found)
    assert (kept / "notes.txt").read_text() == 2 * "mine", "the first note stayed"
    (kept / "electrify.json").unlink()
    with pytest.raises(UserError, match=r"holds no electrify\.json, so it is not ours"):
        export_run(run, random_built(MLM))
    assert (kept / "README.md").exists()


def test_it_replaces_no_export_of_another_model(tmp_path):
    """Not of the same recipe on another corpus, and not of another fine-tuned model."""
    run, target = tmp_path / "run", tmp_path / "out"
    folder = export_run(run, write_run(run, RTD, steps=(10,)))["discriminator"]
    options = Export(model=str(run), output_dir=str(target))
    for _ in range(2):
        export_as(options)
    mark = json.loads((target / "electrify.json").read_text())
    (target / "electrify.json").write_text(json.dumps(mark | {"data": "another corpus"}))
    with pytest.raises(UserError, match="holds another model"):
        export_as(options)
    for name in ("a", "b"):
        shutil.copytree(folder, tmp_path / name)
        tuned = json.dumps({"part": "fine-tuned", "task": "sst2"})
        (tmp_path / name / "electrify.json").write_text(tuned)
    how = {"output_dir": str(tmp_path / "st"), "format": "sentence-transformers"}
    for name in ("a", "a"):
        export_as(Export.of({"model": tmp_path / name} | how))
    with pytest.raises(UserError, match="holds another model"):
        export_as(Export.of({"model": tmp_path / "b"} | how))


def test_a_network_that_transformers_cannot_compute_leaves_nothing(tmp_path):
    """Four heads where the shape says two: a correct file of weights, and another function."""
    run = tmp_path / "run"
    built = write_run(run, MLM)
    good = export_run(run, random_built(MLM, seed=3))["discriminator"]
    before = (good / "model.safetensors").read_bytes()
    for block in built.discriminator.encoder.blocks:
        block.heads = 4
    with pytest.raises(ExportError, match="computes other numbers"):
        export_run(run, built)
    assert (good / "model.safetensors").read_bytes() == before, "the older export stays"
    assert not [p for p in run.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("architecture", ENCODERS)
def test_rounding_is_not_a_wrong_number(tmp_path, monkeypatch, architecture):
    """Sharp attention amplifies rounding, which may exceed the tolerance of float32 between two
    right computations. float64 then decides."""
    # By how much depends on the weights: 10 to 1e5 times over seeds. Whether float32 exceeds 1e-5
    # also depends on the processor's order of summation, so here no difference of float32 passes.
    # That of float64 is at most about 1e5 * 1.1e-16 = 1e-11.
    monkeypatch.setitem(agreement.TOLERANCE, torch.float32, -1.0)
    built = write_run(tmp_path / "run", masked_lm(architecture, num_hidden_layers=6))
    with torch.no_grad():
        for block in built.discriminator.encoder.blocks:
            block.qkv.weight *= 15
    kept = export_run(tmp_path / "run", built)["discriminator"]
    assert agreement.check_folder(kept, built.discriminator, SPECIAL) < 1e-9


@pytest.mark.parametrize("architecture", ENCODERS)
def test_attention_that_leaks_is_not_exported(tmp_path, monkeypatch, architecture):
    """Between the sequences of a row, and nowhere else: padding is masked, and a sequence in a row
    of its own is right."""
    bias = attention.sequence_bias

    def leaking(tokens, *args, **how):
        return bias(replace(tokens, seq_T=tokens.seq_T.clamp(max=1)), *args, **how)

    built = write_run(tmp_path / "run", masked_lm(architecture))
    export_run(tmp_path / "run", built)
    for module in (attention, relative):
        monkeypatch.setattr(module, "sequence_bias", leaking)
    with pytest.raises(ExportError, match="computes other numbers"):
        export_run(tmp_path / "run", built)


@pytest.mark.parametrize("architecture", ["electra", "deberta"])
def test_padding_on_the_left_is_part_of_the_check(tmp_path, monkeypatch, architecture):
    """The library's ELECTRA counts it as positions. DeBERTa has none, but our mask decoder counts
    those of real tokens."""
    decoder = {"mask_decoder": True} if architecture == "deberta" else {}
    config = masked_lm(architecture, **decoder)
    built = write_run(tmp_path / "run", config)
    export_run(tmp_path / "run", built)
    own = type(built.discriminator.architecture)
    monkeypatch.setattr(own, "counts_padding", not own.counts_padding)
    with pytest.raises(ExportError, match="computes other numbers"):
        export_run(tmp_path / "run", built)


def test_the_card_tells_the_run(tmp_path):
    starts = {"init_discriminator": "/home/somebody/start"}
    starts |= {"init_generator": "google/electra-small-generator"}
    folders = exports(tmp_path / "my run", RTD, **starts)
    card = (folders["discriminator"] / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["electrify", "electra", "replaced-token-detection"],
    }
    for text in ("| tokens seen | 10,000 |", "| wall time | 40 s |", "| `rtd` | 0.4321 |"):
        assert text in body
    assert "part\\|1&lt;b&gt;.txt" in body
    mark = json.loads((folders["discriminator"] / "electrify.json").read_text())
    assert (mark["data"], mark["tokenizer"]) == ("d" * 64, "e" * 64)
    assert mark["machine"]["device_name"] == "Abacus 3"
    assert mark["recipe"]["learning_rate"] == 0.001
    assert mark["recipe"]["init_discriminator"] == "start"
    assert "/home" not in json.dumps(mark)
    assert str(tmp_path) not in card
    assert "/home" not in card
    generator = yaml.safe_load((folders["generator"] / "README.md").read_text().split("---\n")[1])
    assert (generator["pipeline_tag"], generator["base_model"]) == (
        "fill-mask",
        "google/electra-small-generator",
    )


def test_the_card_of_a_head_that_learned_nothing_shows_the_encoder(tmp_path):
    idle = override(RTD, {"term_weights": {"generator": 1.0, "rtd": 0.0}})
    card = (exports(tmp_path / "run", idle)["discriminator"] / "README.md").read_text()
    assert "ElectraForPreTraining" not in card
    assert "its loss, `rtd`, has weight 0" in card


@pytest.mark.parametrize("corruptor", ["generator", "mixture"])
def test_a_generator_that_learns_nothing_is_not_exported(tmp_path, corruptor):
    fields = {"corruptor": corruptor, "term_weights": {"generator": 0.0, "rtd": 50.0}}
    fields |= {"read_outs": [1, 2]} if corruptor == "mixture" else {}
    assert set(exports(tmp_path / "run", RTD, **fields)) == {"discriminator"}


def test_word_pieces_get_a_vocabulary_file(tmp_path):
    write_run(tmp_path / "run", MLM, steps=(5,))
    (tmp_path / "run" / "tokenizer" / "vocab.txt").unlink()
    (tmp_path / "out").mkdir()
    out = export(tmp_path / "run", output_dir=tmp_path / "out")
    assert (out / "vocab.txt").read_text().split("\n") == [*WORDS, ""]


def test_the_recipe_beside_the_card_runs_again(tmp_path):
    write_run(tmp_path / "run", RTD)
    config, facts = read_run(tmp_path / "run")
    written = details(Run(tmp_path, config, facts | {"recipe": values_of(RTD)}))["recipe"]
    written = json.loads(json.dumps(written))
    assert override(load("electra-tiny"), written) == RTD


@pytest.mark.parametrize("encoder", ENCODERS)
def test_vectors_of_sentence_transformers_are_those_of_embed(tmp_path, encoder: str):
    """`electrify export --format sentence-transformers`: from a run by its checkpoint, and in its
    place from a folder."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = ["a cat", "the chef cooked a meal and the dog sat on the mat", "the cat sat . " * 20]
    run, target = tmp_path / "run", tmp_path / "st"
    built = write_run(run, override(RTD, ENCODERS[encoder]), steps=(10,))
    folder = export_run(run, built)["discriminator"]
    for model in (run, folder):
        how = ["--format", "sentence-transformers", "--output-dir", str(target)]
        assert main(["export", str(model), *how]) == 0
    wanted = electrify.embed(folder, texts)
    found = sentence_transformers.SentenceTransformer(str(target), device="cpu").encode(texts)
    assert np.allclose(wanted, found, atol=1e-5)
    assert np.std(wanted, axis=0).max() > 0.01
    assert np.allclose(wanted, electrify.embed(target, texts), atol=1e-5)
