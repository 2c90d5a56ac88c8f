"""The output folder of `finetune`: one writer, nobody else's files, and no score that is not of
what was asked."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from electrify.downstream import finetune as verb
from electrify.downstream.finetune import finetune
from electrify.downstream.names import folder_name, short
from electrify.downstream.one_run import Outcome
from electrify.downstream.options import FinetuneConfig, FinetuneSettings
from electrify.downstream.records import line_of
from electrify.errors import UserError
from electrify.hub import file_of, must_be_reachable
from small import listing

QUICK = FinetuneSettings(
    num_train_epochs=1,
    max_seq_length=16,
    bf16="false",
    max_train_samples=16,
    per_device_train_batch_size=8,
    device="cpu",
)


def options(zoo: Path, reviews: tuple[str, str], out: Path, **more: object) -> FinetuneConfig:
    given = {
        "models": (str(zoo / "bert"),),
        "output_dir": str(out),
        "train_file": reviews[0],
        "validation_file": reviews[1],
        "seeds": 1,
    }
    return FinetuneConfig(**given | {"settings": QUICK} | more)  # type: ignore[arg-type]


def test_two_in_one_folder(zoo: Path, reviews: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = (
        "import sys\nfrom pathlib import Path\nfrom electrify.files import claim\nwith "
        "claim(Path(sys.argv[1]), 'finetune.json'):\n"
    )
    code += "    print('in', flush=True)\n    sys.stdin.readline()\n"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(UserError, match=r"another process writes into .*out; wait"):
            finetune(options(zoo, reviews, out))
        other.stdin.close()
    finetune(options(zoo, reviews, out))


def test_one_model_by_several_names_is_one(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(zoo)
    (tmp_path / "link").symlink_to(zoo / "bert")
    names = ("bert", "./bert", "bert/", str(zoo / "bert"), str(tmp_path / "link"))
    report = finetune(options(zoo, reviews, tmp_path / "out", models=names, seeds=2))
    assert {(row.model, row.seeds) for row in report.rows} == {("bert", 2)}
    assert len((tmp_path / "out" / "scores.jsonl").read_text().splitlines()) == 2
    report = finetune(options(zoo, reviews, tmp_path / "o2", models=("bert", "electra", "./bert")))
    assert list(dict.fromkeys(row.model for row in report.rows)) == ["bert", "electra"]


def test_seeds_with_another_split_are_not_put_beside_each_other(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
) -> None:
    """The first seed decides which examples are held out."""
    out = tmp_path / "out"
    asked = options(zoo, reviews, out, models=(str(zoo / "bert"),), seeds=1)
    asked = dataclasses.replace(asked, validation_file=None, validation_fraction=0.25)
    finetune(asked)
    before = (out / "scores.jsonl").read_bytes()
    others = ({"seed": 1}, {"seed": 1, "models": (str(zoo / "electra"),)})
    for more in (*others, {"validation_fraction": 0.3}):
        with pytest.raises(UserError, match=r"other examples of task 'reviews': .* or --seed"):
            finetune(dataclasses.replace(asked, **more))  # type: ignore[arg-type]
    assert (out / "scores.jsonl").read_bytes() == before
    report = finetune(dataclasses.replace(asked, seeds=2))
    assert {row.seeds for row in report.rows} == {2}


def test_a_changed_tokenizer_is_another_model(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
) -> None:
    """Also where only its options changed; records of earlier versions, which did not know them,
    still count."""
    import shutil

    model = Path(shutil.copytree(zoo / "bert", tmp_path / "model"))
    asked = options(zoo, reviews, tmp_path / "out", models=(str(model),))
    finetune(asked)
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": False}))
    with pytest.raises(
        UserError, match=r"holds scores of the tokenizer of .* from before it changed"
    ):
        finetune(asked)
    scores = tmp_path / "out" / "scores.jsonl"
    rows = [json.loads(line) for line in scores.read_text().splitlines()]
    scores.write_text(
        "".join(
            line_of({k: v for k, v in row.items() if k not in ("tokenizer", "test", "answers")})
            for row in rows
        )
    )
    finetune(asked)


@pytest.fixture
def newest(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says which commit of `me/model` is the newest in the cache of a Hub that cannot be reached;
    "" for none."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for asked in (file_of, must_be_reachable):
        asked.cache_clear()
    top = tmp_path / "hub" / "models--me--model"
    (top / "refs").mkdir(parents=True)
    for commit in ("1" * 40, "2" * 40):
        shutil.copytree(zoo / "bert", top / "snapshots" / commit)

    def say(commit: str) -> None:
        (top / "refs" / "main").unlink(missing_ok=True)
        if commit:
            (top / "refs" / "main").write_text(commit)

    return say


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]


def first_read_at(commit: str, newest: Callable[[str], None]) -> Callable[..., int]:
    """`width_of` for a Hub that says only now which commit is the newest."""
    real = verb.width_of

    def width(*given: Any) -> int:
        newest(commit)
        return real(*given)

    return width


def test_another_commit_of_the_hub_is_another_model(
    zoo: Path,
    reviews: tuple[str, str],
    tmp_path: Path,
    newest: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records of earlier versions, which did not know it, still count."""
    one, two, out = "1" * 40, "2" * 40, tmp_path / "out"
    asked = options(zoo, reviews, out, models=("me/model",), seeds=1)
    with monkeypatch.context() as patch:
        patch.setattr(verb, "width_of", first_read_at(one, newest))
        finetune(asked)
    (row,) = rows_of(out)
    assert (row["weights"], row["tokenizer"]) == (f"me/model@{one}",) * 2
    monkeypatch.setattr(verb, "finetune_one", pytest.fail)
    for commit in (one, ""):
        newest(commit)
        finetune(asked)
    newest(two)
    with pytest.raises(UserError, match=r"scores of model 'me/model' from before it changed"):
        finetune(asked)
    newest(one)
    with monkeypatch.context() as patch:
        patch.setattr(verb, "width_of", first_read_at(two, newest))
        with pytest.raises(UserError, match=r"scores of model 'me/model' from before it changed"):
            finetune(dataclasses.replace(asked, seeds=2))
    row |= dict.fromkeys(("weights", "tokenizer"), "me/model")
    (out / "scores.jsonl").write_text(line_of(row))
    finetune(asked)


def test_a_commit_that_changes_between_two_runs(
    zoo: Path,
    reviews: tuple[str, str],
    tmp_path: Path,
    newest: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newest("1" * 40)
    real = verb._keep

    def keep(*given: Any) -> None:
        real(*given)
        newest("2" * 40)

    monkeypatch.setattr(verb, "_keep", keep)
    asked = options(zoo, reviews, tmp_path / "out", models=("me/model",), seeds=2)
    with pytest.raises(UserError, match="me/model was changed while the runs before it trained"):
        finetune(asked)
    assert [row["weights"] for row in rows_of(tmp_path / "out")] == [f"me/model@{'1' * 40}"]


def test_a_report_of_somebody_else(zoo: Path, reviews: tuple[str, str], tmp_path: Path) -> None:
    """A folder called `grid` does not make it a search's."""
    out = tmp_path / "out"
    (out / "grid").mkdir(parents=True)
    (out / "report.md").write_text("mine")
    before = listing(out)
    for more in ({"hyperparameter_search": "weight_decay=0,0.1"}, {}):
        with pytest.raises(UserError, match=r"holds no (search|finetune)\.json, so it is not ours"):
            finetune(options(zoo, reviews, out, **more))
        assert listing(out) == before


def test_scores_that_are_not_numbers(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON that every reader takes, a note that says so, and the same when it is read again."""
    real = verb.finetune_one

    def odd(*args: object, finished: Callable[[Outcome], None], **more: object) -> object:
        def spoilt(outcome: Outcome) -> None:
            scores = outcome.scores | {"accuracy": math.nan}
            finished(dataclasses.replace(outcome, scores=scores))

        return real(*args, finished=spoilt, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(verb, "finetune_one", odd)
    out = tmp_path / "out"

    def strictly(text: str) -> object:
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    for _ in range(2):
        report = finetune(options(zoo, reviews, out))
        assert math.isnan(next(row for row in report.rows if row.metric == "accuracy").median)
        assert any("is not a number with seed 0" in note for note in report.notes())
        strictly((out / "report.json").read_text())
        assert strictly((out / "scores.jsonl").read_text())["scores"]["accuracy"] is None  # type: ignore[index]


def test_a_full_disk_leaves_no_model(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError
    from transformers import PreTrainedModel

    def full(*args: object, **more: object) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full)
    with pytest.raises(UserError, match=r"could not be written \(No space left on device\)"):
        finetune(options(zoo, reviews, tmp_path / "out", save_model=True))
    assert not list((tmp_path / "out").glob("models/*"))


def saved(out: Path) -> Path:
    return next((out / "models").iterdir())


def test_a_saved_model_without_weights_is_not_done(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = options(zoo, reviews, out, save_model=True)
    finetune(asked)
    wanted = listing(saved(out))
    (saved(out) / "model.safetensors").unlink()
    finetune(asked)
    assert listing(saved(out)) == wanted


def test_the_predictions_of_a_run_that_is_repeated_are_replaced(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere a run may end with other bits."""
    out = tmp_path / "out"
    finetune(options(zoo, reviews, out))
    (predicted,) = (out / "predictions").rglob("*.csv")
    run = verb.finetune_one

    def other_bits(*args: Any, **more: Any) -> Any:
        finished = more.pop("finished")

        def told(outcome: Any) -> None:
            files = {name: text + "\n" for name, text in outcome.files.items()}
            finished(dataclasses.replace(outcome, files=files))

        return run(*args, **more, finished=told)

    monkeypatch.setattr(verb, "finetune_one", other_bits)
    finetune(options(zoo, reviews, out, save_model=True))
    assert predicted.read_text().endswith("\n\n")


@pytest.mark.parametrize("field", ["train_file", "models", "validation_file"])
def test_what_is_read_has_a_name_that_is_not_utf8(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, field: str
) -> None:
    """Files of results say the name of a model and of the training examples."""
    odd = tmp_path / os.fsdecode(b"odd\xff.jsonl")
    if field == "models":
        shutil.copytree(zoo / "bert", odd)
    else:
        shutil.copy(reviews[field == "validation_file"], odd)
    asked = options(
        zoo, reviews, tmp_path / "out", **{field: (str(odd),) if field == "models" else str(odd)}
    )
    if field == "validation_file":
        assert finetune(asked).rows
        return
    with pytest.raises(UserError, match=r"this name is not UTF-8, .* rename the file or folder"):
        finetune(asked)
    assert not (tmp_path / "out").exists()


def test_a_training_file_of_a_long_name(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
) -> None:
    """Its name is cut in those of other files, too."""
    long = Path(shutil.copy(reviews[0], tmp_path / ("x" * 246 + ".jsonl")))
    finetune(options(zoo, reviews, tmp_path / "out", train_file=str(long)))
    (table,) = (tmp_path / "out" / "predictions").rglob("*-validation.csv")
    assert table.name == f"{short('x' * 246)}-validation.csv"


@pytest.mark.parametrize(
    "damage", [b"", b"5", b"{}", b"\xff", b'{"model": "m", "task": "reviews", "seed": 0}']
)
def test_a_damaged_line_is_named_and_its_run_made_again_without_it(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, damage: bytes
) -> None:
    out, asked = tmp_path / "out", options(zoo, reviews, tmp_path / "out", seeds=2)
    scores = out / "scores.jsonl"
    wanted = finetune(asked).rows
    first, second = scores.read_bytes().splitlines(keepends=True)
    scores.write_bytes(first + (damage or second[:40]))  # cut, where nothing else is said
    with pytest.raises(UserError, match=r"scores\.jsonl, line 2 is damaged"):
        finetune(asked)
    scores.write_bytes(first)
    assert finetune(asked).rows == wanted
    assert scores.read_bytes().splitlines(keepends=True)[0] == first


@pytest.mark.parametrize("mine", ["file", "folder"])
def test_a_place_of_a_saved_model_that_holds_something_else(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: str
) -> None:
    """It is refused before the training."""
    out, asked = tmp_path / "out", options(zoo, reviews, tmp_path / "out", save_model=True)
    finetune(asked)
    place = saved(out)
    shutil.rmtree(place)
    if mine == "folder":
        place.mkdir()
        (place / "thesis.tex").touch()
    else:
        place.touch()
    monkeypatch.setattr(verb, "finetune_one", lambda *args, **more: pytest.fail("trained"))
    with pytest.raises(UserError, match=r"holds no electrify\.json, so it is not ours"):
        finetune(asked)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_a_model_replaced_while_another_trains(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its scores would be kept under the hashes of what was there before."""
    model = shutil.copytree(zoo / "bert", tmp_path / "second")
    one = verb.finetune_one

    def replaced_meanwhile(*given: Any, **more: Any) -> Any:
        if given[0] == str(model):
            content = bytearray((model / name).read_bytes())
            at = content.rindex(b"}") - 1 if name != "model.safetensors" else len(content) - 2
            content[at:at] = b" " if name != "model.safetensors" else b""
            content[-2] ^= 1 if name == "model.safetensors" else 0
            (model / name).write_bytes(bytes(content))
        return one(*given, **more)

    monkeypatch.setattr(verb, "finetune_one", replaced_meanwhile)
    out = tmp_path / "out"
    two = {"models": (str(zoo / "bert"), str(model))}
    with pytest.raises(UserError, match="second was changed while the runs before it trained"):
        finetune(options(zoo, reviews, out, **two))
    assert len((out / "scores.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("name", ["x" * 300, "ä" * 300, "a/" * 200 + "b"])
def test_long_names(name: str) -> None:
    """Two of them make one name of a folder; the hash tells what was cut apart."""
    folder = f"{short(name.replace('/', '-'))}-{folder_name(name)}-seed{1 << 63}"
    assert len(folder.encode()) <= 255 - 40
    assert folder_name(name) != folder_name(name + "y")
    assert short(name) != short(name + "y")
    assert short("reviews") == "reviews"


def test_a_name_that_no_disk_takes(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said before the first update."""
    monkeypatch.setattr(verb, "finetune_one", None)
    deep = tmp_path.joinpath(*["d" * 200] * 19)
    deep = deep / ("e" * (4095 - 40 - len(str(deep))))
    with pytest.raises(UserError, match="the name is too long for this disk"):
        finetune(options(zoo, reviews, deep))
