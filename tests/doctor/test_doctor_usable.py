"""Models that are whole and that no verb takes, or that it would read as something else: doctor
says what `detect` would refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from folders import edit, levels, of
from safetensors.torch import load_file, save_file

from electrify.doctor.kind import kind_of
from electrify.doctor.model import examine_model
from electrify.doctor.usable import same_ids
from electrify.export.folders import load_tokenizer
from electrify.oldfiles.folders import MARK
from small import environment, mistake


def config(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "config.json", lambda c: c | fields)


def options(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "tokenizer_config.json", lambda c: c | fields)


def typed(kind: torch.dtype) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        named = load_file(folder / "model.safetensors")
        name = "electra.embeddings.word_embeddings.weight"
        save_file(
            named | {name: named[name].to(kind)},
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )
        edit(
            folder / "electrify.json",
            lambda mark: {k: v for k, v in mark.items() if k != "weights_sha256"},
        )

    return apply


def swapped(folder: Path) -> None:
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    words[20], words[21] = words[21], words[20]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")


def cut_short(folder: Path) -> None:
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    (folder / "vocab.txt").write_text("\n".join(words[:30] + words[31:]), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "code", "level", "refused"),
    [
        (config(is_decoder=True), "decoder", "error", True),
        (
            config(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
            "quantized",
            "error",
            True,
        ),
        (options(tokenizer_class="T5Tokenizer"), "cannot-load", "error", True),
        (options(tokenizer_class=3), "cannot-load", "error", True),
        (options(tokenizer_class="GPT2Tokenizer"), "cannot-load", "error", True),
        (options(do_lower_case=False), "upper-case-unknown", "warning", False),
        (swapped, "two-vocabularies", "error", False),
        (cut_short, "two-vocabularies", "error", False),
        (typed(torch.int8), "dtype", "error", False),
        (typed(torch.bool), "dtype", "error", False),
        (typed(torch.float8_e4m3fn), "dtype", "error", False),
    ],
    ids=[
        "is_decoder",
        "quantised",
        "T5",
        "number",
        "GPT2",
        "do_lower_case",
        "swapped",
        "cut",
        "int8",
        "bool",
        "fp8",
    ],
)
def test_what_no_verb_takes(
    capsys: pytest.CaptureFixture[str],
    model: Path,
    finished: Path,
    change: Callable[[Path], None],
    code: str,
    level: str,
    refused: bool,
) -> None:
    assert levels(examine_model(finished / "discriminator")).get(code, "ok") == "ok"
    change(model)
    (model / MARK).unlink()  # or the changed file would be found by its hash
    found = examine_model(model)
    assert levels(found)[code] == level
    assert all(f.advice for f in found.findings if f.level in ("warning", "error"))
    if refused:
        assert mistake(capsys, "detect", model, "a text")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("electra.embeddings.position_ids", torch.arange(32)),
        ("transformer.h.0.attn.bias", torch.ones(4, 4, dtype=torch.bool)),
    ],
)
def test_a_table_that_is_computed_anew_is_no_weight(
    model: Path, name: str, table: torch.Tensor
) -> None:
    """Positions, and the masks of GPT-2 as older libraries saved them."""
    named = load_file(model / "model.safetensors")
    save_file(
        named | {name: table},
        model / "model.safetensors",
        metadata={"format": "pt"},
    )
    edit(
        model / "electrify.json",
        lambda mark: {k: v for k, v in mark.items() if k != "weights_sha256"},
    )
    assert "dtype" not in levels(examine_model(model))


def test_a_class_that_gives_other_ids(model: Path) -> None:
    """GPT-2's takes the vocabulary of a WordPiece tokenizer and cuts texts into bytes."""
    assert list(same_ids(model, load_tokenizer(str(model), vocab_size=512))) == []
    options(tokenizer_class="GPT2Tokenizer")(model)
    (found,) = same_ids(model, load_tokenizer(str(model), vocab_size=512))
    assert (found.level, found.code) == ("warning", "tokenizer-class")


def test_a_model_that_reads_from_left_to_right(tmp_path: Path) -> None:
    """`finetune` trains it, so it is not an error."""
    from transformers import GPT2Config, GPT2LMHeadModel

    small = GPT2Config(
        vocab_size=50,
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=20,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(small).save_pretrained(tmp_path / "gpt")
    found = examine_model(tmp_path / "gpt")
    assert of(found, "error") == set()
    (said,) = [f for f in found.findings if f.code == "decoder"]
    assert said.level == "warning"
    assert said.advice == "`finetune` can train it; `detect` and `evaluate` need an encoder."


def test_what_takes_a_decoder(model: Path) -> None:
    config(is_decoder=True)(model)
    (said,) = [f for f in examine_model(model).findings if f.code == "decoder"]
    assert "`detect` and `evaluate` refuse the model" in said.fact


def test_an_attention_that_is_not_here(model: Path) -> None:
    """Every verb chooses its own."""
    (model / MARK).unlink()
    for name in ("attn_implementation", "_attn_implementation"):
        config(**{name: "junk"})(model)
        assert of(examine_model(model), "error") == set()


def test_numbers_beyond_float32(model: Path) -> None:
    named = load_file(model / "model.safetensors")
    name = "electra.embeddings.word_embeddings.weight"
    large = named[name].double()
    large[0, 0] = 1e300
    save_file(named | {name: large}, model / "model.safetensors", metadata={"format": "pt"})
    (model / MARK).unlink()
    found = examine_model(model)
    assert "not-finite" in of(found, "error")
    assert "finite" not in of(found, "ok")


def test_the_status_is_kept_where_the_reader_is_gone(model: Path) -> None:
    """`doctor damaged | true` ended with 0."""
    (model / "model.safetensors").unlink()
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-u", "-m", "electrify", "doctor", str(model)]
    done = subprocess.run(
        words,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_json_of_a_healthy_model_names_no_error(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from electrify import cli

    assert cli.main(["doctor", str(finished / "discriminator"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["error"] == 0


def test_the_advice_names_the_file(model: Path) -> None:
    options(tokenizer_class=3)(model)
    (model / MARK).unlink()
    found = next(f for f in examine_model(model).findings if f.code == "cannot-load")
    assert "restore tokenizer_config.json" in found.advice


def test_the_folder_of_another_trainer_is_its_model(model: Path) -> None:
    (model / "checkpoint-500").mkdir()
    (model / "checkpoint-500" / "optimizer.pt").write_bytes(b"x")
    assert kind_of(model) == "MODEL"
    (model / "config.json").unlink()
    assert kind_of(model) == "RUN"


def test_a_cased_vocabulary_that_is_read_in_lower_case(tmp_path: Path) -> None:
    """Without tokenizer_config.json the library takes BERT's class, which lower-cases."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz"
    roles = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*roles, *letters, *letters.upper(), *(f"##{letter}" for letter in letters)]
    made = Tokenizer(models.WordPiece({w: k for k, w in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    read = BertTokenizer.from_pretrained(tmp_path, do_lower_case=True)
    assert [finding.code for finding in same_ids(tmp_path, read)] == ["tokenizer-class"]
    read = BertTokenizer.from_pretrained(tmp_path, do_lower_case=False)
    assert not [*same_ids(tmp_path, read)]
