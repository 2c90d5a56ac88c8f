"""The mistakes that users make: status 2, and one sentence that names the file, field or flag."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import material
import program as adapter
import pytest
from program import Program, words
from test_training import recipe


@pytest.fixture(scope="module")
def place(program: Program, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what mistakes are made with."""
    folder = tmp_path_factory.mktemp("mistakes")
    material.tasks(folder / "tasks")
    material.prose(folder / "prose.txt", size=30_000)
    write = material.write
    write(folder / "few.txt", "One short text.\n")
    write(folder / "empty.txt", "")
    write(folder / "latin.txt", "").write_bytes("caf\xe9 is open".encode("latin-1"))
    write(folder / "bad.jsonl", '{"text": "one"}\n{"text": \n')
    write(folder / "typo.yaml", "like: electra-tiny\ntrain: {lerning_rate: 0.1}\n")
    write(folder / "typed.yaml", "like: electra-tiny\ntrain: {max_steps: many}\n")
    write(folder / "minutes.yaml", "like: electra-tiny\ntrain: {max_steps: 1:30}\n")
    write(folder / "true.yaml", "like: electra-tiny\ntrain: {max_steps: true}\n")
    write(folder / "notes" / "mine.txt", "not to be written over")
    write(folder / "labels.csv", "text,label\nfine,0.5\nbad,n/a\n" + "so,1.5\n" * 20)
    write(folder / "tokenizer" / "tokenizer.json", "{}")
    lines = [
        words("pretrain", data, config=recipe(folder, "electra"), output_dir=folder / "run"),
        words("pretrain", data, config=recipe(folder, "bert"), output_dir=folder / "bert"),
    ]
    for done in program.batch(lines):
        done.ok()
    return folder


def mistakes(data: Path, at: Path) -> dict[str, tuple[list[str], list[str]]]:
    """What is wrong -> the command line, and what its sentence must contain."""
    run, out, own = at / "run", at / "out", at / "tasks" / "own" / "train.csv"
    model = run / "discriminator"

    def train(what: Any = data, **flags: Any) -> list[str]:
        return words("pretrain", what, **{"output_dir": out, "recipe": "electra-tiny"} | flags)

    def prepare(what: Any, **flags: Any) -> list[str]:
        return words("prepare", what, **{"output_dir": out, "workers": 1} | flags)

    def finetune(what: Any = model, **flags: Any) -> list[str]:
        return words("finetune", what, **{"output_dir": out} | flags)

    def file(name: str) -> dict[str, Any]:
        return {"recipe": None, "config": at / name}

    return {
        "verb": (["pretain", str(data)], ["pretrain"]),
        "flag": (train(lerning_rate=0.1), ["--lerning-rate", "--learning-rate"]),
        "recipe": (train(recipe="electra-tyni"), ["electra-tyni", "electra-tiny"]),
        "field": (train(**file("typo.yaml")), ["typo.yaml", "lerning_rate", "learning_rate"]),
        "type in a file": (train(**file("typed.yaml")), ["typed.yaml", "max_steps"]),
        "1:30": (train(**file("minutes.yaml")), ["max_steps"]),
        "true for a number": (train(**file("true.yaml")), ["max_steps"]),
        "no recipe file": (train(**file("none.yaml")), ["none.yaml"]),
        "type": (train(max_steps="many"), ["--max-steps", "many"]),
        "nan": (train(learning_rate="nan"), ["learning-rate"]),
        "range": (train(mask_rate=1.5), ["mask-rate"]),
        "choice": (train(tie="embedings"), ["--tie", "embedings"]),
        "heads": (train(hidden_size=130), ["130", "num-attention-heads"]),
        "together": (train(copy_gate=False), ["copy-gate"]),
        "batch": (train(gradient_accumulation_steps=7), ["gradient-accumulation-steps"]),
        "positions": (train(max_seq_length=1024), ["max-seq-length", "max-position-embeddings"]),
        "schedule": (train(seq_length_schedule="64"), ["--seq-length-schedule"]),
        "no data": (train(at / "nowhere"), ["nowhere"]),
        "a folder of another run": (
            train(config=at / "bert.yaml", recipe=None, output_dir=run),
            [str(run), "output-dir"],
        ),
        "no folder": (train(output_dir="/dev/null/run"), ["/dev/null"]),
        "a folder of the user's": (train(output_dir=at / "notes"), ["notes"]),
        "nothing to go on": (train(resume="must"), [str(out)]),
        "minutes and steps": (train(train_minutes=1, max_steps=9), ["--max-steps"]),
        "no output": (words("pretrain", data), ["--output-dir"]),
        "a corpus too small": (prepare(at / "few.txt"), ["few.txt"]),
        "an empty corpus": (prepare(at / "empty.txt"), ["empty.txt"]),
        "no corpus": (prepare(at / "nowhere.txt"), ["nowhere.txt"]),
        "not UTF-8": (prepare(at / "latin.txt"), ["latin.txt", "encoding-errors"]),
        "broken JSON": (prepare(at / "bad.jsonl"), ["bad.jsonl", "2"]),
        "no column": (prepare(own, text_column="txet"), ["txet", "text"]),
        "vocabulary": (prepare(at / "prose.txt", vocab_size=3), ["vocab-size"]),
        "kind of tokenizer": (prepare(at / "prose.txt", tokenizer="wordpeace"), ["wordpeace"]),
        "no [MASK]": (prepare(at / "prose.txt", tokenizer=at / "gpt"), ["[MASK]"]),
        "damaged tokenizer": (prepare(at / "prose.txt", tokenizer=at / "tokenizer"), ["tokenizer"]),
        "a corpus of another command": (
            prepare(at / "prose.txt", output_dir=data),
            [str(data)],
        ),
        "part": (words("export", run, output_dir=out, part="corrector"), ["corrector"]),
        "step": (words("export", run, output_dir=out, step=7), ["7", "20"]),
        "no run": (words("export", at / "notes", output_dir=out), ["notes"]),
        "no model": (words("detect", at / "notes", "text"), ["notes"]),
        "not a discriminator": (words("detect", run / "generator", "text"), ["generator"]),
        "no pairs": (words("evaluate", model, data_dir=at / "notes"), ["notes"]),
        "task": (finetune(task="colla", data_dir=at / "tasks"), ["colla", "cola"]),
        "no task data": (finetune(task="mrpc", data_dir=at / "tasks"), ["MRPC"]),
        "label column": (
            finetune(train_file=own, validation_file=own, label_column="lable"),
            ["lable", "label"],
        ),
        "labels": (
            finetune(train_file=at / "labels.csv", validation_file=at / "labels.csv"),
            ["labels.csv", "n/a"],
        ),
        "no validation": (finetune(train_file=own), ["validation"]),
        "not fine-tuned": (words("predict", model, own), ["discriminator"]),
        "ending": (words("embed", model, own, output_file=at / "v.txt"), ["v.txt", ".npy"]),
        "recipe of flops": (words("flops", "electra-tiny:mask_rat=.3"), ["mask_rat", "mask_rate"]),
        "budget": (
            words("compare", data, recipes="bert-tiny", budgets="many", tasks="planted")
            + words("", output_dir=out)[1:],
            ["budgets"],
        ),
        "task of a study": (
            words("compare", data, recipes="bert-tiny", budgets="1e14", tasks="plantd")
            + words("", output_dir=out)[1:],
            ["plantd"],
        ),
    }


def test_mistakes(program: Program, data: Path, place: Path) -> None:
    from tokenizers import Tokenizer, models

    (place / "gpt").mkdir()
    Tokenizer(models.BPE({"a": 0, "b": 1}, [])).save(str(place / "gpt" / "tokenizer.json"))
    before = adapter.ending(place / "run"), adapter.corpus(data)
    cases = mistakes(data, place)
    lines = [line for line, _ in cases.values()]
    wrong = []
    for (name, (_, says)), done in zip(cases.items(), program.batch(lines), strict=True):
        try:
            sentence = done.sentence()
        except AssertionError as e:
            wrong.append(f"{name}: {str(e)[-600:]}")
            continue
        missing = [word for word in says if word not in sentence]
        if missing or len(sentence) > 700:
            wrong.append(f"{name}: {missing} missing in: {sentence}")
    assert not wrong, "\n".join(wrong)
    assert (adapter.ending(place / "run"), adapter.corpus(data)) == before
    assert (place / "notes" / "mine.txt").read_text() == "not to be written over"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(program: Program, data: Path, place: Path) -> None:
    locked = place / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    line = words("pretrain", data, recipe="electra-tiny", output_dir=locked / "run")
    assert "locked" in program.run(line).sentence()


def test_damaged_corpus(program: Program, data: Path, tmp_path: Path) -> None:
    cut = shutil.copytree(data, tmp_path / "cut")
    shard = next(cut.glob("tokens-train*"))
    shard.write_bytes(shard.read_bytes()[:-8])
    line = words("pretrain", cut, recipe="electra-tiny", output_dir=tmp_path / "run")
    assert shard.name in program.run(line).sentence()


def test_a_full_disk(program: Program, data: Path, tmp_path: Path) -> None:
    line = words("pretrain", data, config=recipe(tmp_path, "electra"), output_dir=tmp_path / "run")
    sentence = program.run(line, longest_file=150_000).sentence()
    assert str(tmp_path / "run") in sentence
