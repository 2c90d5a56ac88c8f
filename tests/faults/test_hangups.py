"""Every verb under SIGHUP and SIGTERM, in the middle of its work: the right status, one sentence,
nothing half-written."""

import signal
from itertools import product
from pathlib import Path

import pytest
from breaking import SAVED, VARIABLE, begin, core, prepare_words, run

from small import listing, pretrain_words, write_text

AGAIN = "Run the same command again to resume"


def interrupt(
    where: str, words: list[str], folder: Path, *, number: signal.Signals, call: int = 1
) -> tuple[int, str]:
    """Status and sayings of `electrify WORDS`, which sends itself the signal as it calls the
    function `module:name` for the n-th time."""
    fault = f"{number.name.removeprefix('SIG').lower()}@{where}@{call}"
    broken = begin(words, folder, **{VARIABLE: fault})
    status = broken.end()
    assert "Traceback" not in broken.said(), broken.said()
    return status, broken.said()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, small_data: Path) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(pretrain_words(small_data, folder / "run", max_steps=3, max_seq_length=32), folder)
    return folder / "run"


# A verb, where in it the signal comes, at which call; and the verbs that resume.
STAGES = [
    ("prepare", "electrify.text.prepare:join", 1),
    ("finetune", "electrify.finetuning.loop:train", 1),
    ("finetune", "electrify.finetuning.loop:train", 2),
    ("evaluate", "electrify.scoring.blimp:judge", 1),
    ("detect", "electrify.scoring.detect:show_detection", 1),
    ("export", "electrify.exporting.folder:_write", 1),
    ("flops", "electrify.flop_counts:report", 1),
]
CONTINUE = ("prepare", "finetune")


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
    }
    before = listing(finished)
    verb, where, call = stage
    words = [verb, *words[verb]]
    status, said = interrupt(where, words, tmp_path, number=number, call=call)
    again = f". {AGAIN}" if verb in CONTINUE else ""
    assert said.splitlines()[-1] == f"electrify {verb}: stopped by {number.name}{again}"
    assert status == (SAVED if verb in CONTINUE else 128 + number)
    left = {n for n in (listing(out) if out.exists() else ()) if not n.startswith("unfinished/")}
    assert not [name for name in left if name.endswith((".part", ".old")) or "/.tmp" in name], left
    assert not {"model.safetensors", "report.md", "blimp.json", "manifest.json"} & left
    assert listing(finished) == before
    run(words, tmp_path)


@pytest.mark.parametrize("at_its_end", [False, True])
def test_a_demo_stopped_while_it_trains(small_data, tmp_path, monkeypatch, at_its_end):
    """What the demo makes of a pre-training that was stopped."""
    from electrify import cli, demo
    from electrify.tables import DISCRIMINATOR
    from electrify.train.loop import Result

    step = 6 if at_its_end else 3  # the signal came in its last update, or before
    how = {"signalled": at_its_end, "exported": {DISCRIMINATOR: tmp_path}}
    ended = Result(tmp_path, step, at_its_end, {}, 1, 1.0, **how)
    monkeypatch.setattr(demo, "documents", lambda path: [])
    monkeypatch.setattr(demo, "prepare", lambda config: None)
    monkeypatch.setattr(demo, "report", lambda result, folder: "")
    monkeypatch.setattr(demo, "pretrain", lambda *given, **named: ended)
    assert cli.main(["demo", "--output-dir", str(tmp_path / "demo"), "--max-steps", "6"]) == SAVED
