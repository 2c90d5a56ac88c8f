"""Every verb under SIGHUP and SIGTERM, in the middle of its work: the right status, one sentence,
nothing half-written."""

import signal
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from breaking import SAVED, SERVER, Broken, _main, at_call, core, prepare_words, run

from small import listing, pretrain_words, write_text

AGAIN = "Run the same command again to resume"


def _interrupted(where: str, call: int, number: int, words: list[str], errors: str) -> None:
    """`electrify WORDS`, which sends itself the signal as it calls the function `module:name` for
    the n-th time."""
    at_call(pytest.MonkeyPatch(), where, call, signal.Signals(number))
    _main(words, errors, {})


def interrupt(
    where: str, words: list[str], folder: Path, *, number: signal.Signals, call: int = 1
) -> tuple[int, str]:
    """Status and sayings of such a process."""
    errors = folder / "said.txt"
    process = SERVER.Process(
        target=_interrupted, args=(where, call, number, words, str(errors)), daemon=False
    )
    process.start()
    broken = Broken(process, errors)
    status = broken.end()
    assert "Traceback" not in broken.said(), broken.said()
    return status, broken.said()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, small_data: Path) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(pretrain_words(small_data, folder / "run", max_steps=3, max_seq_length=32), folder)
    return folder / "run"


@dataclass(frozen=True)
class Stage:
    """A verb, where in it the signal comes, and whether the same command continues."""

    verb: str
    where: str
    call: int = 1
    continues: bool = False


STAGES = [
    Stage("prepare", "electrify.text.prepare:join", continues=True),
    Stage("finetune", "electrify.finetuning.loop:train", continues=True),
    Stage("finetune", "electrify.finetuning.loop:train", call=2, continues=True),
    Stage("evaluate", "electrify.scoring.blimp:judge"),
    Stage("detect", "electrify.scoring.detect:show_detection"),
    Stage("export", "electrify.exporting.folder:_write"),
    Stage("flops", "electrify.flop_counts:report"),
]


NUMBERS = [signal.SIGHUP, signal.SIGTERM]
DAILY = [(STAGES[0], signal.SIGTERM), (STAGES[5], signal.SIGTERM)]


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "number"), core(product(STAGES, NUMBERS), *DAILY), ids=str)
def test_every_verb(small_data, finished, tmp_path, stage, number):
    write_text(tmp_path / "a.txt", size=5000)
    (tmp_path / "a.csv").write_text("text,label\n" + "one,0\ntwo,1\n" * 4, encoding="utf-8")
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "one.jsonl").write_text(
        '{"sentence_good": "the one", "sentence_bad": "one the"}\n', encoding="utf-8"
    )
    files = ["--train-file", str(tmp_path / "a.csv"), "--validation-file", str(tmp_path / "a.csv")]
    quick = ["--seeds", "2", "--num-train-epochs", "1", "--max-seq-length", "16", "--device", "cpu"]
    model, out = str(finished / "discriminator"), tmp_path / "out"
    words = {
        "prepare": prepare_words(tmp_path / "a.txt", out)[1:],
        "finetune": [model, *files, *quick, "--output-dir", str(out)],
        "evaluate": [model, "--data-dir", str(tmp_path / "pairs"), "--output-dir", str(out)],
        "detect": [model, "the one"],
        "export": [str(finished), "--output-dir", str(out)],
        "flops": [],
    }[stage.verb]
    before = listing(finished)
    status, said = interrupt(
        stage.where, [stage.verb, *words], tmp_path, number=number, call=stage.call
    )
    last = said.splitlines()[-1]
    assert (
        last == f"electrify {stage.verb}: stopped by {number.name}" + f". {AGAIN}" * stage.continues
    )
    assert status == (SAVED if stage.continues else 128 + number)
    left = (
        {name for name in listing(out) if not name.startswith("unfinished/")}
        if out.exists()
        else set()
    )
    assert not [name for name in left if name.endswith((".part", ".old")) or "/.tmp" in name], left
    assert not {"model.safetensors", "report.md", "blimp.json", "manifest.json"} & left
    assert listing(finished) == before
    run([stage.verb, *words], tmp_path)


@pytest.mark.parametrize("at_its_end", [False, True])
def test_a_demo_stopped_while_it_trains(small_data, tmp_path, monkeypatch, at_its_end):
    """What the demo makes of a pre-training that was stopped."""
    from electrify import cli, demo
    from electrify.tables import DISCRIMINATOR
    from electrify.train.loop import Summary
    from electrify.train.run import Result

    late = Summary(6, True, {}, 1, 1.0, signalled=True)  # the signal came in its last update
    summary = late if at_its_end else Summary(3, False, {}, 1, 1.0)
    stopped = Result(tmp_path, summary, {DISCRIMINATOR: tmp_path})
    monkeypatch.setattr(demo, "documents", lambda path: [])
    monkeypatch.setattr(demo, "prepare", lambda config: None)
    monkeypatch.setattr(demo, "report", lambda result, folder: "")
    monkeypatch.setattr(demo, "pretrain", lambda *given, **named: stopped)
    assert cli.main(["demo", "--output-dir", str(tmp_path / "demo"), "--max-steps", "6"]) == SAVED
