"""What belongs to a run is deleted, moved, replaced or cut while it trains: noticed at the next
save, with a sentence, and nothing is lost by it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from breaking import SHORT, Broken, begin, core, run

from electrify import faults
from small import listing, model_files, pretrain_words, same_ending, steps_of


def disturbed(
    words: list[str],
    folder: Path,
    disturb: Callable[[], object],
    *,
    fault: str = "",
    expect: int = 0,
) -> str:
    """Runs `electrify WORDS`, disturbs it at update 10 (saves are at 7, 14, 21 and 24), and returns
    what it said."""
    process: Broken = begin(
        words, folder, **{faults.VARIABLE: ",".join(filter(None, ("stop:update@10", fault)))}
    )
    process.wait_for("T")
    disturb()
    os.kill(process.pid, signal.SIGCONT)
    status = process.end()
    assert status == expect, process.said()
    assert "Traceback" not in process.said(), process.said()
    return process.said()


LOST: dict[str, Callable[[Path], object]] = {
    "config.yaml": lambda r: (r / "config.yaml").unlink(),
    "run.json": lambda r: (r / "run.json").unlink(),
    "tokenizer": lambda r: shutil.rmtree(r / "tokenizer"),
    "metrics.jsonl": lambda r: (r / "metrics.jsonl").unlink(),
}
CHANGED: dict[str, Callable[[Path], object]] = {
    "config.yaml": lambda r: (r / "config.yaml").write_text("mine\n"),
    "run.json": lambda r: (r / "run.json").write_text("mine\n"),
    "tokenizer/tokenizer.json": lambda r: (r / "tokenizer" / "tokenizer.json").write_text("mine\n"),
    "tokenizer": lambda r: (shutil.rmtree(r / "tokenizer"), (r / "tokenizer").write_text("mine\n")),
    "metrics.jsonl": lambda r: (
        (r / "metrics.jsonl").unlink(),
        (r / "metrics.jsonl").write_text("mine\n"),
    ),
}


@pytest.mark.parametrize("name", core(LOST, "metrics.jsonl"))
def test_a_file_at_the_head_is_deleted(
    small_data: Path, unbroken: Path, tmp_path: Path, name: str
) -> None:
    """Also behind a kill: what the save after it left is a run like any other."""
    words, folder = pretrain_words(small_data, tmp_path / "run", **SHORT), tmp_path / "run"
    said = disturbed(
        words, tmp_path, lambda: LOST[name](folder), fault="kill:update@18", expect=-signal.SIGKILL
    )
    assert f"{name}" in said
    assert "was lost while the run trained; it is written again" in said
    run(words, tmp_path)
    same_ending(unbroken, folder, step=24)
    assert model_files(folder / "discriminator") == model_files(unbroken / "discriminator")


@pytest.mark.parametrize("name", core(CHANGED, "tokenizer"))
def test_a_file_at_the_head_is_replaced(
    small_data: Path, unbroken: Path, tmp_path: Path, name: str
) -> None:
    """What somebody put there is moved aside and kept."""
    words, folder = pretrain_words(small_data, tmp_path / "run", **SHORT), tmp_path / "run"
    disturbed(words, tmp_path, lambda: CHANGED[name](folder))
    same_ending(unbroken, folder, step=24)
    assert (folder / f"{name}.changed").read_text() == "mine\n"
    assert model_files(folder / "discriminator") == model_files(unbroken / "discriminator")


def test_a_tokenizer_is_replaced_by_a_link(
    small_data: Path, unbroken: Path, tmp_path: Path
) -> None:
    """Nothing is written through it, whatever it leads to; the run's own folder may be a link, for
    that is what the user named."""
    (tmp_path / "real").mkdir()
    folder, outside = tmp_path / "run", tmp_path / "outside"
    folder.symlink_to(tmp_path / "real")
    before: dict[str, str] = {}

    def disturb() -> None:
        shutil.copytree(folder / "tokenizer", outside)
        (outside / "tokenizer.json").write_text("mine")
        before.update(listing(outside))
        shutil.rmtree(folder / "tokenizer")
        (folder / "tokenizer").symlink_to(outside)
        (folder / "config.yaml").write_text("mine")

    disturbed(pretrain_words(small_data, folder, **SHORT), tmp_path, disturb)
    assert folder.is_symlink()
    assert listing(outside) == before
    assert (folder / "tokenizer.changed").is_symlink()
    assert (folder / "config.yaml.changed").read_text() == "mine"
    same_ending(unbroken, folder, step=24)
    assert model_files(folder / "discriminator") == model_files(unbroken / "discriminator")


def test_the_folder_is_deleted(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """It is made again, locked again, and continues behind a kill."""
    words, folder = pretrain_words(small_data, tmp_path / "run", **SHORT), tmp_path / "run"
    process = begin(words, tmp_path, **{faults.VARIABLE: "stop:update@10,stop:update@16"})
    process.wait_for("T")
    shutil.rmtree(folder)
    os.kill(process.pid, signal.SIGCONT)
    while not steps_of(folder):
        assert process.process.is_alive(), process.said()
    process.wait_for("T")
    other = tmp_path / "other"
    other.mkdir()
    assert f"is in use by process {process.pid}" in run(words, other, expect=2)
    process.kill_after(0)
    said = process.said()
    assert (
        f"{folder} was deleted while the run trained, and its earlier checkpoints with it: it is "
        "made again" in said
    )
    assert "continuing after step 14" in run(words, tmp_path)
    same_ending(unbroken, folder, step=24)
    assert model_files(folder / "generator") == model_files(unbroken / "generator")


@pytest.mark.slow
def test_the_folder_is_moved(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    words, folder, there = (
        pretrain_words(small_data, tmp_path / "run", **SHORT),
        tmp_path / "run",
        tmp_path / "there",
    )
    said = disturbed(words, tmp_path, lambda: folder.rename(there), expect=2)
    assert (
        f"{folder} was moved to {there} while the run trained, which is saved there; move it back"
        in said.splitlines()[-1]
    )
    assert (steps_of(there), folder.exists()) == ([7, 14], False)
    there.rename(folder)
    run(words, tmp_path)
    same_ending(unbroken, folder, step=24)


@pytest.mark.slow
def test_the_folder_is_replaced(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """Nothing is written into what somebody else has put there."""
    words, folder, beside = (
        pretrain_words(small_data, tmp_path / "run", **SHORT),
        tmp_path / "run",
        tmp_path / "run-saved",
    )

    def replace() -> None:
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "thesis.tex").write_text("years of work")

    said = disturbed(words, tmp_path, replace, expect=2)
    assert (
        f"{folder} was replaced by another folder while the run trained, which is saved in {beside}"
        in said.splitlines()[-1]
    )
    assert [p.name for p in folder.iterdir()] == ["thesis.tex"]
    shutil.rmtree(folder)
    beside.rename(folder)
    run(words, tmp_path)
    assert steps_of(folder)[-1] == 24
    assert model_files(folder / "discriminator") == model_files(unbroken / "discriminator")


@pytest.mark.slow
def test_a_header_lost_between_two_starts(small_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """Written again at the start, not missed after all training."""
    words, folder = pretrain_words(small_data, tmp_path / "run", **SHORT), tmp_path / "run"
    run(words, tmp_path, fault="kill:update@10", expect=-signal.SIGKILL)
    (folder / "run.json").unlink()
    (folder / "tokenizer" / "tokenizer.json").write_text("{}")
    assert f"{folder} had lost run.json, tokenizer" in run(words, tmp_path)
    same_ending(unbroken, folder, step=24)
    assert model_files(folder / "discriminator") == model_files(unbroken / "discriminator")


# ------------------------------------------------------------------ the data


@pytest.fixture
def own_data(small_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_data, tmp_path / "data"))


def shard(data: Path, split: str) -> Path:
    return data / f"tokens-{split}-00000.bin"


@pytest.mark.parametrize("split", core(["train", "valid"]))
def test_a_shard_is_cut(own_data: Path, unbroken: Path, tmp_path: Path, split: str) -> None:
    """Every read of a page that is gone would be a SIGBUS. With the data back the run continues."""
    words, path = pretrain_words(own_data, tmp_path / "run", **SHORT), shard(own_data, split)
    whole = path.read_bytes()
    said = disturbed(words, tmp_path, lambda: os.truncate(path, 0), expect=2)
    last = said.splitlines()[-1]
    assert (
        f"{path} has 0 bytes where the manifest says {len(whole)}: it was cut while it was read"
        in last
    )
    assert "run the same command again to continue" in last
    assert steps_of(tmp_path / "run") == [7]
    path.write_bytes(whole)
    run(words, tmp_path)
    same_ending(unbroken, tmp_path / "run", step=24)


@pytest.mark.slow
def test_a_shard_is_changed(own_data: Path, unbroken: Path, tmp_path: Path) -> None:
    """Bytes of it, in place: nothing that may have been trained on them is saved."""
    words, path = pretrain_words(own_data, tmp_path / "run", **SHORT), shard(own_data, "train")
    whole = path.read_bytes()

    def change() -> None:
        with path.open("r+b") as f:
            f.write(bytes(100))

    said = disturbed(words, tmp_path, change, expect=2)
    assert f"{path} was changed while it was read" in said.splitlines()[-1]
    assert steps_of(tmp_path / "run") == [7]
    path.write_bytes(whole)
    run(words, tmp_path)
    same_ending(unbroken, tmp_path / "run", step=24)


@pytest.mark.parametrize("how", core(["deleted", "replaced", "touched", "copied"], "deleted"))
def test_a_shard_that_stays_open(own_data: Path, unbroken: Path, tmp_path: Path, how: str) -> None:
    """Another file has its name, or none: the run goes on with the one that it has, and says so
    once; the same bytes do not matter."""
    words, path = pretrain_words(own_data, tmp_path / "run", **SHORT), shard(own_data, "train")
    new = tmp_path / "new"

    def disturb() -> None:
        match how:
            case "deleted":
                path.unlink()
            case "replaced":
                new.write_bytes(bytes(10))
                new.replace(path)
            case "copied":
                shutil.copy(path, new)
                new.replace(path)
            case _:
                path.touch()

    said = disturbed(words, tmp_path, disturb)
    says = {"deleted": "cannot be found any more", "replaced": "was replaced by another file"}
    assert said.count("it is still open here, so the run goes on") == (how in says)
    assert says.get(how, "") in said
    same_ending(unbroken, tmp_path / "run", step=24)
