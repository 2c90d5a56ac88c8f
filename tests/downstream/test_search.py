from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from PIL import Image

from electrify.downstream.finetune import finetune
from electrify.downstream.options import FinetuneConfig, FinetuneSettings, search_grid
from electrify.errors import UserError


def options(zoo: Path, reviews: tuple[str, str], out: Path, **more: object) -> FinetuneConfig:
    settings = FinetuneSettings(
        layerwise_lr_decay=1.0, per_device_train_batch_size=16, bf16="false", dropout=0.0
    )
    given = {
        "models": (str(zoo / "electra"), str(zoo / "bert")),
        "seeds": 2,
        "train_file": reviews[0],
        "validation_file": reviews[1],
    }
    return FinetuneConfig(output_dir=str(out), settings=settings, **{**given, **more})  # type: ignore[arg-type]


def test_the_grid_by_hand():
    grid = search_grid("learning_rate=1e-4, 3e-4;num-train-epochs=2,1", FinetuneSettings())
    assert [name for name, _ in grid] == [
        "learning_rate=0.0001,num_train_epochs=2", "learning_rate=0.0001,num_train_epochs=1",
        "learning_rate=0.0003,num_train_epochs=2",
        "learning_rate=0.0003,num_train_epochs=1",
    ]  # fmt: skip
    assert [(s.learning_rate, s.num_train_epochs) for _, s in grid] == [
        (1e-4, 2),
        (1e-4, 1),
        (3e-4, 2),
        (3e-4, 1),
    ]
    assert len(search_grid("auto", FinetuneSettings())) == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning_rate", r"is NAME=VALUE,VALUE"),
        ("", r"hyperparameter_search is empty"),
        ("learning_rat=1", r"no setting 'learning_rat'; did you mean 'learning_rate'"),
        ("learning_rate=1e-4;learning_rate=2e-4", r"is NAME=VALUE,VALUE"),
        ("learning_rate=fast", r"learning_rate .* 'fast'"),
        ("num_train_epochs=0", r"num_train_epochs "),
        ("layerwise_lr_decay=0.8", r"layerwise_lr_decay is given and searched"),
        ("device=cpu", r"no setting 'device'"),
    ],
)
def test_bad_grids(zoo: Path, reviews: tuple[str, str], tmp_path: Path, text: str, said: str):
    with pytest.raises(UserError, match=said):
        options(zoo, reviews, tmp_path / "out", hyperparameter_search=text)


def test_a_search_reports_the_best_and_writes_the_grid(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
):
    out = tmp_path / "out"
    asked = options(
        zoo, reviews, out, hyperparameter_search="learning_rate=1e-9,1e-2;num_train_epochs=1,8"
    )
    report = finetune(asked)
    page = (out / "report.md").read_text()
    assert "Searched, the notes say what was chosen: learning_rate, num_train_epochs." in page
    assert "num_train_epochs 8" not in page
    assert "learning_rate 0.0" not in page
    told = json.loads((out / "report.json").read_text())
    assert told["searched"] == ["learning_rate", "num_train_epochs"]
    assert not {"learning_rate", "num_train_epochs"} & told["settings"].keys()
    assert told["settings"]["per_device_train_batch_size"] == 16
    grid = json.loads((out / "search.json").read_text())
    assert len(grid) == 4
    best, worst = (
        "learning_rate=0.01,num_train_epochs=8",
        "learning_rate=1e-09,num_train_epochs=1",
    )
    for model in ("electra", "bert"):
        mine_only = {
            name: [r for r in rows if Path(r["model"]).name == model and r["metric"] == "accuracy"]
            for name, rows in grid.items()
        }
        medians = {name: rows[0]["median"] for name, rows in mine_only.items()}
        mine = next(
            r for r in report.rows if Path(r.model).name == model and r.metric == "accuracy"
        )
        assert mine.median == max(medians.values()) == medians[best] > medians[worst]
        assert any(f"{model}: {best} is the best of 4 settings" in note for note in report.notes())
    from_here = {r.model for r in report.rows}
    assert all((out / model).is_dir() for model in from_here), "as one finds them from there"
    assert {r["model"] for rows in grid.values() for r in rows} == from_here
    stars = [
        line.count("*")
        for line in (out / "search.md").read_text().splitlines()
        if line.startswith("| reviews")
    ]
    assert stars == [1, 1]
    before = (out / "report.md").read_text()
    scores = {p: p.stat().st_mtime_ns for p in out.glob("grid/*/scores.jsonl")}
    assert finetune(asked).rows == report.rows
    assert (out / "report.md").read_text() == before
    assert {p: p.stat().st_mtime_ns for p in out.glob("grid/*/scores.jsonl")} == scores, (
        "nothing ran again"
    )
    assert len(scores) == 4
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds no search\.json, so it is not ours"):
        finetune(dataclasses.replace(asked, output_dir=str(tmp_path / "other")))


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ("class_weights=none,balanced", "--class-weights is for classes and tags"),
        ("max_seq_length=16,41,none", "reads 40 tokens at most; give --max-seq-length 40"),
    ],
)
def test_every_point_is_looked_at_before_the_first(zoo: Path, tmp_path: Path, grid: str, says: str):
    """Those before it would be trained in vain."""
    values = tmp_path / "values.csv"
    values.write_text("text,label\n" + "".join(f"film {k},{k / 7}\n" for k in range(20)))
    files = (str(values), str(values))
    with pytest.raises(UserError, match=says):
        finetune(options(zoo, files, tmp_path / "out", hyperparameter_search=grid, seeds=1))
    assert not (tmp_path / "out").exists()


def test_a_search_of_many_settings(zoo: Path, reviews: tuple[str, str], tmp_path: Path):
    """Its points have names that no file system takes."""
    grid = (
        "learning_rate=1e-3;weight_decay=.01;warmup_ratio=.2;max_grad_norm=2;max_seq_length=16;"
        "num_train_epochs=1;optim=adamw;lr_scheduler_type=linear;loss_reduction=mean;"
        "layerwise_lr_skip=false;head_init=normal;group_by_length=true;class_weights=balanced;"
        "double_unordered=false"
    )
    asked = options(zoo, reviews, tmp_path / "out", hyperparameter_search=grid, seeds=1)
    ((name, _),) = search_grid(grid, asked.settings)
    assert len(name) > 255
    report = finetune(asked)
    (point,) = (tmp_path / "out" / "grid").iterdir()
    assert point.name.startswith("learning_rate=0.001,weight_decay=0.01,")
    assert any(f"{name} is the best of 1 settings" in note for note in report.notes())
    assert finetune(asked).rows == report.rows


def test_equal_points_take_the_first(zoo: Path, reviews: tuple[str, str], tmp_path: Path):
    grid = "weight_decay=0,0.1;learning_rate=1e-12"
    asked = {"models": (str(zoo / "bert"),), "seeds": 1, "hyperparameter_search": grid}
    report = finetune(options(zoo, reviews, tmp_path / "out", **asked))
    assert any(
        "weight_decay=0,learning_rate=1e-12 is the best of 2" in note for note in report.notes()
    )


def test_the_plot_has_a_panel_for_each_task(zoo: Path, reviews: tuple[str, str], tmp_path: Path):
    finetune(options(zoo, reviews, tmp_path / "out", seeds=1))
    with Image.open(tmp_path / "out" / "report.png") as picture:
        assert picture.width > 400
        assert len(picture.convert("RGB").resize((60, 40)).getcolors(2400) or []) > 20, (
            "something is drawn"
        )
