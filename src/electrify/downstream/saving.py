"""A fine-tuned encoder as a Hugging Face ForSequenceClassification folder.

The library's heads have a hidden layer where ours is linear. Ours fits into theirs exactly enough (checked on real inputs before it is reported):

| head             | hidden layer computes        | because                                                            |
|------------------|------------------------------|--------------------------------------------------------------------|
| ELECTRA: gelu    | gelu(z) - gelu(-z), z = Wx+b | is z                                                               |
| BERT, RoBERTa: tanh | tanh(s z) / s             | is z up to (s z)^2 / 3; s = 2^-12, so 2e-6 of z at z = 10           |

A folder saved so classifies like the run did; it is no good start for training its head further (its dropout is off).
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from ..errors import UserError
from ..export.folders import load_config
from ..export.quiet import quiet
from .encoder import RANDOM, Classifier, Loaded
from .tasks import TaskData

_SMALL = 2.0**-12
_KINDS = ("electra", "bert", "roberta")


def can_save(model: str) -> None:
    """Raises UserError for an architecture whose head is not in the table."""
    kind = load_config(model.removeprefix(RANDOM)).model_type
    if kind not in _KINDS:
        raise UserError(f"{model}: --save-model knows {', '.join(_KINDS)}, not {kind!r}")


def save(classifier: Classifier, loaded: Loaded, task: TaskData, folder: Path, *, center: float, scale: float) -> None:
    """Write the folder whole or not at all. center, scale: of the regression targets; the folder predicts values on the original scale."""
    encoder, tokenizer = loaded.encoder, copy.deepcopy(loaded.tokenizer)
    # a tokenizer that does not say so gives no token types, and the second text of a pair would look like the first
    names_of_inputs = ["input_ids", "token_type_ids", "attention_mask"] if loaded.segments else ["input_ids", "attention_mask"]
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names_of_inputs
    config = type(encoder.config).from_dict(encoder.config.to_dict())
    config.classifier_dropout, config.problem_type = 0.0, "regression" if task.kind == "regression" else "single_label_classification"
    names = dict(enumerate(task.labels)) if task.labels else {0: "score"}
    config.id2label, config.label2id = names, {name: i for i, name in names.items()}
    with quiet():
        model: Any = AutoModelForSequenceClassification.from_config(config)
    model.base_model.load_state_dict(encoder.state_dict(), strict=False)
    dense, out = (
        (model.base_model.pooler.dense, model.classifier) if config.model_type == "bert" else (model.classifier.dense, model.classifier.out_proj)
    )
    with torch.no_grad():
        _fit(dense, out, classifier.head.cpu(), twice=config.model_type == "electra")
        out.weight.mul_(scale)  # here and not in the hidden layer, where a large value would leave the straight part of tanh
        out.bias.fill_(center)
    _compare(classifier, model.eval(), tokenizer, task, center=center, scale=scale)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    with quiet():
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)


def _fit(dense: nn.Linear, out: nn.Linear, head: nn.Linear, *, twice: bool) -> None:
    classes = head.out_features
    if classes * (2 if twice else 1) > dense.out_features:
        raise UserError(f"--save-model: {classes} classes do not fit into the {dense.out_features} hidden units of the library's head")
    for parameter in (dense.weight, dense.bias, out.weight, out.bias):
        parameter.zero_()
    for s, start in ((1.0, 0), (-1.0, classes)) if twice else ((_SMALL, 0),):
        dense.weight[start : start + classes] = s * head.weight
        dense.bias[start : start + classes] = s * head.bias
        out.weight[:, start : start + classes] = torch.eye(classes) / s


def _compare(classifier: Classifier, model: Any, tokenizer: Any, task: TaskData, *, center: float, scale: float) -> None:
    example = task.validation[0]
    inputs = dict(tokenizer(example.text, example.pair, return_tensors="pt", truncation=True, max_length=64))
    classifier.eval().cpu()
    with torch.no_grad():
        wanted, found = classifier(**inputs) * scale + center, model(**inputs).logits
    assert torch.allclose(found, wanted, atol=1e-4, rtol=1e-4), f"the saved head differs by {(found - wanted).abs().max():.2e}"
