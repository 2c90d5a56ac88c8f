"""Links, pipes, devices and giants in the folders of others, and JSON with right hashes and odd
content: one sentence each, nothing followed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from electrify.oldfiles.seals import SEAL, seal_of
from electrify.oldfiles.seals import text_of as manifest_text
from small import mistake, pretrain_words, run, write_text

QUICK: dict[str, Any] = {"max_steps": 4, "save_steps": 2, "logging_steps": 1}
SECRET = "a line that nobody may publish\n"


@pytest.fixture(scope="module")
def finished(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates with two checkpoints and its exported halves."""
    folder = tmp_path_factory.mktemp("files") / "run"
    assert run(*pretrain_words(small_data, folder, **QUICK)) == 0
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "secret.txt"
    path.parent.mkdir()
    path.write_text(SECRET, encoding="utf-8")
    return path


def replaced(path: Path, target: Path | str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def holds_secret(folder: Path) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]


# ------------------------------------------------------------------ DATA


@pytest.fixture
def data(small_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_data, tmp_path / "data"))


def link_zero(folder: Path, secret: Path) -> None:
    (folder / "tokenizer" / "x").symlink_to("/dev/zero")


def link_folder(folder: Path, secret: Path) -> None:
    (folder / "tokenizer" / "etc").symlink_to(secret.parent)


def pipe_beside(folder: Path, secret: Path) -> None:
    pipe(folder / "tokenizer" / "y")


def link_circle(folder: Path, secret: Path) -> None:
    (folder / "tokenizer" / "z").symlink_to("z")


@pytest.mark.parametrize("spoil", [link_zero, link_folder, pipe_beside, link_circle])
def test_what_is_not_of_a_tokenizer_is_not_copied(
    data: Path, secret: Path, tmp_path: Path, spoil: Callable[[Path, Path], None]
) -> None:
    spoil(data, secret)
    assert run(*pretrain_words(data, tmp_path / "run", max_steps=1)) == 0
    for folder in ("tokenizer", "discriminator", "generator"):
        assert not {"x", "etc", "y", "z"} & {p.name for p in (tmp_path / "run" / folder).iterdir()}
    assert not holds_secret(tmp_path / "run")


@pytest.mark.parametrize(
    "name", ["merges.txt", "special_tokens_map.json", "vocab.txt", "tokenizer_config.json"]
)
def test_a_tokenizer_file_that_is_a_link_out(
    capsys: pytest.CaptureFixture[str], data: Path, secret: Path, tmp_path: Path, name: str
) -> None:
    """With the hash in the manifest, too: whoever wrote the folder may know the file."""
    replaced(data / "tokenizer" / name, secret)
    raw = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    raw["tokenizer_files"][name] = hashlib.sha256(SECRET.encode()).hexdigest()
    (data / "manifest.json").write_text(manifest_text(raw | {SEAL: seal_of(raw)}), encoding="utf-8")
    assert "is a link that leads out of its folder" in mistake(
        capsys, *pretrain_words(data, tmp_path / "run", max_steps=1)
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name", ["manifest.json", "unigram.npy", "tokens-train-00000.bin", "tokenizer/tokenizer.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "device", "link out"])
def test_files_of_data_that_are_no_files(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path, name: str, kind: str
) -> None:
    path = data / name
    if kind == "pipe":
        pipe(path)
    elif kind == "device":
        replaced(path, "/dev/zero")
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    sentence = mistake(capsys, *pretrain_words(data, tmp_path / "run", max_steps=1))
    assert (
        ("not a file" in sentence)
        if kind != "link out"
        else ("leads out of its folder" in sentence)
    )


# ------------------------------------------------------------------ RUN


@pytest.fixture
def trained(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def export(trained: Path, tmp_path: Path) -> tuple[str, ...]:
    return "export", str(trained), "--output-dir", str(tmp_path / "out")


@pytest.mark.parametrize("name", ["vocab.txt", "merges.txt"])
def test_a_runs_tokenizer_is_not_published_through_a_link(
    capsys: pytest.CaptureFixture[str], trained: Path, secret: Path, tmp_path: Path, name: str
) -> None:
    replaced(trained / "tokenizer" / name, secret)
    assert "leads out of its folder" in mistake(capsys, *export(trained, tmp_path))
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ MODEL


@pytest.fixture
def model(finished: Path, tmp_path: Path) -> Path:
    """A model of others: an export without our mark."""
    folder = Path(shutil.copytree(finished / "discriminator", tmp_path / "model"))
    (folder / "electrify.json").unlink()
    return folder


def shard(model: Path, name: str) -> None:
    """The weights in two files, of which the index calls the second `name`."""
    named = load_file(model / "model.safetensors")
    half = len(named) // 2
    for file, keys in (
        ("a.safetensors", sorted(named)[:half]),
        ("b.safetensors", sorted(named)[half:]),
    ):
        save_file({k: named[k] for k in keys}, model / file, metadata={"format": "pt"})
    places = {k: "a.safetensors" if i < half else name for i, k in enumerate(sorted(named))}
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8"
    )


def verbs(model: Path, tmp_path: Path, data: Path) -> dict[str, list[str]]:
    (tmp_path / "a.csv").write_text("text,label\n" + "the one,1\nthe two,0\n" * 4, encoding="utf-8")
    (tmp_path / "pairs").mkdir(exist_ok=True)
    (tmp_path / "pairs" / "one.jsonl").write_text(
        '{"sentence_good": "the one", "sentence_bad": "one the"}\n', encoding="utf-8"
    )
    files = [
        "--train-file",
        str(tmp_path / "a.csv"),
        "--validation-file",
        str(tmp_path / "a.csv"),
        "--output-dir",
        str(tmp_path / "out"),
    ]
    return {
        "detect": ["detect", str(model), "the one"],
        "evaluate": [
            "evaluate",
            str(model),
            "--data-dir",
            str(tmp_path / "pairs"),
            "--device",
            "cpu",
        ],
        "finetune": ["finetune", str(model), *files, "--seeds", "1", "--device", "cpu"],
        "pretrain": pretrain_words(
            data, tmp_path / "out", init_discriminator=str(model), max_steps=1
        ),
    }


def test_shards_of_this_folder_are_taken(model: Path, tmp_path: Path, small_data: Path) -> None:
    shard(model, "b.safetensors")
    assert run(*verbs(model, tmp_path, small_data)["detect"]) == 0


SHARDS = [("../../dev/zero", "which is not a .safetensors file"), ("/etc/passwd", "which is not"),
 ("../b.safetensors", "which is not"),
          ("gone.safetensors", "names gone.safetensors, which is missing"),
          ("pipe.safetensors", "is a pipe, not a file"),
          ("zero.safetensors", "is a device, not a file"),
          ("out.safetensors", "leads out of its folder")]  # fmt: skip


@pytest.mark.parametrize(("name", "says"), SHARDS)
def test_shards_of_elsewhere(
    capsys: pytest.CaptureFixture[str],
    model: Path,
    secret: Path,
    tmp_path: Path,
    small_data: Path,
    name: str,
    says: str,
) -> None:
    shard(model, name)
    os.mkfifo(model / "pipe.safetensors") if "pipe" in name else None
    (model / "zero.safetensors").symlink_to("/dev/zero") if "zero.s" in name else None
    (model / "out.safetensors").symlink_to(secret) if "out" in name else None
    for verb, words in verbs(model, tmp_path, small_data).items():
        assert says in mistake(capsys, *words), verb


def giant_template(model: Path, secret: Path) -> None:
    with (model / "chat_template.jinja").open("wb") as f:
        f.truncate(3 << 30)


def giant_config(model: Path, secret: Path) -> None:
    with (model / "config.json").open("r+b") as f:
        f.truncate(3 << 30)


def piped_config(model: Path, secret: Path) -> None:
    pipe(model / "tokenizer_config.json")


def linked_vocabulary(model: Path, secret: Path) -> None:
    replaced(model / "vocab.txt", secret)


def piped_generation(model: Path, secret: Path) -> None:
    pipe(model / "generation_config.json")


def templates(model: Path, secret: Path) -> None:
    (model / "additional_chat_templates").mkdir()
    pipe(model / "additional_chat_templates" / "a.jinja")


def other_configuration(model: Path, secret: Path) -> None:
    change(model, configuration_files=["config.4.0.0.json", "../../x.json"])


def other_weights(model: Path, secret: Path) -> None:
    change(model, transformers_weights="../x.safetensors")


def quantised(model: Path, secret: Path) -> None:
    change(model, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})


def adapter(model: Path, secret: Path) -> None:
    (model / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "../x"}', encoding="utf-8"
    )


def long_texts(model: Path, secret: Path) -> None:
    path = model / "tokenizer_config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"model_max_length": "many"}),
        encoding="utf-8",
    )


def change(model: Path, **fields: Any) -> None:
    raw = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps(raw | fields), encoding="utf-8")


def as_type(dtype: torch.dtype) -> Callable[[Path, Path], None]:
    def spoil(model: Path, secret: Path) -> None:
        named = load_file(model / "model.safetensors")
        save_file(
            {k: t.to(dtype) for k, t in named.items()},
            model / "model.safetensors",
            metadata={"format": "pt"},
        )

    spoil.__name__ = str(dtype).removeprefix("torch.")
    return spoil


MODELS: list[tuple[Callable[[Path, Path], None], str]] = [
    (giant_template, "chat_template.jinja has 3,072 MB"),
    (giant_config, "config.json has 3,072 MB"),
    (piped_config, "tokenizer_config.json is a pipe"),
    (linked_vocabulary, "vocab.txt is a link that leads out"),
    (piped_generation, "generation_config.json is a pipe"), (templates, "holds chat templates"),
    (other_configuration, "names other files"),
    (other_weights, "names other files"), (quantised, "says that the weights are quantised"),
    (adapter, "is of an adapter"),
    (long_texts, "model_max_length is 'many', a number is needed"),
    *((as_type(t), "and weights are numbers of")
     for t in (torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.int64)),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "says"), MODELS, ids=[spoil.__name__ for spoil, _ in MODELS])
def test_a_model_of_others(
    capsys: pytest.CaptureFixture[str],
    model: Path,
    secret: Path,
    tmp_path: Path,
    small_data: Path,
    spoil: Callable[[Path, Path], None],
    says: str,
) -> None:
    spoil(model, secret)
    for verb, words in verbs(model, tmp_path, small_data).items():
        sentence = mistake(capsys, *words)
        assert says in sentence, verb
        assert "secret" not in sentence
    assert not (tmp_path / "out").exists()


def test_tokenizers_of_others_for_prepare(
    capsys: pytest.CaptureFixture[str], model: Path, secret: Path, tmp_path: Path
) -> None:
    source = write_text(tmp_path / "a.txt", size=2000)
    words = [
        "prepare",
        str(source),
        "--output-dir",
        str(tmp_path / "out"),
        "--tokenizer",
        str(model),
        "--workers",
        "1",
    ]
    long_texts(model, secret)
    assert "model_max_length is 'many'" in mistake(capsys, *words)
    (model / "tokenizer_config.json").unlink()
    linked_vocabulary(model, secret)
    assert "leads out of its folder" in mistake(capsys, *words)
    assert not (tmp_path / "out").exists()


def test_a_snapshot_of_the_hubs_cache(model: Path, tmp_path: Path, small_data: Path) -> None:
    """Its files are links to ../../blobs, which belong to it."""
    top = tmp_path / "hub" / "models--somebody--electra"
    snapshot = top / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (top / "blobs").mkdir()
    for path in model.iterdir():
        name = hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copy(path, top / "blobs" / name)
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", name))
    assert run(*verbs(snapshot, tmp_path, small_data)["detect"]) == 0


# ---------------------------------------------------------- records of finetune, unfinished folders


@pytest.mark.parametrize(
    "text",
    [
        "{}\n",
        "5\n",
        "[]\n",
        '{"model": "m"}\n',
        "",
        "\n",
        '{"a": 1}',
        "[" * 100_000 + "\n",
        "NaN\n",
    ],
)
def test_scores_that_are_not_records(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, small_data: Path, text: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "finetune.json").write_text('{"learning_rate": null}', encoding="utf-8")
    (tmp_path / "out" / "scores.jsonl").write_text(text, encoding="utf-8")
    words = verbs(model, tmp_path, small_data)["finetune"]
    assert "scores.jsonl" in mistake(capsys, *words)
    assert (tmp_path / "out" / "scores.jsonl").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "5",
        '{"learning_rate": "fast"}',
        '{"num_train_epochs": []}',
        '{"nobody": 1}',
        "[" * 100_000,
        '{"a": 1, "a": 1}',
    ],
)
def test_settings_that_are_not_settings(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, small_data: Path, text: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "finetune.json").write_text(text, encoding="utf-8")
    assert "finetune.json" in mistake(capsys, *verbs(model, tmp_path, small_data)["finetune"])
    pipe(tmp_path / "out" / "finetune.json")
    assert "finetune.json is a pipe" in mistake(
        capsys, *verbs(model, tmp_path, small_data)["finetune"]
    )


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "5",
        "{}",
        '{"options": 5, "sources": []}',
        '{"options": {}, "sources": [5]}',
        "[" * 100_000,
    ],
)
def test_odd_states_of_an_unfinished_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    source, out = write_text(tmp_path / "a.txt", size=2000), tmp_path / "out"
    (out / "unfinished").mkdir(parents=True)
    (out / "unfinished" / "state.json").write_text(text, encoding="utf-8")
    assert "holds other files (unfinished" in mistake(
        capsys, "prepare", source, "--output-dir", out, "--workers", "1"
    )
    assert (out / "unfinished" / "state.json").read_text(encoding="utf-8") == text


def test_an_unfinished_folder_that_is_a_link(
    capsys: pytest.CaptureFixture[str], secret: Path, tmp_path: Path
) -> None:
    source, out = write_text(tmp_path / "a.txt", size=2000), tmp_path / "out"
    out.mkdir()
    (out / "unfinished").symlink_to(secret.parent)
    mistake(capsys, "prepare", source, "--output-dir", out, "--workers", "1")
    assert [p.name for p in secret.parent.iterdir()] == ["secret.txt"]
