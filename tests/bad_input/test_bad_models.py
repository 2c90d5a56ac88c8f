"""Model folders of others, in every verb that takes one: no pickle is opened, no code of theirs
runs."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import ElectraConfig, ElectraForPreTraining, PreTrainedTokenizerFast
from transformers.utils import logging as hf_logging

from electrify import cli
from small import environment, mistake, one_sentence, pretrain_words

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "chef",
    "ate",
    "good",
    "bad",
    "##s",
    ".",
]
SHAPE = {
    "embedding_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
VERBS = ["detect", "evaluate", "finetune", "pretrain"]


def save_tokenizer(folder: Path) -> None:
    raw = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    roles = {
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    PreTrainedTokenizerFast(tokenizer_object=raw, **roles).save_pretrained(folder)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny discriminator that every verb accepts."""
    folder = tmp_path_factory.mktemp("sound") / "model"
    hf_logging.disable_progress_bar()
    torch.manual_seed(0)
    ElectraForPreTraining(ElectraConfig(vocab_size=len(WORDS), **SHAPE)).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    return Path(shutil.copytree(sound, tmp_path / "model"))


@pytest.fixture
def command(small_data: Path, tmp_path: Path) -> Callable[[str, Path | str], list[str]]:
    """The words of a verb on a model."""
    for name in ("train.csv", "held.csv"):
        (tmp_path / name).write_text(
            "text,label\n" + "the good chef,1\nthe bad chef,0\n" * 4, encoding="utf-8"
        )
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "one.jsonl").write_text(
        '{"sentence_good": "the chef ate", "sentence_bad": "chef the ate"}\n', encoding="utf-8"
    )

    def words(verb: str, model: Path | str) -> list[str]:
        out = str(tmp_path / "out")
        own = [
            "--train-file",
            str(tmp_path / "train.csv"),
            "--validation-file",
            str(tmp_path / "held.csv"),
            "--seeds",
            "1",
        ]
        return {
            "detect": ["detect", str(model), "the chef ate"],
            "evaluate": [
                "evaluate",
                str(model),
                "--data-dir",
                str(tmp_path / "pairs"),
                "--output-dir",
                out,
                "--device",
                "cpu",
            ],
            "finetune": ["finetune", str(model), *own, "--output-dir", out, "--device", "cpu"],
            "pretrain": pretrain_words(
                small_data, Path(out), init_discriminator=str(model), max_steps=1
            ),
        }[verb]

    return words


def change(model: Path, **fields: Any) -> None:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps(config | fields), encoding="utf-8")


def refused(capsys: pytest.CaptureFixture[str], words: list[str], tmp_path: Path) -> str:
    sentence = mistake(capsys, *words)
    assert not (tmp_path / "out").exists()
    return sentence


def test_the_sound_one_is_taken(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
) -> None:
    """Or the refusals below would say nothing."""
    for verb in ("detect", "evaluate"):
        assert cli.main(command(verb, model)) == 0
    shutil.rmtree(tmp_path / "out")
    assert "has a vocabulary of 12, the corpus one of" in mistake(
        capsys, *command("pretrain", model)
    )


# ------------------------------------------------------------------ pickle and code


class Payload:
    """What runs when a pickle is opened without care."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
@pytest.mark.parametrize("verb", VERBS)
def test_pickles_are_never_opened(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
    verb: str,
    name: str,
) -> None:
    (model / "model.safetensors").unlink()
    torch.save(
        {"electra.embeddings.word_embeddings.weight": Payload(tmp_path / "ran")}, model / name
    )
    sentence = refused(capsys, command(verb, model), tmp_path)
    assert (
        verb == "pretrain" or f"{name} could run other people's code when it is opened" in sentence
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["electra", "evil"])
@pytest.mark.parametrize("verb", VERBS)
def test_code_of_others_never_runs(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
    verb: str,
    kind: str,
) -> None:
    """A type that transformers knows is read by its code, another one is refused."""
    (model / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    change(
        model,
        model_type=kind,
        auto_map={
            "AutoConfig": "evil.Config",
            "AutoModel": "evil.Model",
            "AutoModelForMaskedLM": "evil.Model",
        },
    )
    settings = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    (model / "tokenizer_config.json").write_text(
        json.dumps(settings | {"auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]}}),
        encoding="utf-8",
    )
    if kind == "evil":
        assert "brings Python code of its own (auto_map), which electrify never runs" in refused(
            capsys, command(verb, model), tmp_path
        )
    elif verb == "detect":
        assert cli.main(command(verb, model)) == 0
    assert not (tmp_path / "ran").exists()


# ------------------------------------------------------------------ config.json

CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "a width that is text": ({"hidden_size": "wide"}, ""),
    "a width that is none": ({"hidden_size": None}, ""),
    "layers in a list": ({"num_hidden_layers": [1]}, ""),
    "an activation of another world": ({"hidden_act": "__import__"}, ""),
    "a type that is a number": ({"model_type": 5}, ""),
    "a type that nobody knows": ({"model_type": "\x1b[31melectra"}, ""),
}


@pytest.mark.parametrize("case", CONFIGS)
@pytest.mark.parametrize("verb", ["detect", "finetune"])
def test_configurations(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
    verb: str,
    case: str,
) -> None:
    fields, says = CONFIGS[case]
    change(model, **fields)
    began = time.monotonic()
    sentence = refused(capsys, command(verb, model), tmp_path)
    assert says in sentence
    assert str(model) in sentence
    assert "\x1b" not in sentence
    assert time.monotonic() - began < 60


# ------------------------------------------------------------------ weights


WEIGHTS: dict[str, bytes] = {
    "nothing": b"",
    "half a length": b"\x01\x02",
    "no JSON": b"\4\0\0\0\0\0\0\0abcd",
    "a pickle": b"\x80\x04cos\nsystem\n",
}


@pytest.mark.parametrize("case", WEIGHTS)
@pytest.mark.parametrize("verb", ["detect", "finetune"])
def test_weights(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
    verb: str,
    case: str,
) -> None:
    (model / "model.safetensors").write_bytes(WEIGHTS[case])
    assert "its weights cannot be loaded" in refused(capsys, command(verb, model), tmp_path)


def test_weights_that_are_no_numbers(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
) -> None:
    state = {
        name: torch.full_like(t, math.nan)
        for name, t in load_file(model / "model.safetensors").items()
    }
    save_file(state, model / "model.safetensors", metadata={"format": "pt"})
    for verb in ("detect", "evaluate", "finetune"):
        assert "not finite" in refused(capsys, command(verb, model), tmp_path)


# ------------------------------------------------------------------ folders and tokenizers


def test_a_folder_without_tokenizer(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
) -> None:
    for path in model.glob("token*"):
        path.unlink()
    for verb in ("detect", "evaluate", "finetune"):
        assert "the folder holds no tokenizer" in refused(capsys, command(verb, model), tmp_path)


def spoil(model: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = model / "tokenizer.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    edit(whole)
    path.write_text(json.dumps(whole), encoding="utf-8")


def more_words(whole: dict[str, Any]) -> None:
    whole["model"]["vocab"] |= {"extra": 500}


TOKENIZERS = [
    (more_words, "ids up to 500, the model has 12"),
]


@pytest.mark.parametrize(
    ("edit", "says"), TOKENIZERS, ids=[edit.__name__ for edit, _ in TOKENIZERS]
)
def test_damaged_tokenizers(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
    edit: Callable[[dict[str, Any]], None],
    says: str,
) -> None:
    spoil(model, edit)
    assert says in refused(capsys, ["detect", str(model), "zzz " + "a" * 40 + "b"], tmp_path)
    (tmp_path / "train.csv").write_text(
        f"text,label\n{'a' * 40}b zzz,1\nthe bad zzz,0\n", encoding="utf-8"
    )
    assert says in mistake(capsys, *command("finetune", model))
    assert not (tmp_path / "out" / "scores.jsonl").exists()


# ------------------------------------------------------------------ the Hub


def closed_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("how", ["offline", pytest.param("unreachable", marks=pytest.mark.slow)])
def test_a_hub_id_without_network(tmp_path: Path, how: str) -> None:
    """One sentence, soon: at once where HF_HUB_OFFLINE says so, else after a single question, and
    not after the retries of huggingface_hub."""
    nowhere = f"http://127.0.0.1:{closed_port()}"
    variables = (
        {"HF_HUB_OFFLINE": "1"}
        if how == "offline"
        else {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": nowhere}
    )
    variables |= {"HF_HOME": str(tmp_path / "cache")}
    (tmp_path / "a.txt").write_text("the chef ate.\n", encoding="utf-8")
    cases = [["detect", "nobody/nothing-at-all", "text"]]
    if how == "unreachable":
        cases.append(
            [
                "prepare",
                str(tmp_path / "a.txt"),
                "--output-dir",
                str(tmp_path / "out"),
                "--tokenizer",
                "nobody/nothing-at-all",
            ]
        )
    for words in cases:
        began = time.monotonic()
        code = [sys.executable, "-m", "electrify", *words]
        done = subprocess.run(
            code,
            capture_output=True,
            text=True,
            env=environment(**variables),
            timeout=280,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "be reached" in done.stderr
        assert "nobody/nothing-at-all" in one_sentence(done.stderr)
        assert "Retrying" not in done.stderr
        assert time.monotonic() - began < 60
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ runs (export)


# ------------------------------ settings that are the caller's, and numbers of which lists are made


@pytest.mark.parametrize(("role", "token", "says"), [
    ("cls_token", "[SEP]", "cls=3, sep=3"), ("mask_token", "[PAD]", "pad=0, mask=0"),
    ("sep_token", "[UNK]", "sep=1, unk=1"),
])  # fmt: skip
def test_special_tokens_that_are_one_another(
    capsys: pytest.CaptureFixture[str],
    command: Callable[[str, Path | str], list[str]],
    model: Path,
    tmp_path: Path,
    role: str,
    token: str,
    says: str,
) -> None:
    settings = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    (model / "tokenizer_config.json").write_text(
        json.dumps(settings | {role: token}), encoding="utf-8"
    )
    (model / "special_tokens_map.json").unlink(missing_ok=True)
    for verb in VERBS[:3]:
        sentence = refused(capsys, command(verb, model), tmp_path)
        assert "uses one token for several roles" in sentence
        assert says in sentence
