"""The benchmarks in their shortest form: that they run, and what they print. No figure of theirs is
asserted."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from electrify.cores import cores
from electrify.demo import draw_run
from electrify.errors import UserError
from electrify.studies.study import Result, write_results

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(tmp_path: Path, script: str, *words: str) -> str:
    """Standard output of a benchmark with --quick."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, str(BENCHMARKS / script), "--quick", *words]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def rows(out: str) -> list[list[str]]:
    """The cells of the Markdown tables, headers and rules left out."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in out.splitlines()
        if line.startswith("|")
    ]
    return [
        line
        for i, line in enumerate(lines)
        if not set(line[0]) <= {"-"} and (i + 1 == len(lines) or not set(lines[i + 1][0]) <= {"-"})
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_round_begins_too_late(tmp_path: Path) -> None:
    """The first is always run, and what there is is reported."""
    run(tmp_path, "step.py", "--minutes", "0", "--json", "figures.json")
    (result,) = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert [len(times) for times in result["seconds"].values()] == [1, 1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_step(tmp_path: Path) -> None:
    out = run(tmp_path, "step.py", "--json", "step.json")
    assert [row[0] for row in rows(out)] == ["electrify", "transformers"]
    (result,) = json.loads((tmp_path / "step.json").read_text())["results"]
    assert {len(times) for times in result["seconds"].values()} == {2}
    assert result["flops"] > 0
    assert all(memory > 1e8 for memory in result["peak_memory_bytes"].values())


@pytest.mark.slow
@pytest.mark.parametrize("side", ["electrify", "transformers"])
@pytest.mark.parametrize("size", ["tiny", "modernbert-tiny", "deberta-tiny"])
def test_an_update_of_a_side(size: str, side: str, tmp_path: Path) -> None:
    """Each architecture has its composition of two models of transformers."""
    command = [sys.executable, str(BENCHMARKS / "sides.py"), side, size]
    done = subprocess.run(
        [*command, "2", "16", "300", "0", "cpu"],
        input="1\n2\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *seconds, memory = map(float, done.stdout.split())
    assert len(seconds) == 2
    assert min(seconds) > 0
    assert memory > 1e8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_shapes(tmp_path: Path) -> None:
    out = run(tmp_path, "shapes.py", "--json", "shapes.json", "--picture", "shapes.png")
    assert [row[:2] for row in rows(out)] == [["batch", "1"], ["batch", "2"], ["model", "quick"]]
    assert len(json.loads((tmp_path / "shapes.json").read_text())["shapes"]) == 3
    assert (tmp_path / "shapes.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_scaling(tmp_path: Path) -> None:
    out = run(tmp_path, "scaling.py", "--device", "cpu")
    assert [row[0] for row in rows(out)] == [
        "1, the same batch",
        "2, the same batch",
        "2, a batch a process",
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_startup(tmp_path: Path) -> None:
    out = run(tmp_path, "startup.py")
    assert "electrify pretrain --help" in {row[0] for row in rows(out)}
    assert re.search(r"^slowest: .*, \d+\.\d\d s$", out, re.M)


@pytest.mark.slow
@pytest.mark.timeout(500)  # six processes load torch, one after the other
def test_busy(tmp_path: Path) -> None:
    out = run(tmp_path, "busy.py", "--json", "busy.json")
    sides = ("one thread", "default", "as it comes")
    assert [row[0] for row in rows(out)] == [
        f"{work}, 1 busy: {side}" for work in ("pretrain", "finetune") for side in sides
    ]
    for found in json.loads((tmp_path / "busy.json").read_text()):
        assert found["threads"]["one thread"] == 1
        assert found["threads"]["as it comes"] == cores()
        assert all(rate > 0 for rates in found["tokens_per_s"].values() for rate in rates)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    find_spec("triton") is None or which("g++") is None,
    reason="g++ or the package triton is not installed (`make test-slow` installs triton)",
)
def test_launches_and_bytes_of_an_update(tmp_path: Path) -> None:
    """electra-small with two layers, compiled for a GPU by torch 2.13. Higher numbers are slower
    updates; a change that lowers them also lowers these."""
    script = str(BENCHMARKS / "gpu_kernels.py")
    command = [sys.executable, script, "small", "128x128", "--layers", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    parts = ("forward", "backward", "outside")
    assert [found[part]["launches"] for part in parts] == [59, 142, 177]
    gigabytes = [found[part]["bytes"] / 1e9 for part in parts]
    assert gigabytes == pytest.approx([1.95, 2.76, 0.26], abs=0.005)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_loader(tmp_path: Path) -> None:
    run(tmp_path, "loader.py", "--json", "loader.json")
    found = json.loads((tmp_path / "loader.json").read_text())
    assert found["tables"]
    assert all(batch["tokens_per_s"] > 0 for batch in found["batches"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tiny_documents(tmp_path: Path) -> None:
    script = Path(__file__).parent.parent / "benchmarks" / "prepare.py"
    words = [
        "--tiny-documents",
        "300",
        "--output-dir",
        str(tmp_path / "out"),
        "--json",
        str(tmp_path / "tiny.json"),
    ]
    subprocess.run([sys.executable, str(script), *words], check=True, stdout=subprocess.DEVNULL)
    found = json.loads((tmp_path / "tiny.json").read_text())
    assert found["documents"] == 300
    assert found["ratio"] == pytest.approx(found["prepare_cpu_s"] / found["library_cpu_s"])


@pytest.mark.slow
def test_where_the_time_goes(tmp_path: Path) -> None:
    out = run(tmp_path, "step_profile.py", "--device", "cpu")
    assert "ms an update" in out
    assert "aten::" in out


def test_what_travels_to_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trees of commits, without what was measured with them."""
    if not (BENCHMARKS.parent / ".git").exists():
        pytest.skip("this is no checkout of git")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_visit  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(gpu_visit, "prepare_site", lambda folder, needs: None)
    gpu_visit.prepare(tmp_path / "carried", ["HEAD"])
    with tarfile.open(tmp_path / "carried" / "HEAD.tar.xz") as tar:
        names = tar.getnames()
        assert re.fullmatch("[0-9a-f]{40}", tar.pax_headers["comment"])
    assert {"src/electrify/__init__.py", "benchmarks/sides.py", "pyproject.toml"} < set(names)
    assert not any(name.startswith("benchmarks/studies/S") for name in names)


def test_a_corpus_in_one_file(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gpu_pack import pack, unpack  # pyright: ignore[reportMissingImports]

    figures = pack(small_data, tmp_path / "data.tar")
    assert unpack(tmp_path / "data.tar", tmp_path / "again") == figures["tokens"]
    files = (p for p in small_data.rglob("*.*") if p.name[0] != "." and "log" not in p.name)
    names = {p.relative_to(small_data) for p in files}
    assert len(names) >= 8
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (small_data / name).read_bytes(), name

    changed = shutil.copytree(small_data, tmp_path / "changed")
    shard = changed / "tokens-valid-00000.bin"
    shard.write_bytes(shard.read_bytes()[:-2] + b"\5\0")
    pack(changed, tmp_path / "changed.tar")
    with pytest.raises(SystemExit, match=r"changed.tar: tokens-valid-00000.bin differs"):
        unpack(tmp_path / "changed.tar", tmp_path / "refused")


@pytest.mark.parametrize("half", [False, True])
def test_a_model_in_parts(half: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_pack  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(gpu_pack, "PART_BYTES", 9000)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    weights = np.random.default_rng(0).normal(0, 0.02, (50, 100)).astype(np.float32)
    save_file({"layer.weight": weights}, model / "model.safetensors", {"format": "pt"})
    parts = gpu_pack.split(model, tmp_path / "model", half=half)
    assert [path.name for path in parts[:2]] == ["model.00", "model.01"]
    assert all(path.stat().st_size <= 9000 for path in parts)
    gpu_pack.join(tmp_path / "model", tmp_path / "again")
    assert {path.name for path in (tmp_path / "again").iterdir()} == {
        p.name for p in model.iterdir()
    }
    if half:
        with safe_open(tmp_path / "again" / "model.safetensors", "np") as found:
            assert found.metadata() == {"format": "pt"}
            again = found.get_tensor("layer.weight")
        assert again.dtype == np.float32
        assert again == pytest.approx(weights, rel=5e-4, abs=1e-7)
    else:
        written = (tmp_path / "again" / "model.safetensors").read_bytes()
        assert written == (model / "model.safetensors").read_bytes()


@pytest.fixture
def carried(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This working tree as the side HEAD, a side that fails, and a corpus."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gpu_pack import pack  # pyright: ignore[reportMissingImports]

    root, folder = BENCHMARKS.parent, tmp_path / "carried"
    folder.mkdir()
    with tarfile.open(folder / "HEAD.tar.xz", "w:xz", preset=0) as tar:
        for path in (
            root / "src",
            root / "tests",
            root / "pyproject.toml",
            *root.glob("bench*/*.py"),
        ):
            tar.add(path, path.relative_to(root))
    (tmp_path / "sides.py").write_text("raise RuntimeError('no such operator')")
    with tarfile.open(folder / "broken.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "sides.py", "benchmarks/sides.py")
    pack(small_data, folder / "data.tar")
    return folder


def visit(number: int, carried: Path, *words: str) -> subprocess.Popen[bytes]:
    """Begins a visit in its small form, in a group of its own processes."""
    command = [sys.executable, str(BENCHMARKS / "gpu_visit.py"), str(number), "--dry-run"]
    command += ["--carried", str(carried), "--out", str(carried / "out"), "--sides", "HEAD"]
    command += ["--limit", "3000", *words]  # a busy machine is no failure
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def lines_of(number: int, carried: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of a visit, by their kind."""
    found = defaultdict(list)
    path = carried / "out" / f"visit-{number}.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        found[record["kind"]].append(record)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", [1, 3, 4])
def test_a_visit_that_times_updates(number: int, carried: Path) -> None:
    """A side that fails is a line with its reason."""
    assert visit(number, carried, "--sides", "broken,HEAD").wait() == 0
    found = lines_of(number, carried)
    sides = ["HEAD", "transformers compiled"][: 1 if number == 4 else 2]
    assert found["ceilings"][0]["copy_gb_s"] > 0
    assert [line["side"] for line in found["compiled"]] == sides
    (failed,) = found["failed"]
    assert (failed["side"], failed["reason"]) == ("broken", "RuntimeError: no such operator")
    assert [line["side"] for line in found["reading"]] == sides + sides[::-1]
    assert len(found["tests"]) == (number == 1)
    for side, line in zip(sides, found["summary"], strict=True):
        walls = [r["wall_ms"] for r in found["reading"] if r["side"] == side]
        assert line["wall_ms"] == pytest.approx(statistics.mean(walls))
        assert line["tokens_per_s"] == pytest.approx(4 * 32 / line["wall_ms"] * 1e3)
        assert line["kernel_ms"] > 0
        assert line["host_ms"] > 0
        assert line["cudagraph_skips"] == 0
    assert found["summary"][0]["ratio"] == 1
    assert found["cache"][0]["saved"]
    if number == 4:  # the next visit takes it
        shutil.move(carried / "out" / "cache.00", carried)
        assert visit(number, carried).wait() == 0
        hits = [line["cache_hits"] for line in lines_of(number, carried)["compiled"]]
        assert hits[0] == 0 < hits[1]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("number", "runs"),
    [
        (2, ["electra-small"]),
        (5, ["electra-small", "bert-small"]),
        (6, ["corrective-small", "bert-modernbert-small"]),
    ],
)
def test_a_visit_that_trains(number: int, runs: list[str], carried: Path, tmp_path: Path) -> None:
    """Its models come back in parts, and the parts make a model that the verbs read."""
    from gpu_pack import join  # pyright: ignore[reportMissingImports]

    assert visit(number, carried).wait() == 0
    found = lines_of(number, carried)
    assert [line["run"] for line in found["model"]] == runs
    assert {line["status"] for line in found["trained"]} == {0}
    assert {line["run"] for line in found["valid"]} == set(runs)
    flops = {line["run"]: line["flops"] for line in found["train"]}
    if number == 5:
        assert flops["bert-small"] == pytest.approx(flops["electra-small"], rel=0.05)
    join(carried / "out" / runs[0], tmp_path / "model")
    words = ["-m", "electrify", "detect", str(tmp_path / "model"), "kada poli", "--json"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    assert all(0 < token["probability"] < 1 for token in json.loads(done.stdout)["tokens"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_visit_that_is_killed_leaves_its_lines(carried: Path) -> None:
    begun = visit(2, carried)
    while "train" not in lines_of(2, carried):
        assert begun.poll() is None
        time.sleep(0.1)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    found = lines_of(2, carried)
    assert found["ceilings"]
    assert found["train"][0]["tokens"] > 0
    assert not found["end"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_that_is_too_long_is_saved(carried: Path, tmp_path: Path) -> None:
    import gpu_visit  # pyright: ignore[reportMissingImports]
    from gpu_pack import unpack  # pyright: ignore[reportMissingImports]

    out, work = carried / "out", tmp_path / "work"
    out.mkdir()
    until = time.monotonic() + 500
    v = gpu_visit.Visit(2, out, work, carried, ["HEAD"], until, dry=True, cache=work / "cache")
    unpack(carried / "data.tar", work / "data")
    endless = gpu_visit.Training("electra-small", 1, equal=True)
    assert gpu_visit.train(v, endless, work / "data", seconds=60, flops=1e18) < 1e18
    (ended,) = lines_of(2, carried)["trained"]
    assert ended["status"] == 75
    assert list((work / "electra-small").glob("checkpoint-*"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_visit_ends_by_itself(carried: Path) -> None:
    """While its sides compile."""
    assert visit(4, carried, "--limit", "40").wait() == 0
    found = lines_of(4, carried)
    assert [line["seconds"] for line in found["limit"]] == [40]
    assert found["end"][0]["seconds"] < 60


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_length(tmp_path: Path) -> None:
    """Both sides compute the same loss, or it would end with an error."""
    out = run(tmp_path, "length.py", "--json", "length.json", "--picture", "length.png")
    assert [row[0] for row in rows(out)] == ["9 x 64", "2 x 300"]
    results = json.loads((tmp_path / "length.json").read_text())["results"]
    for result in results:
        assert set(result["seconds"]) == {"electrify", "transformers"}
        assert {len(times) for times in result["seconds"].values()} == {2}
        assert all(memory > 1e8 for memory in result["peak_memory_bytes"].values())
    assert (tmp_path / "length.png").stat().st_size > 5_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_demo_recipes(tmp_path: Path) -> None:
    """Both recipes cost the same; a second call finds them measured."""
    words = ["demo_recipes.py", "--output-dir", "out", "--json", "found.json"]
    first = rows(run(tmp_path, *words))
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row[0] for row in first] == list(found)
    (electra,), (corrective,) = found.values()
    assert electra["flops"] == pytest.approx(corrective["flops"], rel=0.1)
    assert electra["steps"] > corrective["steps"]
    assert all(0 <= one["planted"] <= 100 for one in (electra, corrective))
    assert rows(run(tmp_path, *words)) == first


def test_a_result_of_other_updates_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of --quick."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from demo_recipes import kept_result  # pyright: ignore[reportMissingImports]

    path = tmp_path / "electra-tiny-seed0.json"
    assert kept_result(path, steps=2500, flops=1e13) is None
    path.write_text(json.dumps({"steps": 2500, "flops": 1e13, "planted": 40.0}))
    assert kept_result(path, steps=2500, flops=1e13)["planted"] == 40.0
    for steps, flops in ((20, 1e13), (2500, 8e12)):
        with pytest.raises(UserError, match=rf"{tmp_path}.*choose another --output-dir"):
            kept_result(path, steps=steps, flops=flops)


def test_the_picture_of_a_run_with_two_periods(tmp_path: Path) -> None:
    """The second period has other losses than the first."""
    pytest.importorskip("matplotlib")
    first = {"kind": "train", "step": 1, "generator_loss_masked": 8.0, "mlm_loss_masked": 8.0}
    second = {"kind": "train", "step": 2, "generator_loss_masked": 6.0, "rtd": 0.4}
    records = [
        first | {"tokens": 1_000_000},
        second | {"tokens": 2_000_000},
        second | {"kind": "valid", "replaced": 0.1, "tokens": 2_000_000},
    ]
    event = {"kind": "event", "step": 9, "warning": "said behind the last validation"}
    text = "".join(json.dumps(r) + "\n" for r in [*records, event])
    (tmp_path / "metrics.jsonl").write_text(text + '{"kind": "tr')  # torn by a kill
    import matplotlib.pyplot as plt

    runpy.run_path(str(BENCHMARKS / "plot_run.py"))["main"](tmp_path, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    panels = plt.gcf().axes
    plt.close()
    assert len(panels) == 4
    for panel in panels:
        dotted = [line for line in panel.lines if line.get_linestyle() == ":"]
        assert [list(line.get_xdata()) for line in dotted] == [[1.0, 1.0]], panel.get_title()


def test_the_demos_picture_of_a_run_with_two_periods() -> None:
    """Words are guessed in the first, and replaced tokens detected in the second alone."""
    figure = pytest.importorskip("matplotlib.figure").Figure()
    first = {"mlm_accuracy_masked": 0.1}
    second = {"rtd_detection_auc": 0.7, "rtd_detection_recall": 0.2}
    valid = [{"tokens": n * 1_000_000} | (first if n < 3 else second) for n in range(1, 6)]
    left, axis = figure.subplots(1, 2)
    draw_run(left, axis, [{"kind": "valid"} | r for r in valid], by_frequency=5.0)
    assert {line.get_label(): list(line.get_xdata()) for line in axis.lines} == {
        "words guessed at [MASK]": [1.0, 2.0],
        "replaced tokens: AUC": [3.0, 4.0, 5.0],
        "replaced tokens: recall": [3.0, 4.0, 5.0],
    }


def test_taking_words(tmp_path: Path) -> None:
    """Each file gives its share, in whole documents from all over it; what is held out stays so."""
    lengths = {"a.txt": 600, "b.txt": 300, "valid.txt": 50}
    for name, count in lengths.items():
        found = [f"{name} " + "word " * (k % 7) + f"end{k}" for k in range(count)]
        (tmp_path / name).write_text("\n\n".join(found))
    script = str(BENCHMARKS / "take_words.py")
    whole = sum(len((tmp_path / name).read_text().split()) for name in ("a.txt", "b.txt"))
    asked = str(whole // 3)
    command = [
        sys.executable,
        script,
        str(tmp_path),
        "--words",
        asked,
        "--output",
        str(tmp_path / "out" / "taken.txt"),
    ]
    (tmp_path / "out").mkdir()
    (tmp_path / "a.txt~").write_text("a copy of an editor")
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    taken = (tmp_path / "out" / "taken.txt").read_text().strip().split("\n\n")
    assert sum(len(d.split()) for d in taken) == pytest.approx(whole / 3, abs=16)
    words = {n: sum(len(d.split()) for d in taken if d.startswith(n)) for n in lengths}
    assert words["a.txt"] == pytest.approx(2 * words["b.txt"], rel=0.05)
    assert words["valid.txt"] == 0
    ends = [int(d.rpartition("end")[2]) for d in taken if d.startswith("a.txt")]
    assert ends[0] < 10
    assert ends[-1] > 590
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    assert (tmp_path / "out" / "taken.txt").read_text().strip().split("\n\n") == taken
    (tmp_path / "out" / "taken.txt").unlink()
    among = [*command[:-1], str(tmp_path / "out" / ".." / "more.txt")]
    refused = subprocess.run(among, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (refused.returncode, "lies among the files" in refused.stderr) == (2, True)
    command[4] = str(whole + 1)
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"has {whole:,} words" in refused.stderr


@pytest.mark.parametrize(
    ("content", "words", "says"),
    [
        (b"one two\nthree four\n" * 50, "100", ""),  # no blank line: its lines are documents
        (b"one two three\n", "1", "give 0 words, not 1: they are too long"),
        (b"\xff\n", "1", "is not UTF-8 text (byte 0)"),
        (None, "1", "holds no .txt file"),
    ],
)
def test_texts_of_which_to_take_words(
    tmp_path: Path, content: bytes | None, words: str, says: str
) -> None:
    (tmp_path / "corpus").mkdir()
    if content is not None:
        (tmp_path / "corpus" / "a.txt").write_bytes(content)
    taken = tmp_path / "taken"
    command = [sys.executable, str(BENCHMARKS / "take_words.py"), str(tmp_path / "corpus")]
    command += ["--words", words, "--output", str(taken)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert says in done.stderr
    assert done.returncode == (2 if says else 0)
    assert (len(taken.read_text().split()) if taken.exists() else None) == (None if says else 100)


def test_merging_scores_of_a_task_of_ones_own(tmp_path: Path) -> None:
    same = {"model": "m", "train_examples": 20, "validation_examples": 9}
    records = [
        same | {"task": "cola", "seed": 0, "scores": {"matthews": 0.25, "accuracy": 0.75}},
        *(
            same | {"task": "mine", "seed": seed, "scores": {"accuracy": 0.5, "f1": seed / 2}}
            for seed in (0, 1)
        ),
    ]
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    command = [sys.executable, str(BENCHMARKS / "merge_finetune.py"), str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [row[0] for row in rows(out)] == ["cola, matthews", "mine, accuracy", "mine, f1"]
    assert rows(out)[2][1:] == ["20", "9", "25.0 (0.0 - 50.0)"]


def test_encoders_with_long_names_are_not_one_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of folders are cut; the lines of the study have them whole."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from overlap import row_of  # pyright: ignore[reportMissingImports]

    names = {f"{k}" * 16: "bert-tiny:" + "x" * 60 + f"={k}" for k in range(2)}
    found = [
        Result(name, 1e14, 0, key, 10, 1e14, 1.0, 1.0, 7, {"a": {"metric": "f1", "scores": [0.5]}})
        for key, name in names.items()
    ]
    write_results(tmp_path, found)
    for key, name in names.items():
        folder = tmp_path / "encoders" / f"bert-tiny-{'x' * 50}-1e+14-seed0-{key[:8]}"
        assert row_of(folder, folder / "stsb" / "stsb-validation.csv") == f"{name}, stsb"


@pytest.mark.slow
def test_overlap(tmp_path: Path) -> None:
    """Predictions that are the share of common words, and the scores, by hand; encoders of one
    recipe are one row, and predictions of other examples are left out."""
    glue = tmp_path / "STS-B"
    glue.mkdir()
    head = "index\tsentence1\tsentence2\tscore\n"
    pairs = [("a b", "c d", 3.0), ("a b", "b c", 1.0), ("a b", "a b", 2.0)]
    text = head + "".join(f"{k}\t{a}\t{b}\t{s}\n" for k, (a, b, s) in enumerate(pairs))
    for name in ("train.tsv", "dev.tsv"):
        (glue / name).write_text(text)
    for seed, predicted in enumerate(((0.0, 1 / 3, 1.0), (3.0, 1.0, 2.0))):
        folder = tmp_path / "encoders" / f"a-tiny-1e+14-seed{seed}-0123abcd" / "stsb"
        folder.mkdir(parents=True)
        lines = [
            f"{k},{s},{p}" for k, ((_, _, s), p) in enumerate(zip(pairs, predicted, strict=True))
        ]
        (folder / "stsb-validation.csv").write_text("\n".join(["row,label,prediction", *lines]))
    other = tmp_path / "encoders" / "other"
    other.mkdir()
    (other / "stsb-validation.csv").write_text("row,label,prediction\n0,1,2\n")
    left = {
        "labels": "0,1,0\n1,1,1\n2,2,2\n",
        "constant": "0,3,1\n1,1,1\n2,2,1\n",
        "nan": "0,3,1\n1,1,nan\n2,2,1\n",
        "words": "0,3,a\n1,1,b\n2,2,c\n",
    }
    for name, rest in left.items():
        (tmp_path / "encoders" / name).mkdir()
        path = tmp_path / "encoders" / name / "stsb-validation.csv"
        path.write_text("row,label,prediction\n" + rest)
    script = str(BENCHMARKS / "overlap.py")
    command = [sys.executable, script, *map(str, (tmp_path / "encoders").iterdir())]
    ran = subprocess.run(
        [*command, "--data-dir", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert rows(ran.stdout) == [
        ["words in common, alone", "", "-50.0", ""],
        ["a-tiny, stsb", "2", "25.0 (-50.0 - 100.0)", "25.0 (-50.0 - 100.0)"],
    ]
    assert ran.stderr.count("predictions of other examples") == 2
    assert ran.stderr.count("one prediction for all") == 2
    assert ran.stderr.count("no predictions as") == 1
