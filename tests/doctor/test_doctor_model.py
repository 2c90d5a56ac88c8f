"""Hugging Face folders: exports are called healthy, each trap is seen where it is, and nothing in a
folder is run or believed."""

from __future__ import annotations

import json
import pickle
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from folders import cut, damaged, edit, flip, levels, link_out, of
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from electrify.config.doctor import DoctorConfig
from electrify.doctor.model import examine_model
from electrify.doctor.report import diagnose
from electrify.doctor.vocabularies import words_of
from electrify.train import checkpoint

WORDS = "electra.embeddings.word_embeddings.weight"


@pytest.fixture
def generator(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished / "generator", tmp_path / "generator"))


def test_exports_are_healthy(model: Path, generator: Path) -> None:
    for folder in (model, generator):
        found = examine_model(folder)
        assert set(levels(found).values()) <= {"ok"}
        assert {"whole", "shapes", "finite", "tokenizer"} <= of(found, "ok")


def tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    named = load_file(folder / "model.safetensors")
    change(named)
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    edit(
        folder / "electrify.json",
        lambda mark: {
            k: v for k, v in mark.items() if k not in ("weights_sha256", "files", "seal")
        },
    )


def drop(named: dict[str, torch.Tensor], prefix: str) -> None:
    for name in [n for n in named if n.startswith(prefix)]:
        del named[name]


def never_trained(named: dict[str, torch.Tensor]) -> None:
    for name, t in named.items():
        t.fill_(0.0) if name.endswith("bias") else t.fill_(
            1.0
        ) if "LayerNorm" in name else t.normal_(0, 0.02)


def config(**fields: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        edit(
            folder / "config.json",
            lambda c: {k: v for k, v in (c | fields).items() if v is not None},
        )

    return apply


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    return lambda folder: tensors(folder, change)


def options(**fields: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        edit(
            folder / "tokenizer_config.json",
            lambda c: {k: v for k, v in (c | fields).items() if v is not None},
        )

    return apply


def masked(folder: Path) -> None:
    def rename(raw: dict[str, Any]) -> None:
        raw["model"]["vocab"]["zebra"] = raw["model"]["vocab"].pop("[MASK]")
        raw["added_tokens"] = [t for t in raw["added_tokens"] if t["content"] != "[MASK]"]

    edit(folder / "tokenizer.json", rename)


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")


@pytest.mark.parametrize(
    ("change", "level", "code"),
    [
        (weights(lambda n: drop(n, "discriminator_predictions")), "error", "missing-weights"),
        (weights(lambda n: drop(n, "electra.encoder.layer.0.output")), "error", "missing-weights"),
        (weights(lambda n: n.update(extra=torch.zeros(2))), "note", "extra-weights"),
        (
            weights(lambda n: n["electra.embeddings.LayerNorm.weight"].fill_(torch.nan)),
            "error",
            "not-finite",
        ),
        (weights(never_trained), "note", "untrained"),
        (config(intermediate_size=65), "error", "shapes"),
        (config(embedding_size=16), "error", "projection"),
        (config(num_hidden_layers=2), "error", "layers"),
        (config(num_hidden_layers=10**9), "error", "config"),
        (config(hidden_size=10**12), "error", "config"),
        (config(vocab_size=-5), "error", "config"),
        (config(hidden_size="large"), "error", "config"),
        (config(num_attention_heads=5), "error", "config"),
        (config(model_type=None), "error", "config"),
        (config(hidden_size=None), "warning", "config-keys"),
        (config(architectures=None), "warning", "architecture"),
        (config(architectures=["ElectraForMaskedLM"]), "warning", "architecture"),
        (config(architectures=["ElectraModel"]), "warning", "architecture"),
        (config(vocab_size=100), "error", "tokenizer-too-large"),
        (config(pad_token_id=3), "warning", "pad"),
        (config(auto_map={"AutoModel": "evil.Model"}), "warning", "code"),
        (lambda m: (m / "modeling.py").write_text("raise SystemExit"), "warning", "code"),
        (lambda m: (m / "training_args.bin").write_bytes(b"x"), "warning", "pickle"),
        (only_pickle, "note", "not-examined"),
        (lambda m: (m / "model.safetensors").unlink(), "error", "no-weights"),
        (lambda m: link_out(m / "model.safetensors"), "error", "damaged"),
        (options(model_max_length=10_000), "warning", "max-length"),
        (options(model_max_length=None), "note", "max-length"),
        (masked, "warning", "special-missing"),
        (
            lambda m: [(m / n).unlink() for n in ("tokenizer.json", "vocab.txt")],
            "warning",
            "no-tokenizer",
        ),
    ],
)
def test_findings_of_a_model(
    model: Path, finished: Path, change: Callable[[Path], Any], level: str, code: str
) -> None:
    assert levels(examine_model(finished / "discriminator")).get(code, "ok") == "ok"
    change(model)
    assert levels(examine_model(model))[code] == level


def test_weights_that_a_link_leads_to_are_not_read(model: Path) -> None:
    link_out(model / "model.safetensors")
    found = examine_model(model)
    assert "finite" not in of(found, "ok")
    (said,) = [f for f in found.findings if f.code == "damaged"]
    assert said.advice == "Put the file itself there."


def test_a_bare_encoder(model: Path) -> None:
    def bare(named: dict[str, torch.Tensor]) -> None:
        drop(named, "discriminator_predictions")
        for name in list(named):
            named[name.removeprefix("electra.")] = named.pop(name)

    tensors(model, bare)
    config(architectures=["ElectraModel"])(model)
    found = examine_model(model)
    assert (of(found, "error"), of(found, "warning")) == (set(), {"no-head"})


def test_tied_embeddings_that_are_stored(generator: Path) -> None:
    tensors(generator, lambda n: n.update({"generator_lm_head.weight": n[WORDS].clone()}))
    assert "tied" in of(examine_model(generator), "ok")
    tensors(generator, lambda n: n["generator_lm_head.weight"].add_(1))
    found = examine_model(generator)
    assert "tied" in of(found, "error")


def test_the_words_of_a_vocabulary_end_with_line_feeds(tmp_path: Path) -> None:
    """A line may be a line separator of Unicode, as transformers' `load_vocab` reads it."""
    (tmp_path / "vocab.txt").write_bytes("a\r\n\u2028\n[PAD]\n".encode())
    assert words_of(tmp_path / "vocab.txt") == {"a": 0, "\u2028": 1, "[PAD]": 2}
    (tmp_path / "vocab.txt").write_bytes(b"")
    assert words_of(tmp_path / "vocab.txt") == {}


def test_two_vocabularies(model: Path, generator: Path) -> None:
    config(vocab_size=600)(generator)
    report = diagnose(DoctorConfig(paths=(str(model), str(generator))))
    assert "other-vocabulary" in of(report.folders[1], "warning")
    for folder, sizes in ((model, [512]), (generator, [600])):  # which some models have
        config(vocab_size=sizes)(folder)
    report = diagnose(DoctorConfig(paths=(str(model), str(generator))))
    assert "other-vocabulary" not in of(report.folders[1], "warning")
    assert "damaged" not in of(report.folders[0], "error") | of(report.folders[1], "error")


@settings(max_examples=40)
@given(
    name=st.sampled_from(["model.safetensors", "config.json", "tokenizer.json", "electrify.json"]),
    at=st.floats(0, 1),
    bit=st.integers(0, 7),
)
def test_damage_breaks_nothing(finished: Path, name: str, at: float, bit: int) -> None:
    """Weights have a hash; a flipped digit of a config may pass, and no check breaks."""
    path = finished / "discriminator" / name
    whole = path.read_bytes()
    for data in (flip(whole, at, bit), cut(whole, at)):
        with damaged(path, data):
            found = examine_model(finished / "discriminator")
            if name == "model.safetensors":
                assert of(found, "error")


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (Path("exploded"), "boom"))


def test_pickles_are_named_and_never_loaded(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    found = examine_model(model)
    assert "pickle" in of(found, "warning")
    assert not (tmp_path / "exploded").exists()


def test_giant_sizes_cost_no_memory(model: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    config(
        vocab_size=16_000_000,
        hidden_size=4_000_000,
        embedding_size=4_000_000,
        intermediate_size=16_000_000,
    )(model)
    found = examine_model(model)
    assert "shapes" in of(found, "error")
    assert (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000
    )  # kilobytes; one such table has 256 TB


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        '{"a":' * 50_000,
        '{"model_type": 3}',
        '{"architectures": {"a": 1}}',
        "\0",
    ],
)
def test_configs_that_are_none(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)
    assert of(examine_model(model), "error")


def test_shards_with_an_index(model: Path) -> None:
    named = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    names = sorted(named)
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        save_file({n: named[n] for n in names if places[n] == file}, model / file)
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert {"shapes", "finite"} <= of(examine_model(model), "ok")
    index.write_text(json.dumps({"weight_map": places | {"lost": places[names[0]]}}))
    assert "weights" in of(examine_model(model), "error")
    index.write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    assert "weights" in of(examine_model(model), "error")


def test_a_model_of_another_kind(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    small = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
    )
    BertForMaskedLM(small).save_pretrained(tmp_path / "bert")
    found = examine_model(tmp_path / "bert")
    assert of(found, "error") == set()
    assert of(found, "warning") == {"no-tokenizer"}
    assert {"shapes", "finite"} <= of(found, "ok")
    assert "untrained" in of(found, "note")


def test_weights_of_eight_bits(model: Path) -> None:
    tensors(model, lambda n: n.update({name: t.to(torch.float8_e4m3fn) for name, t in n.items()}))
    assert {"shapes", "finite"} <= of(examine_model(model), "ok")


def test_numbers_that_other_architectures_have(tmp_path: Path) -> None:
    """DeBERTa has no token types, ModernBERT's ignored label is -100."""
    from transformers import (
        DebertaV2Config,
        DebertaV2ForMaskedLM,
        ModernBertConfig,
        ModernBertForMaskedLM,
    )

    same = {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "pad_token_id": 0,
    }
    ids = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    for name, one in {
        "deberta": DebertaV2ForMaskedLM(DebertaV2Config(**same)),
        "modernbert": ModernBertForMaskedLM(ModernBertConfig(**same, **ids)),
    }.items():
        one.save_pretrained(tmp_path / name)
        found = examine_model(tmp_path / name)
        assert of(found, "error") == set(), name
        assert {"shapes", "finite"} <= of(found, "ok"), name


def test_a_checkpoint_is_no_model(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from electrify import cli

    assert checkpoint.newest(finished) is not None
    assert cli.main(["doctor", str(finished / "checkpoint-8")]) == 2
    assert "name the run's folder" in capsys.readouterr().err
