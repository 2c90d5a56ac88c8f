"""A fault at every named point of the code, then the same command again: what an undisturbed run
leaves, to the byte."""

from __future__ import annotations

import contextlib
import json
import signal
from itertools import product
from pathlib import Path

import psutil
import pytest
from breaking import KILLED, SAVED, SHORT, core, run

from electrify import faults
from electrify.oldfiles.run_folder import METRICS
from electrify.train import log
from small import (
    Process,
    electrify,
    listing,
    model_files,
    pretrain_words,
    records,
    same_ending,
    steps_of,
    write_text,
)

SIGNALS = ("term", "int", "usr1", "hup")
# Where in a short run each point is met: the third checkpoint is the first after which an older one
# is removed.
STEPS = {"batch": 0, "update": 11, "validation": 10} | dict.fromkeys(faults.SAVE_POINTS, 21)
KILLS = [
    f"{point}@{STEPS.get(point, 0)}" for point in faults.POINTS["pretrain"] if point != "batch"
]


def no_leftovers(folder: Path) -> None:
    assert not [
        p.name for p in folder.rglob("*") if p.name.startswith(".tmp") or p.name.endswith(".part")
    ]


@pytest.mark.parametrize("fault", core(KILLS, "mid_optimizer@21"))
def test_power_cut(small_data: Path, unbroken: Path, tmp_path: Path, fault: str) -> None:
    """Twice at the same point, where it can be met twice."""
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    for _ in range(2):
        run(words, tmp_path, fault=fault, expect=KILLED)
        if fault.startswith(("after_rename", "during_rotation")):
            break
    run(words, tmp_path)
    same_ending(unbroken, tmp_path / "run", step=24)
    assert len(steps_of(tmp_path / "run")) == 2
    for part in ("discriminator", "generator"):
        assert model_files(tmp_path / "run" / part) == model_files(unbroken / part)
    no_leftovers(tmp_path / "run")


PHASES = (
    "build",
    "update",
    "validation",
    "mid_model",
    "before_rename",
    "during_rotation",
    "export",
)
DAILY = [
    ("update", "usr1"),
    ("before_rename", "int"),
    ("export", "term"),
]


@pytest.mark.parametrize(("point", "action"), core(product(PHASES, SIGNALS), *DAILY))
def test_a_signal_in_every_phase(
    small_data: Path, unbroken: Path, tmp_path: Path, point: str, action: str
) -> None:
    """Status 75, whatever the run is doing (the update that follows is the last), and the same
    command continues."""
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    said = run(words, tmp_path, fault=f"{action}:{point}@{STEPS.get(point, 0)}", expect=SAVED)
    assert "run the same command again to continue" in said.splitlines()[-1]
    saved = {"build": [], "update": [7, 11], "validation": [7, 11], "export": [21, 24]}.get(
        point, [21, 22]
    )
    assert steps_of(tmp_path / "run") == saved
    run(words, tmp_path)
    same_ending(unbroken, tmp_path / "run", step=24)


STAGES = {"recipe": "two-stage-tiny", "generator_steps": 4, "max_steps": 6, "eval_steps": 3}


@pytest.fixture(scope="module")
def both_stages(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two stages that nothing disturbed."""
    folder = tmp_path_factory.mktemp("stages")
    run(pretrain_words(small_data, folder / "run", **STAGES), folder)
    return folder / "run"


@pytest.mark.parametrize("point", core(("validation", "before_rename"), "validation"))
def test_a_signal_at_the_end_of_a_first_stage(
    small_data: Path, both_stages: Path, tmp_path: Path, point: str
) -> None:
    """It is too late to stop the first stage; the second does not begin."""
    words = pretrain_words(small_data, tmp_path / "run", **STAGES)
    said = run(words, tmp_path, fault=f"term:{point}@4", expect=SAVED)
    assert "stopped after step 4 and saved" in said.splitlines()[-1]
    assert not (tmp_path / "run" / "config.yaml").exists()
    run(words, tmp_path)
    same_ending(both_stages, tmp_path / "run", step=6)


def at_work(process: Process, program: str) -> bool:
    """Whether it is among what the process has started."""
    names = []
    for child in process.family()[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            names.append(child.name())
    return program in names


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_signal_in_a_compile(small_data: Path, tmp_path: Path) -> None:
    """It ends at once, for there is nothing to save yet; to the process alone as from a scheduler,
    or to its compilers, too, as from a terminal."""
    fields = SHORT | {"max_steps": 8, "torch_compile": True}
    kernels = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "kernels")}
    words = pretrain_words(small_data, tmp_path / "run", **fields)
    for to_all in (False, True):
        process = Process(words, tmp_path / "stderr.txt", variables=kernels)
        assert process.wait_for(lambda process=process: at_work(process, "cc1plus"))
        for p in process.family() if to_all else process.family()[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                p.send_signal(signal.SIGINT)
        done = process.end()
        assert done.status == SAVED
        assert (
            done.err.splitlines()[-1]
            == "electrify pretrain: stopped by SIGINT; run the same command again to continue"
        )
        assert steps_of(tmp_path / "run") == records(tmp_path / "run") == [], (
            "not an update was done"
        )
    electrify(words, tmp_path, **kernels)
    electrify(pretrain_words(small_data, tmp_path / "whole", **fields), tmp_path, **kernels)
    same_ending(tmp_path / "whole", tmp_path / "run", step=8)


@pytest.mark.slow
def test_a_second_signal_ends_at_once(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """Both while a checkpoint is written: the older ones are whole."""
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    run(words, tmp_path, fault="term:update@16,term:mid_model@16", expect=-signal.SIGTERM)
    assert steps_of(tmp_path / "run") == [7, 14]
    run(words, tmp_path)
    same_ending(unbroken, tmp_path / "run", step=24)


FAILING = ("before_tmp", "mid_model", "mid_optimizer", "before_manifest", "before_rename")


@pytest.mark.parametrize(
    ("point", "error"),
    core(product(FAILING, faults.ERRORS), ("mid_optimizer", "enospc")),
)
def test_a_save_that_fails(
    small_data: Path, unbroken: Path, tmp_path: Path, point: str, error: str
) -> None:
    """Tried twice, written down, and the run goes on to its end without that checkpoint."""
    whole = tmp_path / "run"
    said = run(pretrain_words(small_data, whole, **SHORT), tmp_path, fault=f"{error}:{point}@14")
    assert "trying once more" in said
    assert "the run goes on, and tries again at its next save" in said
    assert [
        r["step"]
        for r in log.read(whole / METRICS)
        if "could not be written" in r.get("warning", "")
    ] == [14]
    same_ending(unbroken, whole, step=24)
    no_leftovers(whole)


@pytest.mark.slow
def test_a_last_save_that_fails(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """The run ends with the sentence, keeps the earlier checkpoints, and continues when there is
    room."""
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    said = run(words, tmp_path, fault="enospc:mid_optimizer@24", expect=2)
    assert "free some space and run the same command again" in said.splitlines()[-1]
    assert steps_of(tmp_path / "run") == [14, 21]
    run(words, tmp_path)
    same_ending(unbroken, tmp_path / "run", step=24)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "corpus.txt", size=60_000)


@pytest.fixture(scope="module")
def data(text: Path) -> Path:
    """Prepared without disturbance."""
    run(prepare_words(text, text.parent / "data"), text.parent)
    return text.parent / "data"


def prepare_words(text: Path, folder: Path) -> list[str]:
    return [
        "prepare",
        str(text),
        "--output-dir",
        str(folder),
        "--vocab-size",
        "300",
        "--workers",
        "1",
        "--valid-fraction",
        "0.05",
    ]


STOPS = [
    ("collected", "term"),
    ("encoded", "kill"),
    ("encoded", "int"),
    ("joined", "usr1"),
    ("before_data_manifest", "kill"),
]


@pytest.mark.parametrize(
    ("point", "action"), core(product(faults.POINTS["prepare"], ("kill", *SIGNALS)), *STOPS)
)
def test_prepare(text: Path, data: Path, tmp_path: Path, point: str, action: str) -> None:
    out = tmp_path / "data"
    said = run(
        prepare_words(text, out),
        tmp_path,
        fault=f"{action}:{point}",
        expect=KILLED if action == "kill" else SAVED,
    )
    assert not (out / "manifest.json").exists()
    assert action == "kill" or "run the same command again to continue" in said.splitlines()[-1]
    run(prepare_words(text, out), tmp_path)
    hashes = [
        {name: h for name, h in listing(folder).items() if name != "prepare.log.json"}
        for folder in (out, data)
    ]
    assert hashes[0] == hashes[1]
    reused = json.loads((out / "prepare.log.json").read_text())["parts_reused"]
    assert (reused > 0) == (point in ("encoded", "joined", "before_data_manifest"))
    no_leftovers(out)


def test_nobody_can_ask_for_nothing(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grammar of a wish, and that every point of the table stands in the code (KILLS would end
    with status 0)."""
    assert faults.asked("update", 3) == []
    monkeypatch.setenv(faults.VARIABLE, "nan:batch@3,before_rename,eio:batch@5%1")
    assert [faults.asked("batch", n) for n in (2, 3, 5)] == [[], ["nan"], []]
    assert faults.asked("before_rename", 77) == ["kill"]
    monkeypatch.setenv("RANK", "1")
    assert faults.asked("batch", 5) == ["eio"]
    with pytest.raises(OSError, match="Input/output error"):
        faults.at("batch", 5)
