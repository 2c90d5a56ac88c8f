"""How the head of a fine-tuned model, a linear layer on states, is held by the library's classes:
as layers of theirs that compute the same. These are the heads of ELECTRA's, BERT's, RoBERTa's and
DeBERTa's classes. Their token heads are linear, as ours are. Their heads for whole texts have a
hidden layer:

- ELECTRA and DeBERTa (gelu): the hidden layer computes gelu(z) - gelu(-z), z = Wx+b, because that
  is z.
- BERT and RoBERTa (tanh): it computes tanh(s z) / s, because that is z up to (s z)^2 / 3;
  s = 2^-12, so 2e-6 of z at z = 10.
- Classes for which there are not enough hidden units: the hidden layer hands the states on, as
  tanh(s x), or as gelu(x + c) with c so large that this is x + c, up to rounding.

Shape suffixes: D width.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_SMALL = 2.0**-12


@dataclass(frozen=True)
class LinearOutput:
    """A linear layer on the state of a token, or of a whole text's first token. What it gives is
    multiplied by `scale`, and `center` is added."""

    layer: nn.Linear
    scale: float = 1.0
    center: float = 0.0


class FineTunedHead(ABC):
    """The head of the library's classes of one model type. whole: of the class for whole texts, not
    of those for tags and for answers."""

    def configure(self, config: Any) -> None:
        """Sets what the configuration must say before the class is built."""
        return

    @abstractmethod
    def write(self, model: Any, output: LinearOutput, *, whole: bool) -> None:
        """Gives the head of a model of the library the weights with which it computes `output`. The
        encoder of the model must have its weights."""

    @abstractmethod
    def read(self, model: Any, *, whole: bool) -> LinearOutput | None:
        """The output that `write` gave to a model, to the bit; None if the head has another
        form."""


@dataclass(frozen=True)
class BertHead(FineTunedHead):
    """gelu: whether the hidden layer for whole texts ends in gelu, not in tanh. hidden, output: the
    names of that layer and of the one above it."""

    gelu: bool = False
    hidden: str = "classifier.dense"
    output: str = "classifier.out_proj"

    def write(self, model: Any, output: LinearOutput, *, whole: bool) -> None:
        head = output.layer
        if not whole:
            _token_layer(model).load_state_dict(head.state_dict())
            return
        dense, out = self._layers(model)
        with torch.no_grad():
            if self._has_room(dense, head.out_features):
                self._fit(dense, out, head)
            else:
                norm = model.base_model.encoder.layer[-1].output.LayerNorm
                _hand_on(dense, out, head, _largest(norm) if self.gelu else None)
            # Not in the hidden layer, where a large value would leave the linear part of tanh.
            out.weight.mul_(output.scale)
            out.bias.mul_(output.scale).add_(output.center)

    def read(self, model: Any, *, whole: bool) -> LinearOutput | None:
        if not whole:
            return token_output(model)
        dense, out = self._layers(model)
        classes = out.out_features
        if not self._has_room(dense, classes):
            return None
        first = 1.0 if self.gelu else _SMALL
        head = nn.Linear(dense.in_features, classes)
        again = copy.deepcopy(dense), copy.deepcopy(out)
        with torch.no_grad():
            head.weight.copy_(dense.weight[:classes] / first)
            head.bias.copy_(dense.bias[:classes] / first)
            scale = float(out.weight[0, 0]) * first
            center = float(out.bias[0])
            self._fit(*again, head)
            again[1].weight.mul_(scale)
            again[1].bias.fill_(center)
        return LinearOutput(head, scale, center) if same_weights(again, (dense, out)) else None

    def _layers(self, model: Any) -> tuple[nn.Linear, nn.Linear]:
        return model.get_submodule(self.hidden), model.get_submodule(self.output)

    def _has_room(self, dense: nn.Linear, classes: int) -> bool:
        """Whether there are hidden units for every class, two of them with gelu."""
        return classes * (2 if self.gelu else 1) <= dense.out_features

    def _fit(self, dense: nn.Linear, out: nn.Linear, head: nn.Linear) -> None:
        classes = head.out_features
        for parameter in (dense.weight, dense.bias, out.weight, out.bias):
            parameter.zero_()
        for s, start in ((1.0, 0), (-1.0, classes)) if self.gelu else ((_SMALL, 0),):
            dense.weight[start : start + classes] = s * head.weight
            dense.bias[start : start + classes] = s * head.bias
            out.weight[:, start : start + classes] = torch.eye(classes) / s


HEADS = {
    "electra": BertHead(gelu=True),
    "bert": BertHead(hidden="bert.pooler.dense", output="classifier"),
    "roberta": BertHead(),
}
"""Those of the models that share ELECTRA's kind of encoder."""
DEBERTA = BertHead(gelu=True, hidden="pooler.dense", output="classifier")


def same_weights(a: tuple[nn.Module, ...], b: tuple[nn.Module, ...]) -> bool:
    """Whether layers have equal parameters."""
    return all(
        torch.equal(one, other)
        for layer, its in zip(a, b, strict=True)
        for one, other in zip(layer.parameters(), its.parameters(), strict=True)
    )


def token_output(model: Any) -> LinearOutput | None:
    """The output of a class whose head for tokens is a linear layer, as of most model types."""
    layer = _token_layer(model)
    return LinearOutput(layer) if isinstance(layer, nn.Linear) else None


def _token_layer(model: Any) -> Any:
    return getattr(model, "qa_outputs", None) or getattr(model, "classifier", None)


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
