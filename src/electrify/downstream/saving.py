"""A fine-tuned encoder as a Hugging Face folder: ForSequenceClassification, ForTokenClassification
or ForQuestionAnswering (the plain head), whose own head is given the form of ours
(architectures/fine_tuned.py) and checked on a real input before the folder is written.

A folder saved in this way classifies as the run did; it is not a good start for training its head
further (its dropout is off).
"""

from __future__ import annotations

import copy
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from ..architectures import fine_tuned_heads
from ..architectures.fine_tuned import LinearOutput
from ..errors import UserError
from ..export.folders import load_config
from ..export.places import MARK, RANDOM
from ..export.quiet import quiet
from ..files import json_text, written
from ..text.tokenizer_files import read_settings, without_origin, write_settings
from .encoder import Loaded
from .heads import Finetuned
from .problems.problem import Problem
from .problems.texts import Texts
from .reading import KEY, Reading
from .tasks import TaskData

WEIGHTS = "model.safetensors"
_PROBLEMS = {
    "regression": "regression",
    "multilabel": "multi_label_classification",
    "classification": "single_label_classification",
}


def can_save(model: str) -> None:
    """Raises UserError for a model type whose head is not known."""
    kind = load_config(model.removeprefix(RANDOM)).model_type
    known = fine_tuned_heads()
    if kind not in known:
        raise UserError(f"{model}: --save-model knows {', '.join(known)}, not {kind!r}")


def save(
    net: Finetuned,
    loaded: Loaded,
    task: TaskData,
    folder: Path,
    *,
    problem: Problem,
    reading: Reading | None = None,
) -> None:
    """Writes the folder whole or not at all. A folder of a regression predicts values on their
    original scale. reading: noted in config.json."""
    tokenizer = _tokenizer(loaded)
    config = _config(loaded, task, reading)
    model = _with_head(_class_of(task), config, net, problem)
    _compare(net, model, problem, task)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with written(folder) as part, quiet():
            model.save_pretrained(part)
            # The library makes a file that only its owner may read.
            shutil.copymode(part / "config.json", part / WEIGHTS)
            tokenizer.save_pretrained(part)
            write_settings(part, without_origin(read_settings(part)))
            mark = json_text({"part": "fine-tuned", "task": task.name}, indent=1)
            (part / MARK).write_text(f"{mark}\n", encoding="utf-8")
    except MemoryError:
        raise
    # An error of the disk has its own type in each of three libraries, one of which raises bare
    # Exceptions.
    except Exception as e:
        raise UserError(
            f"{folder} could not be written "
            f"({getattr(e, 'strerror', None) or ' '.join(str(e).split())[:200]})"
        ) from e


def _config(loaded: Loaded, task: TaskData, reading: Reading | None) -> Any:
    """The encoder's configuration, with the names of the outputs."""
    config = type(loaded.encoder.config).from_dict(loaded.encoder.config.to_dict())
    config.classifier_dropout = 0.0
    config.dtype = torch.float32
    config.problem_type = _PROBLEMS.get(task.kind)
    names = task.labels or (("start", "end") if task.kind == "answering" else ("score",))
    config.id2label = dict(enumerate(names))
    config.label2id = {name: i for i, name in enumerate(names)}
    if reading is not None:
        setattr(config, KEY, reading.record())
    return config


def _tokenizer(loaded: Loaded) -> Any:
    """The tokenizer, with the names of the inputs that the model reads: without these it gives no
    token types, and the second text of a pair would look like the first."""
    tokenizer = copy.deepcopy(loaded.tokenizer)
    types = ["token_type_ids"] if loaded.segments else []
    names = ["input_ids", *types, "attention_mask"]
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    return tokenizer


def _class_of(task: TaskData) -> Any:
    match task.kind:
        case "tagging":
            return AutoModelForTokenClassification
        case "answering":
            return AutoModelForQuestionAnswering
        case _:
            return AutoModelForSequenceClassification


def _with_head(cls: Any, config: Any, net: Finetuned, problem: Problem) -> Any:
    """A model of the library with our encoder and our head, in the form that its class has."""
    form = fine_tuned_heads()[config.model_type]
    form.configure(config)
    with quiet():
        model: Any = cls.from_config(config)
    model.base_model.load_state_dict(net.encoder.state_dict(), strict=False)
    head = net.head.out.cpu()
    whole = isinstance(problem, Texts)
    output = LinearOutput(head, problem.scale, problem.center) if whole else LinearOutput(head)
    form.write(model, output, whole=whole)
    return model


def _compare(net: Finetuned, model: Any, problem: Problem, task: TaskData) -> None:
    """Raises UserError if the model to be saved computes other logits than the one that was
    scored."""
    examples: Any = task.validation[:1]
    rows: Any = problem.held_out(examples).data
    batch = rows.batch(torch.zeros(1, dtype=torch.long))
    inputs = {name: x.cpu() for name, x in batch.inputs.items()}
    batch = dataclasses.replace(batch, inputs=inputs, lengths_B=batch.lengths_B.cpu())
    net.eval().cpu()
    with torch.no_grad():
        states_BLD = net.encoder(**inputs).last_hidden_state.float()
        output = model.eval()(**inputs)
    if isinstance(problem, Texts):
        found, wanted = output.logits, net.head(states_BLD, batch) * problem.scale + problem.center
    else:
        answering = task.kind == "answering"
        logits = (output.start_logits, output.end_logits) if answering else (output.logits,)
        found, wanted = torch.stack(logits, -1).flatten(2), net.head.out(states_BLD)
    if not torch.allclose(found, wanted, atol=1e-4, rtol=1e-4):
        raise UserError(
            "--save-model: the saved head computes other numbers (by "
            f"{(found - wanted).abs().max():.2e}); the model was not written"
        )
