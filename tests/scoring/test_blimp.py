"""Minimal pairs: files, counting, tables, the verb; the real files where they are."""

import json
import os
from pathlib import Path

import pytest

from electrify.cli import main
from electrify.scoring.blimp import Accuracy, judge, means, read_blimp
from electrify.scoring.pll import load_scorer

BLIMP = Path(__file__).parents[3] / "shared" / "data" / "blimp"


def write(folder: Path, name: str, pairs: list[tuple[str, str]], **terms: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"sentence_good": good, "sentence_bad": bad, **terms}) for good, bad in pairs
    ]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root, order = tmp_path / "blimp", {"field": "syntax", "linguistics_term": "order"}
    write(root, "order", [("the chef ate", "ate the chef"), ("the meal", "meal the")], **order)
    pairs = [("the chef", "chef the"), ("the cook", "the cook"), ("a b", "b a")]
    write(root, "other", pairs, **order)
    ending = {"field": "morphology", "linguistics_term": "ending"}
    write(root, "ends", [("the chefs ate", "the chef ate")], **ending)
    write(root / "supplement", "turns", [("a: the chef\nb: the meal", "a: the meal\nb: the chef")])
    return root


def test_files_and_terms(data: Path):
    found = read_blimp(data)
    assert [(p.name, p.part, p.phenomenon, len(p.pairs)) for p in found] == [
        ("ends", "blimp", "ending", 1),
        ("order", "blimp", "order", 2),
        ("other", "blimp", "order", 3),
        ("turns", "supplement", "turns", 1),
    ]
    assert [len(p.pairs) for p in read_blimp(data, limit=2)] == [1, 2, 2, 1]
    assert "\n" in found[3].pairs[0].good
    data.rename(data.parent / "blimp")
    assert read_blimp(data.parent) == found


@pytest.mark.parametrize("above", ["", "full_eval", "babylm", "babylm/full_eval"])
def test_the_evaluation_data_of_babylm(tmp_path, above):
    """Also beside BLiMP's own files, which have no supplement."""
    write(tmp_path / above / "blimp_filtered", "order", [("the chef ate", "ate the chef")])
    write(tmp_path / above / "supplement_filtered", "turns", [("the meal", "meal the")])
    found = read_blimp(tmp_path)
    assert [(p.name, p.part) for p in found] == [("order", "blimp"), ("turns", "supplement")]
    write(tmp_path / "blimp", "whole", [("the chef ate", "ate the chef")])
    found = read_blimp(tmp_path)
    assert [(p.name, p.part) for p in found] == [("whole", "blimp"), ("turns", "supplement")]


def test_accuracy_is_counted_from_the_scores_and_a_tie_is_one_half(models_root: Path, data: Path):
    scorer = load_scorer(str(models_root / "run" / "generator"))
    paradigms = read_blimp(data)
    found = judge([scorer], paradigms, batch_tokens=64, title="blimp")
    for p, row in zip(paradigms, found, strict=True):
        scores = [(scorer.scores([pair.good])[0], scorer.scores([pair.bad])[0]) for pair in p.pairs]
        worth = [1.0 if good > bad else 0.5 if good == bad else 0.0 for good, bad in scores]
        assert row.accuracy == sum(worth) / len(p.pairs)
        assert row.ties == (1 if p.name == "other" else 0)


def row(paradigm: str, accuracy: float, phenomenon: str, part: str = "blimp") -> Accuracy:
    return Accuracy("m", paradigm, part, "f", phenomenon, 10, accuracy, 0)


def test_means_by_hand():
    """Phenomena and the whole are means over paradigms, whatever their sizes; the supplement has no
    phenomena."""
    rows = [row("a", 0.5, "x"), row("b", 0.7, "x"), row("c", 0.9, "y")]
    rows += [row(name, accuracy, "-", "supplement") for name, accuracy in (("s", 0.2), ("t", 0.4))]
    blimp = {"x": 0.6, "y": 0.9, "overall": 0.7}
    supplement = {"s": 0.2, "t": 0.4, "overall": 0.3}
    wanted = {("blimp", name): value for name, value in blimp.items()}
    wanted |= {("supplement", name): value for name, value in supplement.items()}
    assert means(rows) == pytest.approx(wanted)


def test_the_verb(models_root, data, tmp_path, capsys):
    models = [str(models_root / "run" / half) for half in ("generator", "discriminator")]
    asked = ["--task", "blimp", "--data-dir", str(data), "--output-dir", str(tmp_path / "out")]
    assert main(["evaluate", *models, *asked]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["part", "phenomenon", *models]
    whole = json.loads((tmp_path / "out" / "blimp.json").read_text())
    labels = [os.path.relpath(model, tmp_path / "out") for model in models]
    assert whole["scored_as"] == dict(zip(labels, ("mlm", "rtd"), strict=True))
    assert len(whole["paradigms"]) == 8
    assert (tmp_path / "out" / "blimp.md").is_file()


def test_the_real_files():
    if not BLIMP.is_dir():
        pytest.skip("no ../shared/data/blimp")
    found = read_blimp(BLIMP)
    parts = [[p for p in found if p.part == part] for part in ("blimp", "supplement")]
    assert [len(part) for part in parts] == [67, 5]
    assert all(len(p.pairs) == 1000 for p in parts[0])
    assert sum(len(p.pairs) for p in parts[1]) == 5218
    assert len({p.phenomenon for p in parts[0]}) == 12
