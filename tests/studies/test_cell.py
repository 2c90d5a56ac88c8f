"""One encoder: what fails is told, and the rest goes on."""

from __future__ import annotations

import io
import json
import os
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from batches import tiny
from electrify.errors import OutputError, SpaceError, Unfinished, UserError
from electrify.finetuning.options import FinetuneConfig, FinetuneSettings
from electrify.finetuning.run import SCORES, finetune
from electrify.recipe import dump, load, override
from electrify.studies import cell as cell_module
from electrify.studies import measures
from electrify.studies.cell import (
    OUTCOME,
    Work,
    do,
    last_words,
    measured,
    must_be_as_planned,
)
from electrify.studies.measures import Found, Measuring, digest_of
from electrify.studies.processes import spawn
from electrify.studies.study import starts_of
from electrify.tables import KEPT
from electrify.text import workers
from electrify.text.corpus import Corpus
from electrify.train import run as pretraining
from small import signalled

WORK = Work(
    data="",
    folder="out",
    recipe="",
    tasks=("a", "b", "c"),
    measuring=Measuring("", "", 2),
    parent=os.getpid(),
)


def test_a_task_that_fails_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(name: str, model: Path, how: Measuring, out: Path) -> Found:
        assert (model, how.seeds, out) == (Path("model"), 2, Path("out") / name)
        if name == "b":
            raise UserError("no such column")
        return Found("f1", [0.25, 0.75] if name == "a" else [0.5, float("nan")])

    monkeypatch.setattr(measures, "measure", measure)
    config = load("electra-tiny")
    found = dict(measured(WORK, config, {"discriminator": Path("model")}))
    assert found == {
        "a": Found("f1", [0.25, 0.75]),
        "b": "no such column",
        "c": "f1 is not a number",
    }


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (MemoryError(), "memory ran out; free some and run the same command again"),
        (
            torch.OutOfMemoryError("CUDA out of memory.\nTried to get 2 GiB"),
            "memory ran out (CUDA out of memory. Tried to get 2 GiB); free some and run the same c",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "memory ran out (DefaultCPU"),
    ],
)
def test_a_task_that_runs_out_of_memory_does_not_lose_the_others(
    raised: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(name: str, model: Path, how: Measuring, out: Path) -> Found:
        if name == "b":
            raise raised
        return Found("f1", [0.5])

    monkeypatch.setattr(measures, "measure", measure)
    networks = {"discriminator": Path("model")}
    found = dict(measured(WORK, load("electra-tiny"), networks))
    assert (found["a"], found["c"]) == (Found("f1", [0.5]), Found("f1", [0.5]))
    assert str(found["b"]).startswith(said)


def test_a_mistake_of_ours_is_not_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the cell with its stack trace."""

    def measure(name: str, model: Path, how: Measuring, out: Path) -> Found:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(measures, "measure", measure)
    with pytest.raises(RuntimeError, match="shapes differ"):
        dict(measured(WORK, load("electra-tiny"), {"discriminator": Path("model")}))


def test_the_reason_is_the_last_line() -> None:
    assert last_words(b"step 1\nno space left\n\n") == "no space left"
    assert last_words(b"") == "no reason given"


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (
            OutputError("RUN is another run (a 1; b 2)", "choose another --output-dir"),
            "RUN is another run (a 1; b 2); move out elsewhere, and the encoder is trained again",
        ),
        (
            SpaceError("RUN has 1 GB free, 2 GB are needed", "choose a smaller --save-total-limit"),
            "RUN has 1 GB free, 2 GB are needed; free some space and run the same command again",
        ),
        (
            UserError("no corpus; make one with `electrify prepare TEXT --output-dir DATA`"),
            "no corpus; make one with `electrify prepare TEXT --output-dir DATA`",
        ),
    ],
)
def test_the_advice_of_a_cell_can_be_followed(
    raised: UserError,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cell has no options."""

    def do(work: Work) -> None:
        raise raised

    monkeypatch.setattr(cell_module, "do", do)
    monkeypatch.setattr(workers, "die_with", lambda _: None)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asdict(WORK))))
    assert cell_module.main() == 2
    assert last_words(capsys.readouterr().err.encode()) == says


def test_a_first_stage_counts(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens and seconds are those of both stages, as the FLOPs are."""
    fields: dict[str, Any] = {"max_steps": 3, "warmup_steps": 0, "eval_steps": 0}
    fields |= {"generator_steps": 2, "discriminator_start": "random"}
    config = override(tiny("two-stage-tiny"), fields | {"logging_steps": 1})
    work = replace(WORK, data=str(small_data), folder=str(tmp_path), tasks=(), recipe=dump(config))
    results = []
    train = pretraining.pretrain
    monkeypatch.setattr(
        pretraining, "pretrain", lambda *a, **k: results.append(train(*a, **k)) or results[0]
    )
    do(work)
    found = json.loads((tmp_path / OUTCOME).read_text())
    logs = [tmp_path / "run" / name / "metrics.jsonl" for name in ("generator-stage", ".")]
    lasts = [json.loads(path.read_text().splitlines()[-1]) for path in logs]
    assert [r["step"] for r in lasts] == [2, 3]
    assert found["tokens"] == sum(r["tokens"] for r in lasts)
    assert found["seconds"] == results[0].summary.seconds + lasts[0]["seconds"]


def test_the_outcome_grows_with_each_task(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what tells how far a cell has come."""
    config = override(tiny("bert-tiny"), {"max_steps": 1, "warmup_steps": 0, "eval_steps": 0})
    work = replace(WORK, data=str(small_data), folder=str(tmp_path), recipe=dump(config))
    seen = []

    def measure(name: str, model: Path, how: Measuring, out: Path) -> Found:
        outcome = json.loads((tmp_path / OUTCOME).read_text())
        seen.append((sorted(outcome["scores"]), sorted(outcome["failed"])))
        if name == "a":
            raise UserError("no such column")
        return Found("f1", [0.5])

    monkeypatch.setattr(measures, "measure", measure)
    do(work)
    assert seen == [([], []), ([], ["a"]), (["b"], ["a"])]
    assert json.loads((tmp_path / OUTCOME).read_text())["scores"].keys() == {"b", "c"}


def test_a_corpus_that_changed_since_the_plan_trains_nothing(
    small_data: Path, tmp_path: Path
) -> None:
    work = replace(WORK, data=str(small_data), folder=str(tmp_path), recipe=dump(tiny("bert-tiny")))
    must_be_as_planned(
        replace(work, corpus=Corpus(small_data, "train").manifest.fingerprint), tiny("bert-tiny")
    )
    with pytest.raises(
        UserError, match=r"the corpus .* was changed since the study began; put it "
    ):
        do(replace(work, corpus="another"))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_changed_since_the_plan_starts_nothing(
    small_data: Path, tmp_path: Path
) -> None:
    """Its scores would be taken for those of the weights that were there."""
    start = tmp_path / "start"
    start.mkdir()
    (start / "model.safetensors").write_bytes(b"weights")
    config = override(tiny("bert-tiny"), {"init_discriminator": str(start)})
    out = tmp_path / "cell"
    out.mkdir()
    work = replace(WORK, data=str(small_data), folder=str(out), starts=starts_of(config))
    must_be_as_planned(work, config)
    (start / "model.safetensors").write_bytes(b"others")
    with pytest.raises(UserError, match="start, where it starts, was changed since the study beg"):
        do(replace(work, recipe=dump(config)))
    assert not list(out.iterdir())


def test_a_hub_model_that_changed_since_the_plan_starts_nothing(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which commit is the newest is known once the Hub was asked."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    top = tmp_path / "hub" / "models--me--start"
    one, two = "1" * 40, "2" * 40
    for commit in (one, two):
        (top / "snapshots" / commit).mkdir(parents=True)
        (top / "snapshots" / commit / "config.json").write_text("{}")
    (top / "refs").mkdir()
    (top / "refs" / "main").write_text(one)
    config = override(tiny("bert-tiny"), {"init_discriminator": "me/start"})
    assert starts_of(config) == {"me/start": f"me/start@{one}"}
    out = tmp_path / "cell"
    out.mkdir()
    work = replace(WORK, data=str(small_data), folder=str(out), starts=starts_of(config))
    newest = [one, two]
    monkeypatch.setattr(
        "electrify.train.start.with_shapes",
        lambda *_, **__: (top / "refs" / "main").write_text(newest.pop(0)),
    )
    must_be_as_planned(work, config)
    with pytest.raises(UserError, match="me/start, where it starts, was changed since the study b"):
        do(replace(work, recipe=dump(config)))
    assert not newest
    assert not list(out.iterdir())


def pairs_of(folder: Path, good: str) -> str:
    """A folder with one paradigm of three pairs."""
    folder.mkdir(exist_ok=True)
    pair = {"sentence_good": good, "sentence_bad": "a a"}
    (folder / "p.jsonl").write_text((json.dumps(pair) + "\n") * 3)
    return str(folder)


def test_examples_that_changed_since_the_plan_give_no_score(
    small_data: Path, tmp_path: Path
) -> None:
    """Neither by pairs nor by files of a task; the other tasks go on."""
    model = tagger(small_data, tmp_path)
    tasks = ("blimp", "conll2000:frozen", "conll2000")
    folder = Path(pairs_of(tmp_path / "blimp", "a b"))
    task_data = {t: digest_of(t, str(tmp_path), data="") for t in tasks}
    how = Measuring(str(small_data), str(tmp_path), 1, None, 2, "cpu", task_data)
    assert 0 <= measures.measure("blimp", Path(model), how, tmp_path / "out").median <= 1
    pairs_of(folder, "b a")
    with (tmp_path / "conll2000" / "train.txt").open("a") as file:
        file.write("the D B-NP\n\n")
    work = replace(WORK, folder=str(tmp_path / "out"), tasks=tasks, measuring=how)
    found = dict(measured(work, tiny("bert-tiny"), {KEPT: Path(model)}))
    assert found == {
        task: f"the examples of {task} were changed since the study began; put them back and run "
        "the same command again"
        for task in tasks
    }
    for whole in (how, replace(how, max_eval_samples=None)):
        with pytest.raises(UserError, match="the examples of blimp were changed"):
            measures.measure("blimp", Path(model), whole, tmp_path / "out")


@pytest.mark.slow
def test_a_cell_that_is_not_measured_ends_well(small_data: Path, tmp_path: Path) -> None:
    """A probe of the rate whose training is over before it is told to stop."""
    config = override(tiny("bert-tiny"), {"max_steps": 2, "warmup_steps": 0, "eval_steps": 0})
    work = Work(data=str(small_data), folder=str(tmp_path), recipe=dump(config), parent=os.getpid())
    with (tmp_path / "log.txt").open("wb") as log:
        process = spawn(work, log, None, "cpu")
    assert process.wait(120) == 0, (tmp_path / "log.txt").read_text()
    assert json.loads((tmp_path / OUTCOME).read_text())["scores"] == {}


def test_a_signal_in_the_last_update_ends_a_cell(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is saved, and measured by the next command."""
    config = override(tiny("bert-tiny"), {"max_steps": 2, "warmup_steps": 0, "eval_steps": 0})
    work = replace(WORK, data=str(small_data), folder=str(tmp_path), tasks=(), recipe=dump(config))
    with monkeypatch.context() as patched:
        signalled(patched, step=2, number=signal.SIGTERM)
        patched.setattr(cell_module, "measured", lambda *_: pytest.fail("it was measured"))
        with pytest.raises(Unfinished):
            do(work)
    assert not (tmp_path / OUTCOME).exists()
    do(work)
    assert json.loads((tmp_path / OUTCOME).read_text())["steps"] == 2


def test_planted_words_are_measured_with_the_own_head(small_data: Path, tmp_path: Path) -> None:
    """On weights that never changed, both texts of a pair are as likely: about one half."""
    config = override(tiny("electra-tiny"), {"max_steps": 1, "warmup_steps": 0, "eval_steps": 0})
    result = pretraining.pretrain(small_data, output_dir=tmp_path / "run", config=config)
    how = Measuring(str(small_data), str(tmp_path), 1, max_eval_samples=20)
    found = measures.measure("planted", result.exported[KEPT], how, tmp_path / "out")
    assert found.metric == "accuracy"
    assert 0.1 < found.median < 0.9
    for way in ("frozen", "frozen-all"):
        with pytest.raises(UserError, match=f"leave :{way} out"):
            measures.meant_by(f"planted:{way}", str(tmp_path))
    with pytest.raises(UserError, match="stsb is not made of minimal pairs; leave :mlm out"):
        measures.meant_by("stsb:mlm", str(tmp_path))


def test_planted_words_by_the_language_model(small_data: Path, tmp_path: Path) -> None:
    """Both tasks of a run whose encoder is left twice, each by its own network."""
    fields = {"max_steps": 3, "warmup_steps": 1, "eval_steps": 0, "learning_rate": 3e-3}
    config = override(tiny("corrective-tiny"), fields)
    how = Measuring(str(small_data), str(tmp_path), 1, max_eval_samples=20)
    tasks = ("planted", "planted:mlm")
    out = tmp_path / "cell"
    work = replace(
        WORK,
        data=str(small_data),
        folder=str(out),
        recipe=dump(config),
        tasks=tasks,
        measuring=how,
    )
    out.mkdir()
    do(work)
    found = json.loads((out / "outcome.json").read_text())["scores"]
    for task, network in zip(tasks, ("discriminator", "corrector"), strict=True):
        alone = measures.measure(task, out / "run" / network, how, tmp_path / "out")
        assert found[task]["scores"] == alone.scores


def tagger(small_data: Path, out: Path) -> str:
    """A small encoder that is not trained, and beside it sentences of CoNLL-2000's format."""
    folder = out / "conll2000"
    folder.mkdir()
    sentences = {
        "train.txt": "the D B-NP\ncat N I-NP\nsees V B-VP\n\n" * 40,
        "dev.txt": "a D B-NP\ncat N I-NP\n\nthe D B-NP\ndog N I-NP\nsees V B-VP\n\n",
        "test.txt": "the D B-NP\nfilm N I-NP\nsees V B-VP\n\n",
    }
    for name, text in sentences.items():
        (folder / name).write_text(text)
    recipe = override(tiny("bert-tiny"), {"max_steps": 1, "warmup_steps": 0, "eval_steps": 0})
    result = pretraining.pretrain(small_data, output_dir=out / "run", config=recipe)
    return str(result.exported[KEPT])


def read_records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / SCORES).read_text().splitlines()]


def finetuned(model: str, data_dir: Path, out: Path, settings: FinetuneSettings) -> list[float]:
    """The chunks' scores of two seeds, by the verb."""
    config = FinetuneConfig(
        models=(model,),
        output_dir=str(out),
        task=("conll2000",),
        data_dir=str(data_dir),
        seeds=2,
        settings=settings,
    )
    return [float(r["scores"]["f1"]) for r in finetune(config).records]


def test_a_task_is_evaluated_once(small_data: Path, tmp_path: Path) -> None:
    """What `finetune` shows on the way costs time and changes nothing: the score of a study is that
    of a run which is evaluated often and answers further sets."""
    model = tagger(small_data, tmp_path)
    how = Measuring(str(small_data), str(tmp_path), 2, device="cpu")
    found = measures.measure("conll2000", Path(model), how, tmp_path / "study")
    assert [len(r["curve"]) for r in read_records(tmp_path / "study")] == [1, 1]
    assert found.scores == finetuned(model, tmp_path, tmp_path / "often", FinetuneSettings())
    assert all(len(r["curve"]) > 1 for r in read_records(tmp_path / "often"))


@pytest.mark.parametrize(
    ("way", "layers"), [("frozen", "last"), ("frozen-last4", "last4"), ("frozen-all", "all")]
)
def test_a_frozen_encoder_is_read_as_the_verb_reads_it(
    way: str,
    layers: Literal["last", "last4", "all"],
    small_data: Path,
    tmp_path: Path,
) -> None:
    model = tagger(small_data, tmp_path)
    how = Measuring(str(small_data), str(tmp_path), 2, device="cpu")
    found = measures.measure(f"conll2000:{way}", Path(model), how, tmp_path / "study")
    settings = FinetuneSettings(frozen_encoder=layers, eval_steps=measures.LAST_ONLY, device="cpu")
    assert found.scores == finetuned(model, tmp_path, tmp_path / "verb", settings)
    theirs, ours = (read_records(tmp_path / place) for place in ("verb", "study"))
    # Those of the head: each layer adds some.
    assert [r["parameters"] for r in ours] == [r["parameters"] for r in theirs]
    assert [r["curve"][-1]["loss"] for r in ours] == [r["curve"][-1]["loss"] for r in theirs]
