"""The benchmarks in their shortest form: that they run, and what they print. No figure of theirs is
asserted."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

from electrify import curves
from electrify.compare import run as run_module
from electrify.compare.cost import Cost
from electrify.compare.plan import Entry, cells
from electrify.compare.results import Result, write_results
from electrify.cores import cores
from electrify.errors import UserError

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
    command = [sys.executable, str(BENCHMARKS / "kernels.py"), "small", "128x128", "--layers", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    parts = ("forward", "backward", "outside")
    assert [found[part]["launches"] for part in parts] == [105, 175, 186]
    gigabytes = [found[part]["bytes"] / 1e9 for part in parts]
    assert gigabytes == pytest.approx([2.02, 3.64, 0.26], abs=0.005)


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


@pytest.mark.parametrize("vocab_size", [8192, 30522])
def test_the_budgets_of_the_hour_on_a_gpu(vocab_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends after the warm-up of its recipes, so that none is refused there."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gpu_day import BUDGETS  # pyright: ignore[reportMissingImports]

    entries = [Entry(name, name, {}) for name in ("bert-small", "electra-small")]
    cost = Cost(vocab_size)
    for text in BUDGETS:
        budgets = [float(b) for b in text.split(",")]
        assert len(cells(entries, budgets, [0], cost, schedule=None)) == 2 * len(budgets)


def test_a_study_has_time_to_save_before_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_day  # pyright: ignore[reportMissingImports]

    assert gpu_day.GRACE_S > run_module.GRACE_S


@pytest.mark.slow
def test_an_hour_on_a_gpu(tmp_path: Path) -> None:
    """Every part in its shortest form, each once; the second call finds them done."""
    command = [sys.executable, str(BENCHMARKS / "gpu_day.py"), "--output-dir", str(tmp_path)]
    first = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stdout + first.stderr
    lines = first.stdout.splitlines()
    assert [line.split()[0] for line in lines][:3] == ["tests", "step-small", "step-base"]
    assert len(lines) == 8
    assert all("done" in line for line in lines)
    listed = [*command, "--dry-run", "--list"]
    second = subprocess.run(listed, capture_output=True, text=True, check=True)
    assert second.stdout.count(" done ") == len(lines)


def test_a_dry_run_is_not_the_hour_on_a_gpu(tmp_path: Path) -> None:
    out = ["--output-dir", str(tmp_path), "--data", str(tmp_path), "--tasks", str(tmp_path)]
    command = [sys.executable, str(BENCHMARKS / "gpu_day.py"), *out]
    real = tmp_path / "study-2e16.txt"
    real.write_text("of a real run")
    dry = [*command, "--dry-run", "--only", "study-2e16"]
    assert " done:" in subprocess.run(dry, capture_output=True, text=True, check=True).stdout
    listed = subprocess.run([*command, "--list"], capture_output=True, text=True, check=True).stdout
    assert "study-2e16" in listed
    assert "done" not in listed
    assert real.read_text() == "of a real run"


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
    axis = figure.subplots()
    curves.draw_discriminator(axis, valid)
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


def test_cells_with_long_names_are_not_one_recipe(
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
        folder = tmp_path / "cells" / f"bert-tiny-{'x' * 50}-1e+14-seed0-{key[:8]}"
        assert row_of(folder, folder / "stsb" / "stsb-validation.csv") == f"{name}, stsb"


def test_overlap(tmp_path: Path) -> None:
    """Predictions that are the share of common words, and the scores, by hand; cells of one recipe
    are one row, and predictions of other examples are left out."""
    glue = tmp_path / "STS-B"
    glue.mkdir()
    head = "index\tsentence1\tsentence2\tscore\n"
    pairs = [("a b", "c d", 3.0), ("a b", "b c", 1.0), ("a b", "a b", 2.0)]
    text = head + "".join(f"{k}\t{a}\t{b}\t{s}\n" for k, (a, b, s) in enumerate(pairs))
    for name in ("train.tsv", "dev.tsv"):
        (glue / name).write_text(text)
    for seed, predicted in enumerate(((0.0, 1 / 3, 1.0), (3.0, 1.0, 2.0))):
        folder = tmp_path / "cells" / f"a-tiny-1e+14-seed{seed}-0123abcd" / "stsb"
        folder.mkdir(parents=True)
        lines = [
            f"{k},{s},{p}" for k, ((_, _, s), p) in enumerate(zip(pairs, predicted, strict=True))
        ]
        (folder / "stsb-validation.csv").write_text("\n".join(["row,label,prediction", *lines]))
    other = tmp_path / "cells" / "other"
    other.mkdir()
    (other / "stsb-validation.csv").write_text("row,label,prediction\n0,1,2\n")
    left = {
        "labels": "0,1,0\n1,1,1\n2,2,2\n",
        "constant": "0,3,1\n1,1,1\n2,2,1\n",
        "nan": "0,3,1\n1,1,nan\n2,2,1\n",
        "words": "0,3,a\n1,1,b\n2,2,c\n",
    }
    for name, rest in left.items():
        (tmp_path / "cells" / name).mkdir()
        path = tmp_path / "cells" / name / "stsb-validation.csv"
        path.write_text("row,label,prediction\n" + rest)
    script = str(BENCHMARKS / "overlap.py")
    command = [sys.executable, script, *map(str, (tmp_path / "cells").iterdir())]
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
