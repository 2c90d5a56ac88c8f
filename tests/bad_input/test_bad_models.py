"""Models and tokenizers of others: no pickle is opened, no code of theirs runs, and what is damaged
is one sentence in every verb that takes it."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import ElectraConfig, ElectraForPreTraining, PreTrainedTokenizerFast
from transformers.utils import logging as hf_logging

from electrify import cli
from electrify.exporting.places import check_place
from small import electrify, flags, mistake, one_sentence, pretrain_words, write_text

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "chef", "ate", "good", "bad", "."]
ROLES = {f"{word.strip('[]').lower()}_token": word for word in WORDS[:5]}
SHAPE = {
    "embedding_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
VERBS = ["detect", "finetune", "pretrain"]
Command = Callable[[str, Path], list[str]]
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny discriminator that every verb accepts."""
    folder = tmp_path_factory.mktemp("sound") / "model"
    hf_logging.disable_progress_bar()
    torch.manual_seed(0)
    ElectraForPreTraining(ElectraConfig(vocab_size=len(WORDS), **SHAPE)).save_pretrained(folder)
    ids = {word: i for i, word in enumerate(WORDS)}
    whole = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **ROLES).save_pretrained(
        folder
    )
    return folder


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    return Path(shutil.copytree(sound, tmp_path / "model"))


@pytest.fixture
def command(small_data: Path, tmp_path: Path) -> Command:
    """The words of a verb on a model."""
    file = tmp_path / "train.csv"
    file.write_text("text,label\n" + "the good chef,1\nthe bad chef,0\n" * 4)
    tuning = flags(train_file=file, validation_file=file, baselines=False, device="cpu")
    tuning += flags(output_dir=tmp_path / "out")

    def words(verb: str, model: Path) -> list[str]:
        if verb == "pretrain":
            fields = {"init_discriminator": model, "max_steps": 1}
            return pretrain_words(small_data, tmp_path / "out", **fields)
        return [verb, str(model), *(["the chef ate"] if verb == "detect" else tuning)]

    return words


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: Command) -> Refused:
    """The sentence of a verb that refuses a model and writes nothing."""

    def sentence(verb: str, model: Path) -> str:
        said = mistake(capsys, *command(verb, model))
        assert not (tmp_path / "out").exists()
        return said

    return sentence


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_the_sound_one_is_taken(command: Command, model: Path) -> None:
    """Or the refusals below would say nothing."""
    assert cli.main(command("detect", model)) == 0


class Payload:
    """What runs when a pickle is opened without care."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_pickles_are_never_opened(refused: Refused, model: Path, tmp_path: Path, name: str) -> None:
    (model / "model.safetensors").unlink()
    words = "electra.embeddings.word_embeddings.weight"
    torch.save({words: Payload(tmp_path / "ran")}, model / name)
    for verb in VERBS:
        said = refused(verb, model)
        assert verb == "pretrain" or f"{name} could run other people's code" in said
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["electra", "evil"])
def test_code_of_others_never_runs(refused, command, model, tmp_path, kind):
    """A type that transformers knows is read by its code, another one is refused."""
    (model / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    classes = dict.fromkeys(("AutoModel", "AutoModelForMaskedLM"), "evil.Model")
    edit(model / "config.json", model_type=kind, auto_map=classes | {"AutoConfig": "evil.Config"})
    edit(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", "evil.T"]})
    for verb in VERBS if kind == "evil" else ():
        assert "custom code" in refused(verb, model)
    if kind == "electra":
        assert cli.main(command("detect", model)) == 0
    assert not (tmp_path / "ran").exists()


def test_a_tokenizers_code_never_runs(capsys, model, tmp_path):
    (model / "config.json").unlink()
    (model / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    evil = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    edit(model / "tokenizer_config.json", tokenizer_class="Evil", auto_map=evil)
    text = write_text(tmp_path / "a.txt", size=2000)
    words = ["prepare", text, "--output-dir", tmp_path / "out", "--tokenizer", model]
    assert "custom code" in mistake(capsys, *words)
    assert not (tmp_path / "ran").exists()


def a_pickle(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"\x80\x04cos\nsystem\n")


def no_numbers(model: Path) -> None:
    state = load_file(model / "model.safetensors")
    state = {name: torch.full_like(tensor, math.nan) for name, tensor in state.items()}
    save_file(state, model / "model.safetensors", metadata={"format": "pt"})


def no_tokenizer(model: Path) -> None:
    for path in model.glob("token*"):
        path.unlink()


def more_words(model: Path) -> None:
    whole = json.loads((model / "tokenizer.json").read_text())
    whole["model"]["vocab"]["extra"] = 500
    (model / "tokenizer.json").write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (a_pickle, "its weights cannot be loaded"),
        (no_numbers, "not finite"),
        (lambda model: edit(model / "config.json", model_type="elektra"), "model"),
        (no_tokenizer, "the folder holds no tokenizer"),
        (more_words, "ids up to 500, the model has 11"),
    ],
)
def test_a_spoilt_model_is_one_sentence(refused: Refused, model: Path, spoil: Any, says: str):
    spoil(model)
    for verb in ("detect", "finetune"):
        assert says in refused(verb, model), verb


def test_a_hub_id_without_network(tmp_path: Path) -> None:
    words = ["detect", "nobody/nothing-at-all", "text"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    done = electrify(words, tmp_path, expect=2, seconds=60, **offline)
    assert "be reached" in done.err
    assert "nobody/nothing-at-all" in one_sentence(done.err)


def test_a_model_in_the_cache_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("no route to it")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", unreachable)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: "config.json")
    check_place("nobody/in-the-cache")
