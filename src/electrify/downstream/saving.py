"""A fine-tuned encoder as a Hugging Face folder: ForSequenceClassification, ForTokenClassification
or ForQuestionAnswering (the plain head).

Token heads are linear in the library as here. Its heads for whole texts have a hidden layer, while
ours is linear. Ours can be expressed as theirs with sufficient accuracy (checked on a real input
before the folder is written):

- ELECTRA (gelu): the hidden layer computes gelu(z) - gelu(-z), z = Wx+b, because that is z.
- BERT and RoBERTa (tanh): it computes tanh(s z) / s, because that is z up to (s z)^2 / 3;
  s = 2^-12, so 2e-6 of z at z = 10.
- Classes for which there are not enough hidden units: the hidden layer hands the states on, as
  tanh(s x), or as gelu(x + c) with c so large that this is x + c, up to rounding.

A folder saved in this way classifies as the run did; it is not a good start for training its head
further (its dropout is off).
"""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from ..errors import UserError
from ..export.folders import load_config
from ..export.places import RANDOM
from ..export.quiet import quiet
from ..files.model_folder import replaced
from ..files.tokenizers import forget_origin
from .encoder import Loaded
from .heads import Finetuned
from .problems.problem import Problem
from .problems.texts import Texts
from .reading import KEY, Reading
from .tasks import TaskData

_SMALL = 2.0**-12
_KINDS = ("electra", "bert", "roberta")


def can_save(model: str) -> None:
    """Raises UserError for an architecture whose head is not in the table."""
    kind = load_config(model.removeprefix(RANDOM)).model_type
    if kind not in _KINDS:
        raise UserError(f"{model}: --save-model knows {', '.join(_KINDS)}, not {kind!r}")


def identity_of(task: TaskData) -> dict[str, Any]:
    """The properties that identify a saved model, for its mark."""
    return {"part": "fine-tuned", "task": task.name}


def save(
    net: Finetuned,
    loaded: Loaded,
    task: TaskData,
    folder: Path,
    *,
    problem: Problem,
    reading: Reading | None = None,
    top: Path | None = None,
) -> None:
    """Write the folder whole or not at all; no link may lead out of `top`. A folder of a regression
    predicts values on their original scale. reading: is noted in config.json."""
    tokenizer = _tokenizer(loaded)
    config = _config(loaded, task, reading)
    match task.kind:
        case "tagging":
            model = _with_head(AutoModelForTokenClassification, config, net, head="classifier")
        case "answering":
            model = _with_head(AutoModelForQuestionAnswering, config, net, head="qa_outputs")
        case _:
            model = _classifier(config, net, loaded, task, problem)
    _compare(net, model, problem, task)
    try:
        with replaced(folder, identity_of(task), top=top) as part, quiet():
            model.save_pretrained(part)
            tokenizer.save_pretrained(part)
            forget_origin(part)
    except (UserError, MemoryError):
        raise
    # The disk's refusal has a type of its own in each of three libraries, one of which raises bare
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
    names = task.labels or (("start", "end") if task.kind == "answering" else ("score",))
    config.id2label = dict(enumerate(names))
    config.label2id = {name: i for i, name in enumerate(names)}
    if reading is not None:
        setattr(config, KEY, reading.record())
    return config


def _tokenizer(loaded: Loaded) -> Any:
    """The tokenizer, told which inputs the model reads: one that does not say so gives no token
    types, and the second text of a pair would look like the first."""
    tokenizer = copy.deepcopy(loaded.tokenizer)
    types = ["token_type_ids"] if loaded.segments else []
    names = ["input_ids", *types, "attention_mask"]
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    return tokenizer


def _with_head(cls: Any, config: Any, net: Finetuned, *, head: str | None) -> Any:
    """A model of the library around our encoder; head: the name of its linear head, where that is
    as ours."""
    with quiet():
        model: Any = cls.from_config(config)
    model.base_model.load_state_dict(net.encoder.state_dict(), strict=False)
    if head is not None:
        getattr(model, head).load_state_dict(net.head.out.state_dict())
    return model


_PROBLEMS = {
    "regression": "regression",
    "multilabel": "multi_label_classification",
    "classification": "single_label_classification",
}


def _classifier(
    config: Any, net: Finetuned, loaded: Loaded, task: TaskData, problem: Problem
) -> Any:
    assert isinstance(problem, Texts)
    config.problem_type = _PROBLEMS[task.kind]
    model = _with_head(AutoModelForSequenceClassification, config, net, head=None)
    dense, out = _layers(model)
    twice = config.model_type == "electra"
    head = net.head.out.cpu()
    with torch.no_grad():
        if _has_room(dense, head.out_features, twice=twice):
            _fit(dense, out, head, twice=twice)
        else:
            norm = model.base_model.encoder.layer[-1].output.LayerNorm
            _hand_on(dense, out, head, _largest(norm) if twice else None)
        # Here and not in the hidden layer, where a large value would leave the linear part of tanh.
        out.weight.mul_(problem.scale)
        out.bias.mul_(problem.scale).add_(problem.center)
    return model


def _layers(model: Any) -> tuple[nn.Linear, nn.Linear]:
    """The hidden layer and the output of the library's head."""
    if model.config.model_type == "bert":
        return model.base_model.pooler.dense, model.classifier
    return model.classifier.dense, model.classifier.out_proj


def _has_room(dense: nn.Linear, classes: int, *, twice: bool) -> bool:
    """Whether there are hidden units for every class, `twice` two of them."""
    return classes * (2 if twice else 1) <= dense.out_features


def _largest(norm: nn.LayerNorm) -> Tensor:
    """The largest values that a layer norm can give. [D]"""
    width = norm.normalized_shape[0]
    return norm.weight.abs() * width**0.5 + norm.bias.abs()


def _hand_on(dense: nn.Linear, out: nn.Linear, head: nn.Linear, largest_D: Tensor | None) -> None:
    """The hidden layer hands the states on: through gelu, where their largest values are given,
    else through tanh."""
    dense.weight.copy_(torch.eye(dense.in_features) * (_SMALL if largest_D is None else 1.0))
    out.weight.copy_(head.weight / (_SMALL if largest_D is None else 1.0))
    # From here on gelu(x) is x in float32.
    shift_D = torch.zeros(dense.in_features) if largest_D is None else largest_D + 8.0
    dense.bias.copy_(shift_D)
    out.bias.copy_((head.bias.double() - head.weight.double() @ shift_D.double()).float())


def _fit(dense: nn.Linear, out: nn.Linear, head: nn.Linear, *, twice: bool) -> None:
    classes = head.out_features
    for parameter in (dense.weight, dense.bias, out.weight, out.bias):
        parameter.zero_()
    for s, start in ((1.0, 0), (-1.0, classes)) if twice else ((_SMALL, 0),):
        dense.weight[start : start + classes] = s * head.weight
        dense.bias[start : start + classes] = s * head.bias
        out.weight[:, start : start + classes] = torch.eye(classes) / s


def linear_head(model: Any) -> tuple[nn.Linear, float, float] | None:
    """The head of a saved classifier as the run had it, to the bit, and the scale and the center of
    its values (1 and 0 of classes); None where the model's head is not of the form that `_fit`
    gives it."""
    kind = model.config.model_type
    if kind not in _KINDS:
        return None
    dense, out = _layers(model)
    classes = out.out_features
    twice = kind == "electra"
    if not _has_room(dense, classes, twice=twice):
        return None
    first = 1.0 if twice else _SMALL
    head = nn.Linear(dense.in_features, classes)
    again = copy.deepcopy(dense), copy.deepcopy(out)
    with torch.no_grad():
        head.weight.copy_(dense.weight[:classes] / first)
        head.bias.copy_(dense.bias[:classes] / first)
        scale = float(out.weight[0, 0]) * first
        center = float(out.bias[0])
        _fit(*again, head, twice=twice)
        again[1].weight.mul_(scale)
        again[1].bias.fill_(center)
    same = all(
        torch.equal(a, b)
        for layer, other in zip(again, (dense, out), strict=True)
        for a, b in zip(layer.parameters(), other.parameters(), strict=True)
    )
    return (head, scale, center) if same else None


def _compare(net: Finetuned, model: Any, problem: Problem, task: TaskData) -> None:
    """Raises UserError where the model to be saved computes other logits than the one that was
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
