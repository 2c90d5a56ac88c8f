"""Arguments of the package's functions that only a caller in Python can give: one sentence each, or
what they plainly mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from electrify import (
    FinetuneConfig,
    PrepareConfig,
    PretrainConfig,
    UserError,
    detect,
    export_run,
    finetune,
    load_recipe,
    override,
    prepare,
    pretrain,
)
from electrify.config.architectures import ModernBertOptions
from electrify.config.checks import check
from electrify.config.corruptors import MixtureOptions
from electrify.config.evaluate import EvaluateConfig
from electrify.config.finetune_settings import FinetuneSettings
from electrify.config.objective_options import CorrectiveOptions, RTDOptions
from electrify.config.sections import DataConfig, ObjectiveConfig
from electrify.scoring.evaluate import evaluate
from small import SMALL, prepare_small

ANY: Any = None


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_small(tmp_path_factory.mktemp("corpus") / "data")


def config(**fields: Any) -> PretrainConfig:
    few = {"max_steps": 1, "save_steps": 1, "warmup_steps": 1, "threads": 1}
    return override(load_recipe("electra-tiny"), SMALL | few | fields)


def tune(**fields: Any) -> FinetuneConfig:
    given = {"models": ("m",), "output_dir": "out", "task": ("sst2",), "data_dir": "glue"}
    return FinetuneConfig(**(given | fields))


def ready(**fields: Any) -> PrepareConfig:
    return PrepareConfig(**({"inputs": ("a",), "output_dir": "out"} | fields))


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "batch -1": (lambda: detect("m", ["a"], batch_size=-1), "batch_size must be at least 1"),
    "batch 1.5": (lambda: detect("m", ["a"], batch_size=ANY or 1.5), "batch_size must be of type"),
    "length 16.5": (lambda: detect("m", ["a"], max_seq_length=ANY or 16.5), "max_seq_length must"),
    "one text": (lambda: detect("m", ANY or "cat"), "texts must be a list of texts, not 'cat'"),
    "bytes": (lambda: detect("m", ANY or b"cat"), "texts must be a list of texts, not b'cat'"),
    "no texts": (lambda: detect("m", ANY), "texts must be a list of texts, not None"),
    "None": (lambda: detect("m", [ANY]), "text 1 must be of type str, not None"),
    "a number": (lambda: detect("m", ["a", ANY or 5]), "text 2 must be of type str, not 5"),
    "surrogate": (lambda: detect("m", ["a \ud800"]), "text 1 holds half a surrogate pair"),
    "model": (lambda: detect(ANY or b"m", ["a"]), "model must be of type str, not b'm'"),
    "models": (lambda: tune(models="path"), "models must be a list or a tuple, not 'path'"),
    "task": (lambda: tune(task="sst2"), "task must be a list or a tuple, not 'sst2'"),
    "seeds": (lambda: tune(seeds="1"), "seeds must be of type int, not '1'"),
    "seeds 1.0": (lambda: tune(seeds=1.0), "seeds must be of type int, not 1.0"),
    "settings": (lambda: tune(settings={}), "settings must be a FinetuneSettings, not {}"),
    "bf16": (lambda: FinetuneSettings(bf16=ANY or True), "bf16 cannot be True"),
    "scored": (
        lambda: EvaluateConfig(models=ANY or "m", data_dir="d"),
        "models must be a list or a tuple",
    ),
    "vocabulary": (lambda: ready(vocab_size=256.0), "vocab_size must be of type int, not 256.0"),
    "inputs": (lambda: ready(inputs="a"), "inputs must be a list or a tuple"),
    "rows": (lambda: DataConfig(max_seq_length=ANY or "8"), "max_seq_length must be of type int"),
    "sections": (
        lambda: PretrainConfig(model=ANY, corruption=ANY, objective=ANY, data=ANY, train=ANY),
        "model must be a ModelConfig, not None",
    ),
    "prepare": (lambda: prepare(ANY), "config must be a PrepareConfig, not None"),
    "finetune": (lambda: finetune(ANY), "config must be a FinetuneConfig, not None"),
    "evaluate": (lambda: evaluate(ANY), "config must be an EvaluateConfig, not None"),
    "recipe None": (lambda: load_recipe(ANY), "a recipe's name must be of type str, not None"),
    "recipe bytes": (lambda: load_recipe(ANY or b"x"), "a recipe's name must be of type str"),
    "pairs": (
        lambda: override(config(), ANY or [("max_steps", 5)]),
        "the fields must be a dict, not",
    ),
    "key": (lambda: override(config(), ANY or {5: 5}), "there is no field 5"),
    "export": (
        lambda: export_run(ANY or b"run", output_dir=Path("out")),
        "the run must be a path, as text or as a Path, not b'run'",
    ),
    "part": (lambda: export_run("r", output_dir="o", part=ANY), "part cannot be None"),
    "step": (lambda: export_run("r", output_dir="o", step=ANY or 4.0), "step must be of type int"),
    "name of a recipe": (
        lambda: pretrain("data", output_dir="o", config=ANY or "electra-tiny"),
        "config must be a PretrainConfig, not 'electra-tiny'; load_recipe",
    ),
    "an option": (
        lambda: replace(config().objective, options=RTDOptions(loss_on=ANY or "chosn")),
        "loss_on cannot be 'chosn'; did you mean 'chosen'",
    ),
    "options": (
        lambda: ObjectiveConfig(objective="rtd", options={"loss_on": "all"}),
        "options must be the RTDOptions of objective rtd, not {'loss_on': 'all'}; change a recipe",
    ),
    "a share": (
        lambda: CorrectiveOptions(mlm_share=ANY or "0.4"),
        "mlm_share must be of type float, not '0.4'",
    ),
    "objective": (
        lambda: replace(load_recipe("corrective-tiny").objective, objective="rtd"),
        "options must be the RTDOptions of objective rtd, not CorrectiveOptions",
    ),
    "architecture": (
        lambda: replace(config().model, architecture="modernbert"),
        "options must be the ModernBertOptions of architecture modernbert, not NoOptions",
    ),
    "corruptor": (
        lambda: replace(config().corruption, corruptor="mixture"),
        "options must be the MixtureOptions of corruptor mixture, not NoOptions",
    ),
    "a window": (
        lambda: ModernBertOptions(local_attention=ANY or 64.0),
        "local_attention must be of type int, not 64.0",
    ),
    "read-outs": (lambda: MixtureOptions(read_outs=ANY or 2), "read_outs must be a list"),
    "a wait": (lambda: check(config(ddp_timeout=float("inf"))), "ddp_timeout inf is more than"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_one_sentence(name: str) -> None:
    call, sentence = WRONG[name]
    with pytest.raises(UserError, match=sentence) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_what_is_plainly_meant_is_taken(data: Path, tmp_path: Path) -> None:
    found = tune(models=[Path("m")], threads=1, seeds=np.int64(2), train_file=None)
    assert (found.models, found.threads, found.seeds) == (("m",), "1", 2)
    assert ready(inputs=[Path("a")], output_dir=Path("out")) == ready()
    assert load_recipe(Path("electra-tiny")) == load_recipe("electra-tiny")  # type: ignore
    assert config(init_discriminator=Path("m")).train.init_discriminator == "m"
    run = tmp_path / "run"
    pretrain(str(data), output_dir=str(run), config=config())
    out = export_run(str(run), output_dir=str(tmp_path / "out"))
    (found,) = detect(out, ["a cat"], threads=1)  # type: ignore
    assert len(found.tokens) > 0
