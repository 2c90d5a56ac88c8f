"""The functions of the package in a program that has changed torch, its streams or matplotlib."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import torch

from electrify import (
    DoctorConfig,
    FinetuneConfig,
    detect,
    diagnose,
    export_run,
    finetune,
    load_recipe,
    override,
    pretrain,
)
from electrify.config.evaluate import EvaluateConfig
from electrify.config.finetune_settings import FinetuneSettings
from electrify.scoring.evaluate import evaluate
from small import SMALL, parameters_sha256, prepare_small

FIELDS = SMALL | {"max_steps": 2, "save_steps": 2, "warmup_steps": 1, "threads": "1"}


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "meta": lambda: default_device("meta"),
    "no gradients": lambda: torch.set_grad_enabled(False),
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


class Place:
    """A corpus, and what each function gives about it in the state of torch now."""

    def __init__(self, folder: Path) -> None:
        self.data = prepare_small(folder / "data")
        self.run = folder / "run"
        self.model = self.run / "discriminator"
        (folder / "blimp").mkdir()
        (folder / "blimp" / "a.jsonl").write_text(
            '{"sentence_good": "the cat sat", "sentence_bad": "cat the sat on"}\n'
        )
        (folder / "t.tsv").write_text(
            "text\tlabel\n" + "".join(f"a text {i}\t{'ab'[i % 2]}\n" for i in range(8))
        )
        self.folder = folder
        pretrain(self.data, output_dir=self.run, config=self.config())

    def config(self, **fields: Any) -> Any:
        return override(load_recipe("electra-tiny"), FIELDS | fields)

    def pretrain(self, out: Path) -> str:
        pretrain(self.data, output_dir=out, config=self.config())
        return parameters_sha256(out, 2)

    def finetune(self, out: Path) -> list[Any]:
        file = str(self.folder / "t.tsv")
        settings = FinetuneSettings(num_train_epochs=1, device="cpu")
        config = FinetuneConfig(
            models=(str(self.model),),
            output_dir=str(out),
            train_file=file,
            validation_file=file,
            seeds=1,
            threads="1",
            settings=settings,
        )
        report = finetune(config)
        assert (out / "report.png").is_file()
        return [(r["scores"], r["curve"]) for r in report.records]

    def detect(self, _: Path) -> list[float]:
        (found,) = detect(str(self.model), ["the cat sat"], threads="1")
        return [p.probability for p in found.tokens]

    def export(self, out: Path) -> str:
        weights = export_run(self.run, output_dir=out) / "model.safetensors"
        return hashlib.sha256(weights.read_bytes()).hexdigest()

    def diagnose(self, _: Path) -> str:
        return diagnose(DoctorConfig(paths=(str(self.run), str(self.data)))).text()

    def evaluate(self, _: Path) -> list[Any]:
        return evaluate(
            EvaluateConfig(
                models=(str(self.run / "generator"),),
                data_dir=str(self.folder / "blimp"),
                device="cpu",
                threads="1",
            )
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


FUNCTIONS = ("pretrain", "finetune", "detect", "export", "diagnose", "evaluate")
AS_USUAL: dict[str, Any] = {}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_results_are_those_of_an_untouched_torch(
    place: Place, tmp_path: Path, function: str, state: str
) -> None:
    if function not in AS_USUAL:
        AS_USUAL[function] = getattr(place, function)(tmp_path / "usual")
    with STATES[state]():
        before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_default_device()
        found = getattr(place, function)(tmp_path / "out")
        assert before == (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.get_default_device(),
        )
    assert found == AS_USUAL[function]


def test_matplotlib_set_by_the_user_draws_our_plots(place: Place, tmp_path: Path) -> None:
    with mpl.rc_context({"text.usetex": True, "font.size": 30}):
        place.finetune(tmp_path / "out")
        assert mpl.rcParams["text.usetex"] is True


class Half:
    """A stream as some notebooks have it."""

    def write(self, text: str) -> None: ...

    def flush(self) -> None: ...


@pytest.mark.parametrize("stream", [None, Half()])
def test_streams_that_are_none_or_half(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: Any
) -> None:
    if stream is None:  # transformers itself needs a whole stdout, or none
        monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", stream)
    place.pretrain(tmp_path / "run")
    place.finetune(tmp_path / "out")
