"""The functions of `electrify` from Python: keywords, objects in memory, small results."""

import json
import logging
import math
import os
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from numpy.linalg import norm
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import electrify
from electrify import UserError, cli
from electrify.finetuning.predict import Predictor
from electrify.inputs import are_names, as_file, as_keywords, rows_of
from electrify.studies import run as studies
from small import SMALL

TEXTS = [f"the cat number {i} sat on mat {i % 7} near the house of {i} dogs" for i in range(300)]
PREPARED: dict[str, Any] = {"vocab_size": 200, "workers": 1}
FIELDS = SMALL | {"recipe": "electra-tiny", "max_steps": 4, "warmup_steps": 2, "eval_steps": 2}
FIELDS |= {"train_batch_size": 8, "threads": 1}
EXAMPLES = [(f"cat {i}", "pet") for i in range(20)] + [(f"house {i}", "place") for i in range(20)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> electrify.PreparedCorpus:
    folder = tmp_path_factory.mktemp("api") / "data"
    return electrify.prepare((text for text in TEXTS), output_dir=folder, **PREPARED)


@pytest.fixture(scope="module")
def run(corpus: electrify.PreparedCorpus) -> electrify.PretrainedRun:
    return electrify.pretrain(corpus, output_dir=corpus.folder.parent / "run", **FIELDS)


def test_names_are_told_from_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    for name in ("one text is always a name", tmp_path / "absent.txt"):
        with as_file(name) as path:
            assert path == str(name)
    assert are_names([str(tmp_path / "a.txt"), str(tmp_path / "*.txt"), "hub:wikitext", "pydocs"])
    assert not are_names(TEXTS)
    assert not are_names(text for text in TEXTS)


def test_texts_in_memory_are_those_of_a_file(corpus, tmp_path):
    """A generator, a data frame and a file of the same texts give the same corpus."""
    assert corpus.documents == 300
    frame = pd.DataFrame({"text": TEXTS, "other": range(300)})
    same = electrify.prepare(frame, output_dir=tmp_path / "frame", **PREPARED)
    assert same.tokens == corpus.tokens
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS))
    lines = {"document_boundary": "line"} | PREPARED
    read = electrify.prepare(file, output_dir=tmp_path / "file", **lines)
    shard = "tokens-train-00000.bin"
    assert (read.folder / shard).read_bytes() == (corpus.folder / shard).read_bytes()
    assert (same.folder / shard).read_bytes() == (corpus.folder / shard).read_bytes()


def test_a_tokenizer_of_transformers(corpus, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(corpus.folder / "tokenizer")
    for _ in range(2):  # the second call finds the same corpus
        given = {"output_dir": tmp_path / "data", "workers": 1, "tokenizer": tokenizer}
        assert electrify.prepare(TEXTS, **given).tokens == corpus.tokens


def test_classes_of_data_sets_are_names():
    datasets = pytest.importorskip("datasets")
    classes = datasets.ClassLabel(names=["O", "B-PER"])
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": classes, "tags": datasets.List(classes)}
    )
    given = {"text": ["a b", "c"], "label": [1, -1], "tags": [[1, 0], [0]]}
    assert list(rows_of(datasets.Dataset.from_dict(given, features=features))) == [
        {"text": "a b", "label": "B-PER", "tags": ["B-PER", "O"]},
        {"text": "c", "label": None, "tags": ["O"]},
    ]


def test_sentences_as_lists_have_the_columns_of_a_tagger() -> None:
    pairs = [(["a", "b"], ["O", "B-X"])]
    with as_file(pairs, "text", "text_pair", "label") as path:
        row = json.loads(Path(path).read_text())
    assert row == {"tokens": ["a", "b"], "tags": ["O", "B-X"]}


def test_a_run(run: electrify.PretrainedRun, corpus: electrify.PreparedCorpus) -> None:
    assert run.finished
    assert isinstance(run.discriminator, str)
    assert run.discriminator.is_dir()
    assert (run.discriminator / "config.json").is_file()
    with pytest.raises(AttributeError, match="no attribute 'hystory'; did you mean 'history'"):
        _ = run.hystory  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="did you mean 'doctor'"):
        _ = electrify.check
    assert run.step == 4
    assert (run.discriminator / "model.safetensors").is_file()
    assert {"rtd", "generator"} <= run.validation.keys()
    valid = [line for line in run.history if line["kind"] == "valid"]
    assert [line["step"] for line in valid] == [2, 4]
    assert run.validation["loss"] == valid[1]["eval_loss"]
    assert valid[0].eval_loss == pytest.approx(valid[0]["generator"] + 50 * valid[0]["rtd"])
    assert ["loss" in line for line in run.history] == [
        line["kind"] == "train" for line in run.history
    ]
    assert run.output_dir == run.folder
    assert run.history[-1]["loss"] == run.loss
    assert len(corpus.tokenizer) == corpus.vocab_size


def test_a_log_without_a_loss_and_with_one_that_is_not_finite(run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    log = tmp_path / "run" / "metrics.jsonl"
    valid = {"kind": "valid", "step": 9, "rtd": "inf", "generator": 1.0}
    log.write_text(json.dumps(valid) + "\n")
    stopped = replace(run, folder=log.parent)
    assert stopped.history[0]["eval_loss"] == math.inf
    with pytest.raises(UserError, match="no loss is logged up to step 4"):
        _ = stopped.loss


def test_one_text_and_several(run: electrify.PretrainedRun) -> None:
    one, (first, _) = "the cat", electrify.embed(run.discriminator, ["the cat", "a house"])
    assert electrify.embed(run.discriminator, one).shape == first.shape == (32,)
    alone = electrify.detect(run.discriminator, one)
    both = electrify.detect(run.discriminator, [one, "a house"])
    assert [word.token for word in alone.words] == ["the", "cat"]
    assert both[0].text == alone.text == one


def test_an_encoder_that_stays_loaded(run: electrify.PretrainedRun) -> None:
    """It takes the folder of the run, and gives what the functions give."""
    encoder = electrify.load(run.folder)
    vector = encoder.embed("the cat", normalize_embeddings=True)
    plain = electrify.embed(run.folder, ["the cat"])[0]
    assert vector @ vector == pytest.approx(1)
    assert vector == pytest.approx(plain / (plain @ plain) ** 0.5, abs=1e-6)
    found = encoder.detect("the cat")
    logs = [math.log(1 - token.probability) for token in found.tokens]
    assert encoder.score("the cat") == pytest.approx(sum(logs), abs=1e-4)
    assert encoder.score(["the cat"] * 2).tolist() == [encoder.score("the cat")] * 2
    several = ["the cat", "a house", "the cat on the mat"]
    one_by_one = encoder.encode(several, batch_size=1, show_progress_bar=True)
    assert one_by_one == pytest.approx(encoder.encode(several), abs=1e-6)
    first = encoder.embed(several, pooling="cls")
    assert first == pytest.approx(electrify.embed(run, several, pooling="cls"))
    assert abs(first - one_by_one).max() > 0.01
    assert encoder.encode(several, convert_to_tensor=True).shape == (3, 32)
    highest = max(found.probabilities)
    marked = encoder.detect("the cat", threshold=highest).words
    assert [word.replaced for word in marked].count(True) == 1
    above = encoder.detect("the cat", threshold=highest + 1e-6)
    assert not any(word.replaced for word in above)
    assert [probability for _, probability in above] == found.probabilities
    assert [word["word"] for word in found] == [word.word for word in found] == ["the", "cat"]
    assert [word.score for word in found] == [word.probability for word in found.words]
    own = electrify.Encoder.from_pretrained(run).encode(["the cat", "a house"])
    assert encoder.similarity(vector, own)[0] == pytest.approx([1, vector @ own[1] / norm(own[1])])
    assert encoder.similarity("the cat", "a house") == pytest.approx(
        float(electrify.similarity(run, ["the cat"], ["a house", "cat"])[0, 0])
    )
    same = (text for text in ("the cat", "a house"))
    assert encoder.similarity(same, own).shape == (2, 2)
    assert encoder.dim == encoder.hidden_size == own.shape[1]
    assert pickle.loads(pickle.dumps(encoder)).embed("the cat").shape == vector.shape
    named = electrify.similarity(model=run, a="the cat", b="a house")
    assert named == pytest.approx(encoder.similarity("the cat", "a house"))
    for given, says in (
        (["a", None], "text 2 is None"),
        ([{"text": "a"}, {"txt": "b"}], "row 2 has no column 'text'"),
        ([{"text": "a"}, "b"], "row 2 has no column 'text'"),
    ):
        with pytest.raises(UserError, match=says):
            encoder.embed(given)


def test_models_for_others(run: electrify.PretrainedRun, tmp_path: Path) -> None:
    folder = electrify.export(run, tmp_path / "st", format="sentence-transformers")
    assert {"modules.json", "model.safetensors"} <= {p.name for p in folder.iterdir()}
    assert (electrify.export(run, tmp_path / "mlm", part="generator") / "config.json").is_file()
    listed = electrify.push(run, "someone/encoder", dry_run=True)
    assert listed["model.safetensors"] == (run.discriminator / "model.safetensors").stat().st_size


def test_nothing_is_printed_unless_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("electrify")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    logger.manager._clear_cache()  # type: ignore[attr-defined] # of isEnabledFor
    electrify.prepare(TEXTS, output_dir=tmp_path / "data", **PREPARED)
    assert capfd.readouterr() == ("", "")
    electrify.show_progress()
    electrify.prepare(TEXTS, output_dir=tmp_path / "other", **PREPARED)
    assert "training a wordpiece vocabulary" in capfd.readouterr().err


def test_flops() -> None:
    by_hardware = electrify.flops("electra-small")
    assert f"{by_hardware:.3e}" == f"{by_hardware.train:.3e}"
    assert by_hardware.parameters == electrify.flops("electra-small", convention="paper").parameters
    assert by_hardware.train == by_hardware.step * by_hardware.max_steps
    both = electrify.flops(["electra-small", "bert-tiny"])
    same = electrify.flops(electrify.load_recipe("electra-small"))
    assert both["electra-small"] == by_hardware == same
    assert electrify.flops("electra-small", batch_size=64).train == by_hardware.train / 2
    assert electrify.flops([electrify.load_recipe("electra-small")])["0"] == by_hardware


def test_a_comparison(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "probed", lambda study, trial: 1e-6)
    stsb = tmp_path / "STS-B"
    stsb.mkdir()
    rows = "".join(f"{i}\t{text}\tthe cat\t{i % 6}.0\n" for i, text in enumerate(TEXTS[:40]))
    for part in ("train", "dev"):
        (stsb / f"{part}.tsv").write_text("index\tsentence1\tsentence2\tscore\n" + rows)
    found = electrify.compare(
        corpus,
        ["bert-tiny:num_hidden_layers=1,warmup_steps=1"],
        budgets=[2],
        equal="epochs",
        tasks=["stsb:cosine"],
        data_dir=str(tmp_path),
        seeds=1,
        output_dir=tmp_path / "study",
        baselines=False,
        lr_scheduler_type="recipe",
    )
    assert not found.failed
    assert str(found) == found.table
    frame = found.to_pandas()
    assert {"stsb:cosine"} <= set(frame["task"])
    names = ["bert-tiny:num_hidden_layers=1,warmup_steps=1"]
    how: dict[str, Any] = {"budgets": [2], "equal": "epochs", "tasks": ["stsb:cosine"]}
    how |= {"data_dir": str(tmp_path), "baselines": False, "lr_scheduler_type": "recipe"}
    how |= {"seeds": [3, 4], "output_dir": tmp_path / "other", "plan_only": True}
    plan = electrify.compare(names, corpus=corpus, **how)
    assert [(row["seeds"], row["done"]) for row in plan.lines] == [(2, 0)]
    assert not (tmp_path / "other" / "encoders").exists()


def test_examples_in_memory(
    run: electrify.PretrainedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = electrify.finetune(
        run.discriminator,
        train_dataset=EXAMPLES,  # as the Trainer of transformers has it
        output_dir=tmp_path / "out",
        seeds=[3, 4],
        epochs=1,
        threads=1,
    )
    assert len(done.scores["accuracy"].values) == 2
    assert done.scores["accuracy"].mean == sum(done.scores["accuracy"].values) / 2
    assert done.scores["accuracy"].std is not None
    one = done.predict("cat 3")
    assert one.label in ("pet", "place")
    assert one.score == one.probabilities[one.label] == max(one.probabilities.values())
    assert done.model is not None
    by_transformers = AutoModelForSequenceClassification.from_pretrained(done.folder)
    assert set(by_transformers.config.id2label.values()) == {"pet", "place"}
    both = electrify.predict(done.model, ["cat 3", "house"])
    assert both[0] == one
    assert electrify.predict(done, pd.Series(["cat 3", "house"])) == both
    assert electrify.predict(done, pd.DataFrame({"text": ["cat 3", "house"], "n": 1})) == both
    assert electrify.load(done).predict("cat 3") == one
    assert done.metrics["accuracy"] == float(done.scores["accuracy"])
    assert str(done) == done.table
    texts, labels = zip(*EXAMPLES, strict=True)
    assert done.labels == ["pet", "place"]
    assert done.accuracy == done.metrics.accuracy
    again = {"output_dir": tmp_path / "out", "seeds": [3, 4], "epochs": 1, "threads": 1}
    same = electrify.finetune(run.discriminator, list(texts), list(labels), **again)
    named = electrify.finetune(run, texts=texts, labels=labels, **again)
    assert named.scores == same.scores == done.scores
    right = [done.predict(text).label == label for text, label in EXAMPLES]
    frame = pd.DataFrame({"text": texts, "label": labels})
    scored = electrify.evaluate(done, frame)
    assert scored == done.evaluate(EXAMPLES) == done.evaluate(texts=texts, labels=labels)
    assert electrify.doctor(done).ok
    assert electrify.evaluate([done], frame) == {str(done.folder): scored}
    assert electrify.evaluate(done, texts=list(texts), labels=list(labels)) == scored
    assert electrify.evaluate(done, test_file=frame) == scored
    assert electrify.evaluate(done, {"text": list(texts), "label": list(labels)}) == scored
    assert scored["accuracy"] == sum(right) / len(right)
    with pytest.raises(UserError, match=r"given rows, line .*: label 'boat' is none of"):
        done.evaluate([*EXAMPLES, ("a", "boat")])
    assert done.path == done.model
    frame = pd.DataFrame({"review": ["cat 3", "house"]})
    assert electrify.predict(done, frame, text_column="review") == both
    with pytest.raises(UserError, match="none of the columns"):
        done.predict(frame)
    with pytest.raises(KeyError, match="known: accuracy"):
        done.scores["f1"]
    assert done.metrics.accuracy == done.metrics["accuracy"]
    done.save_pretrained(tmp_path / "copy")
    electrify.load(tmp_path / "copy").save_pretrained(tmp_path / "again")
    done.save_pretrained(tmp_path / "again")
    with pytest.raises(UserError, match="not ours to write into"):
        done.save_pretrained(tmp_path)
    assert electrify.predict(tmp_path / "again", "cat 3") == one
    used, call = list[int](), Predictor.__call__
    counting = lambda *given: used.append(torch.get_num_threads()) or call(*given)  # noqa: E731
    monkeypatch.setattr(Predictor, "__call__", counting)
    monkeypatch.setattr("electrify.train.machine.cores", lambda: 3)
    done.predict("cat 3", threads=3)
    file = tmp_path / "examples.csv"
    file.write_text("text,label\ncat 3,pet\nhouse 3,place\n")
    assert cli.main(["evaluate", done.model, "--test-file", str(file), "--threads", "3"]) == 0
    assert used == [3, 3]


def test_pairs_of_sentences_and_lists_without_scores(run: electrify.PretrainedRun) -> None:
    pairs = [("the cat is here", "the cat are here"), ("a house", "a houses")]
    loaded = electrify.load(run)  # a model that is loaded stands for its folder
    found = electrify.evaluate(run.folder, pairs=pairs)
    liked = [good > bad for good, bad in (electrify.score(run, list(pair)) for pair in pairs)]
    assert found.accuracy == found["accuracy"] == sum(liked) / 2
    best = electrify.rerank(loaded, [list(pair) for pair in pairs])
    assert loaded.rerank([list(pair) for pair in pairs]) == best
    assert list(best.chosen) == [int(not good) for good in liked]
    scored = [(text, 0.0) for text in pairs[0]]
    assert electrify.rerank(loaded, [scored], weight=1.0).texts == best.texts[:1]
    alone = electrify.rerank(loaded, list(pairs[0]))
    assert alone == electrify.rerank(loaded, scored, weight=1.0) == best.rankings[0]
    assert [one.score for one in alone] == sorted(electrify.score(run, list(pairs[0])))[::-1]
    assert [pairs[0][one.index] for one in alone] == [one.text for one in alone]
    assert loaded.rerank(list(pairs[0]), top_k=1) == alone[:1]
    for wrong, says in (({"top_k": 1}, "for one list"), ({"device": "cpu"}, "give it to load")):
        with pytest.raises(UserError, match=says):
            loaded.rerank([list(pair) for pair in pairs], **wrong)
    with pytest.raises(UserError, match="pairs have no labels"):
        electrify.evaluate(run, pairs=pairs, labels=[1])


@pytest.mark.parametrize(
    ("name", "given", "fields", "says"),
    [
        ("pretrain", ("data",), {"max_stepz": 3}, "did you mean 'max_steps'"),
        ("pretrain", ("data",), {"num_epochs": 1}, "did you mean 'max_steps'"),
        ("pretrain", ("electra-tiny", "data"), {}, "is a recipe"),
        ("prepare", ({"train": TEXTS},), {}, "Give one of its parts"),
        ("predict", ("m", ["a"]), {"top_k": 2}, "predict.. has no argument 'top_k'"),
        ("finetune", ("m", ["a", "b"]), {"labels": [1]}, "2 texts, but 1 labels"),
        ("finetune", ("m", [("a",) * 4]), {}, "row 1 is"),
        ("finetune", ("m", EXAMPLES), {"seeds": [0, 3]}, "seeds must be a number"),
        ("compare", ("data", ["bert-tiny"]), {"max_steps": 9}, "did you mean 'budgets'"),
        ("pretrain", ("data",), {"lr": 1.0, "learning_rate": 2.0}, "second value"),
        ("finetune", ("m", EXAMPLES), {"seeds": []}, "seeds must be"),
        ("finetune", ("m", EXAMPLES), {"seeds": ["a"]}, "seeds must be"),
        ("finetune", ("m", {"text": ["a", "b"], "label": [1]}), {}, "lengths: text 2, label 1"),
        ("evaluate", ("a/b/c", "blimp"), {}, "a/b/c: no such folder"),
        ("compare", ("data", ["bert-tiny"]), {}, "budgets are missing. Give FLOPs"),
        ("compare", ("data", ["bert-tiny"]), {"steps": 9}, "did you mean 'budgets'"),
        ("pretrain", (), {"recipe": "electra-tiny"}, "missing a required argument: 'data'"),
        ("pretrain", ("a", "electra-tiny"), {"corpus": "b"}, "multiple values for argument 'data'"),
        ("prepare", ("a.txt",), {"texts": "b.txt"}, "multiple values for argument 'texts'"),
        ("export", ("m",), {"output_dir": "onnx"}, "onnx is a format"),
        ("export", ("./m",), {"output_dir": "onnx", "format": "onnx"}, r"^\./m|'\./m'"),
        ("rerank", ("m", [["a", "b"]]), {"tune_file": "x"}, "has no argument 'tune_file'"),
        ("finetune", ("m", EXAMPLES), {"seed": 7, "seeds": [1, 2]}, "give one of the two"),
    ],
)
def test_mistakes(name: str, given: tuple[Any, ...], fields: dict[str, Any], says: str) -> None:
    fields = ({} if name in ("predict", "rerank") else {"output_dir": "x"}) | fields
    with pytest.raises(UserError, match=says):
        getattr(electrify, name)(*given, **fields)


def test_sentences_name_keywords() -> None:
    given = "give --text-column or --no-header; `a --flag` and models--org--name stay"
    wanted = "give text_column or header=False; `a --flag` and models--org--name stay"
    assert as_keywords(given) == wanted


def test_a_recipe_by_its_path_and_a_run_that_is_to_be_longer(corpus, run, tmp_path) -> None:
    path, fields = tmp_path / "mine.yaml", {k: v for k, v in FIELDS.items() if k != "recipe"}
    path.write_text("like: electra-tiny\n")
    named = {"batch_size": fields["train_batch_size"], **fields}  # as other libraries say
    del named["train_batch_size"]
    same = electrify.pretrain(corpus, path, output_dir=run.folder, resume=True, **named)
    assert same.step == run.step
    recipe = electrify.override(electrify.load_recipe(path), fields)
    assert recipe.max_steps == recipe.train.max_steps == fields["max_steps"]
    assert electrify.pretrain(corpus, recipe, output_dir=run.folder).step == run.step
    assert electrify.pretrain(recipe, corpus=corpus, output_dir=run.folder).step == run.step
    assert electrify.pretrain(corpus, output_dir=run.folder).step == run.step  # with its own recipe
    with pytest.raises(UserError, match=r"To train longer, .* init_discriminator=.*discriminator"):
        electrify.pretrain(corpus, path, output_dir=run.folder, **fields | {"max_steps": 6})
    assert electrify.doctor(run.folder).ok
    assert {found.level for found in electrify.doctor(run.folder).problems} == {"warning"}


def test_a_run_names_no_code(run, corpus, tmp_path) -> None:
    """The recipe of a run that is resumed is read, and no module that it names is imported."""
    copy = tmp_path / "run"
    shutil.copytree(run.folder, copy)
    path = copy / "config.yaml"
    path.write_text(path.read_text().replace("objective: rtd", "objective: antigravity:Thing"))
    with pytest.raises(UserError, match="antigravity"):
        electrify.pretrain(corpus, output_dir=copy)
    assert "antigravity" not in sys.modules


def test_recipes() -> None:
    found = electrify.recipes()
    assert found["electra-small"]["layers"] == 12
    assert found["electra-small"]["FLOPs"] == pytest.approx(1.2e18, rel=0.05)
    row, recipe = found["electra-tiny"], electrify.load_recipe("electra-tiny")
    assert (row.name, row["batch_size"]) == ("electra-tiny", recipe.train_batch_size)
    assert row.learning_rate == recipe.learning_rate
    with pytest.raises(KeyError, match="electra-tiny"):
        found["electra-tinny"]


def test_every_name_is_there() -> None:
    for name in electrify.__all__:
        assert getattr(electrify, name).__doc__, name
    assert os.fspath(electrify.PreparedCorpus(Path("a"), 1, 1, 1, {})) == "a"


CONTEXT = "the cat sat on the mat near the house"
KINDS: dict[str, list[Any]] = {
    "regression": [(f"cat {i}", i / 7) for i in range(14)],
    "pairs": [(f"cat {i}", f"house {i % 3}", "same" if i % 2 else "other") for i in range(14)],
    "multilabel": [(f"cat {i}", ["a", "b"][: 1 + i % 2]) for i in range(14)],
    "tagging": [{"tokens": ["the", "cat", str(i)], "tags": ["O", "B-X", "I-X"]} for i in range(14)],
    "answering": [
        {"question": f"who sat {i}", "context": CONTEXT, "answers": ["the cat"]} for i in range(14)
    ],
}


LABELS = {"pairs": ["other", "same"], "multilabel": ["a", "b"], "tagging": ["B-X", "I-X", "O"]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_scores_as_it_was_scored(kind: str, run, tmp_path: Path) -> None:
    """The examples in another order, so that classes have other numbers."""
    examples = KINDS[kind]
    how: dict[str, Any] = {"epochs": 1, "threads": 1, "baselines": False}
    asked = {"tagging": "token-classification", "answering": "question-answering"}
    how |= {"task": asked.get(kind, "regression" if kind == "regression" else ())}
    done = electrify.finetune(run, examples, examples[:8], output_dir=tmp_path / "out", **how)
    assert done.labels == LABELS.get(kind, [])
    scored = electrify.load(done).evaluate(examples[:8][::-1])
    for name, score in done.scores.items():  # predictions are rounded to seven digits
        assert scored[name] == pytest.approx(score.mean, abs=1e-3, nan_ok=True), name
