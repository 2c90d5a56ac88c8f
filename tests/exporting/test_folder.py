"""Exported folders: what is in them, that transformers alone reads them, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from runs import MLM, RTD, SPECIAL, WORDS, export_run, random_built, with_model, write_run
from safetensors import safe_open
from transformers import AutoModel, AutoTokenizer, ElectraForPreTraining, pipeline

from electrify.build import Built
from electrify.errors import UserError
from electrify.exporting import agreement
from electrify.exporting.agreement import ExportError
from electrify.exporting.folder import export, read_run
from electrify.model import attention, relative
from electrify.recipe import Recipe, override
from electrify.tables import rows_of
from electrify.tokens import from_sequences

FILES = {"README.md", "config.json", "electrify.json", "model.safetensors"}
FILES |= {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def rtd_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built, dict[str, Path]]:
    """A run, its networks, and their exports."""
    run = tmp_path_factory.mktemp("exports") / "run"
    built = write_run(run, RTD)
    return run, built, export_run(run, built)


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    with safe_open(folder / "model.safetensors", "pt") as f:
        return {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 - not a mapping


def test_the_tokenizer_names_the_inputs_of_its_model(tmp_path):
    """Whatever the given one named: without token types, a pair would be one segment."""
    built = write_run(tmp_path / "run", MLM)
    path = tmp_path / "run" / "tokenizer" / "tokenizer_config.json"
    options = json.loads(path.read_text()) | {"model_input_names": ["input_ids", "attention_mask"]}
    path.write_text(json.dumps(options))
    folder = export_run(tmp_path / "run", built)["discriminator"]
    pair = AutoTokenizer.from_pretrained(folder)("the", "cat")
    assert pair["token_type_ids"] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("architecture", rows_of("architecture"))
def test_a_text_may_be_as_long_as_the_network_reads(tmp_path, architecture):
    """Tokenizers that `prepare` trains say 512, whatever a recipe asks for later."""
    config = override(masked_lm(architecture), {"max_position_embeddings": 600})
    built = write_run(tmp_path / "run", config)
    folder = export_run(tmp_path / "run", built)["discriminator"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == 600
    assert len(tokenizer("cat " * 700, truncation=True)["input_ids"]) == 600


CLASSES = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}


def test_both_halves_of_a_run(rtd_run):
    run, built, folders = rtd_run
    assert folders == {name: run / name for name in ("discriminator", "generator")}
    for name, folder in folders.items():
        assert {p.name for p in folder.iterdir()} == FILES
        config = json.loads((folder / "config.json").read_text())
        shape = built.exports[name].encoder.shape
        wanted = {"model_type": "electra", "dtype": "float32", "pad_token_id": 0}
        wanted |= {"architectures": [CLASSES[name]], "type_vocab_size": 2}
        wanted |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
        wanted |= {name: getattr(shape, name) for name in ("hidden_size", "num_attention_heads")}
        assert config.items() >= wanted.items()
        assert {t.dtype for t in tensors(folder).values()} == {torch.float32}
        assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 20
        assert (folder / "vocab.txt").read_text().split("\n")[:-1] == WORDS


def test_it_replaces_its_own_folder_and_nothing_else(tmp_path):
    run = tmp_path / "run"
    write_run(run, MLM)
    old, new = random_built(MLM, seed=5), random_built(MLM, seed=6)
    export_run(run, old)
    first = tensors(run / "discriminator")
    (run / "discriminator" / "notes.txt").write_text("mine")
    export_run(run, new)
    assert (run / "discriminator" / "notes.txt").read_text() == "mine"
    bias = "generator_lm_head.bias"
    assert not torch.equal(first[bias], tensors(run / "discriminator")[bias])
    (run / "discriminator" / "electrify.json").unlink()
    with pytest.raises(UserError, match=r"holds no electrify\.json, so it is not ours"):
        export_run(run, old)
    assert (run / "discriminator" / "README.md").exists()


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


@pytest.mark.parametrize("architecture", rows_of("architecture"))
def test_rounding_is_not_a_wrong_number(tmp_path, monkeypatch, architecture):
    """Sharp attention amplifies rounding, which may exceed the tolerance of float32 between two
    right computations. float64 then decides."""
    # By how much depends on the weights: 10 to 1e5 times over seeds. Whether float32 exceeds 1e-5
    # also depends on the processor's order of summation, so here no difference of float32 passes.
    # That of float64 is at most about 1e5 * 1.1e-16 = 1e-11.
    monkeypatch.setitem(agreement.TOLERANCE, torch.float32, -1.0)
    width = MLM.model.hidden_size
    config = with_model(MLM, num_hidden_layers=6, architecture=architecture, embedding_size=width)
    run = tmp_path / "run"
    write_run(run, config)
    built = random_built(config)
    with torch.no_grad():
        for block in built.discriminator.encoder.blocks:
            block.qkv.weight *= 15
    export_run(run, built)
    worst = agreement.check_folder(run / "discriminator", built.discriminator, SPECIAL)
    assert worst < 1e-9


def masked_lm(architecture: str) -> Recipe:
    """A run of this architecture, whose attention changes with the distance within a few tokens."""
    own = {"modernbert": {"local_attention": 4}, "deberta": {"position_buckets": 8}}
    width = MLM.model.hidden_size
    fields = {"architecture": architecture, "embedding_size": width} | own.get(architecture, {})
    return with_model(MLM, **fields)


@pytest.mark.parametrize("architecture", rows_of("architecture"))
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
    config = masked_lm(architecture)
    if architecture == "deberta":
        config = with_model(config, mask_decoder=True)
    built = write_run(tmp_path / "run", config)
    export_run(tmp_path / "run", built)
    own = type(built.discriminator.architecture)
    monkeypatch.setattr(own, "counts_padding", not own.counts_padding)
    with pytest.raises(ExportError, match="computes other numbers"):
        export_run(tmp_path / "run", built)


def test_the_card_tells_the_run(tmp_path):
    starts = {"init_discriminator": "/home/somebody/start"}
    config = with_model(RTD, init_generator="google/electra-small-generator", **starts)
    built = write_run(tmp_path / "my run", config)
    folders = export_run(tmp_path / "my run", built)
    card = (folders["discriminator"] / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    metadata = yaml.safe_load(front)
    assert metadata == {
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["electrify", "electra", "replaced-token-detection"],
    }
    for text in (
        "# my run: ELECTRA discriminator",
        "| tokens seen | 10,000 |",
        "| wall time | 40 s |",
        "| `rtd` | 0.4321 |",
        "12 documents",
        "part\\|1&lt;b&gt;.txt",
    ):
        assert text in body
    mark = json.loads((folders["discriminator"] / "electrify.json").read_text())
    assert (mark["data"], mark["tokenizer"]) == ("d" * 64, "e" * 64)
    assert mark["machine"]["device_name"] == "Abacus 3"
    assert mark["recipe"]["learning_rate"] == 0.001
    assert mark["recipe"]["init_discriminator"] == "start"
    assert "/home" not in json.dumps(mark)
    assert str(tmp_path) not in card
    assert "/home" not in card
    assert "None" not in body
    generator = yaml.safe_load((folders["generator"] / "README.md").read_text().split("---\n")[1])
    assert (generator["pipeline_tag"], generator["base_model"]) == (
        "fill-mask",
        "google/electra-small-generator",
    )


@pytest.mark.parametrize("corruptor", ["generator", "mixture"])
def test_a_generator_that_learns_nothing_is_not_exported(tmp_path, corruptor):
    fields = {"corruptor": corruptor, "term_weights": {"generator": 0.0, "rtd": 50.0}}
    if corruptor == "mixture":
        fields["read_outs"] = [1, 2]
    run = tmp_path / "run"
    assert set(export_run(run, write_run(run, override(RTD, fields)))) == {"discriminator"}


def test_both_folders_are_read_as_any_of_the_library(rtd_run):
    """(In a process that cannot import electrify: finetuning/test_without_electrify.py.)"""
    _, built, folders = rtd_run
    shapes = {}
    for part, folder in folders.items():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        inputs = tokenizer("the chef ate the meals", "a cat sat", return_tensors="pt")
        assert inputs["input_ids"][0, 0] == 2
        assert inputs["token_type_ids"].max() == 1
        states = AutoModel.from_pretrained(folder)(**inputs).last_hidden_state
        shapes[part] = tuple(states.shape)
    assert shapes == {"discriminator": (1, 12, 16), "generator": (1, 12, 8)}
    fill = pipeline("fill-mask", model=str(folders["generator"]), top_k=1)
    assert fill("the [MASK] ate")[0].keys() == {"score", "sequence", "token", "token_str"}
    place = folders["discriminator"]
    model, info = ElectraForPreTraining.from_pretrained(place, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    half = built.discriminator
    ids = [2, WORDS.index("the"), WORDS.index("cat"), WORDS.index("ran"), 3]
    with torch.no_grad():
        theirs = model(**AutoTokenizer.from_pretrained(place)("the cat ran", return_tensors="pt"))
        own = half.head(half.encoder.eval()(from_sequences([ids], row_length=5, pad=0)))
    torch.testing.assert_close(own[None], theirs.logits, atol=1e-5, rtol=1e-5)


def test_word_pieces_get_a_vocabulary_file(tmp_path):
    write_run(tmp_path / "run", MLM, steps=(5,))
    (tmp_path / "run" / "tokenizer" / "vocab.txt").unlink()
    (tmp_path / "out").mkdir()
    out = export(tmp_path / "run", output_dir=tmp_path / "out")
    assert (out / "vocab.txt").read_text().split("\n") == [*WORDS, ""]


def test_the_recipe_beside_the_card_runs_again(tmp_path):
    from electrify.exporting.card import details
    from electrify.recipe import load, override, values_of

    write_run(tmp_path / "run", RTD)
    config, facts = read_run(tmp_path / "run")
    written = details(config, facts | {"recipe": values_of(RTD)})["recipe"]
    written = json.loads(json.dumps(written))
    assert override(load("electra-tiny"), written) == RTD
