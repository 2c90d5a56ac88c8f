"""A run that is stopped or killed in the middle of its work, then the same command again: what an
undisturbed run leaves, to the byte."""

import contextlib
import signal
from itertools import product
from pathlib import Path

import psutil
import pytest
from breaking import KILLED, SAVED, SHORT, UPDATE, core, run

from small import Process, electrify, model_files, pretrain_words, records, same_ending, steps_of

SIGNALS = ("term", "int", "usr1", "hup")
# Where a run of SHORT is met, and the checkpoints that it then leaves.
PHASES = {
    "electrify.train.run:begin@1": [],
    f"{UPDATE}@11": [7, 11],
    "electrify.train.loop:Run.evaluate@1": [7, 10],
    "electrify.train.checkpoint:save@3": [14, 21],
    "electrify.exporting.folder:_write@1": [21, 24],
}


@pytest.fixture(scope="module")
def unbroken(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("unbroken")
    run(pretrain_words(small_data, folder / "run", **SHORT), folder)
    return folder / "run"


@pytest.mark.parametrize("point", core(PHASES, f"{UPDATE}@11"))
def test_power_cut(small_data: Path, unbroken: Path, tmp_path: Path, point: str) -> None:
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    run(words, tmp_path, fault=f"kill@{point}", expect=KILLED)
    run(words, tmp_path)
    same_ending(unbroken, tmp_path / "run", step=24)
    assert len(steps_of(tmp_path / "run")) == 2
    for part in ("discriminator", "generator"):
        assert model_files(tmp_path / "run" / part) == model_files(unbroken / part)
    names = [p.name for p in (tmp_path / "run").rglob("*")]
    assert not [name for name in names if name.startswith(".tmp") or name.endswith(".part")]


DAILY = [
    (f"{UPDATE}@11", "hup"),
    ("electrify.train.checkpoint:save@3", "int"),
    ("electrify.exporting.folder:_write@1", "term"),
]


@pytest.mark.parametrize(("point", "action"), core(product(PHASES, SIGNALS), *DAILY))
def test_a_signal_in_every_phase(small_data, unbroken, tmp_path, point, action):
    """Status 75, whatever the run is doing, and the same command continues."""
    words = pretrain_words(small_data, tmp_path / "run", **SHORT)
    said = run(words, tmp_path, fault=f"{action}@{point}", expect=SAVED)
    assert "he same command" in said.splitlines()[-1]
    # A signal in a validation or a save is obeyed after the update that follows.
    later = {
        "electrify.train.loop:Run.evaluate@1": [7, 11],
        "electrify.train.checkpoint:save@3": [21, 22],
    }
    assert steps_of(tmp_path / "run") == later.get(point, PHASES[point])
    run(words, tmp_path)
    same_ending(unbroken, tmp_path / "run", step=24)


STAGES = {"recipe": "two-stage-tiny", "generator_steps": 4, "max_steps": 6, "eval_steps": 3}


@pytest.fixture(scope="module")
def both_stages(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two stages that nothing disturbed."""
    folder = tmp_path_factory.mktemp("stages")
    run(pretrain_words(small_data, folder / "run", **STAGES), folder)
    return folder / "run"


@pytest.mark.slow
def test_a_signal_at_the_end_of_a_first_stage(small_data, both_stages, tmp_path):
    """It is too late to stop the first stage; the second does not begin."""
    words = pretrain_words(small_data, tmp_path / "run", **STAGES)
    said = run(words, tmp_path, fault="term@electrify.train.loop:Run.evaluate@2", expect=SAVED)
    assert "stopped and saved at step 4" in said.splitlines()[-1]
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
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
        assert "pretrain: stopped by SIGINT. Run the same command" in done.err.splitlines()[-1]
        assert steps_of(tmp_path / "run") == records(tmp_path / "run") == [], "not an update"
    electrify(words, tmp_path, **kernels)
    electrify(pretrain_words(small_data, tmp_path / "whole", **fields), tmp_path, **kernels)
    same_ending(tmp_path / "whole", tmp_path / "run", step=8)
