"""A fine-tuned model of a folder or the Hub as a network that answers like the one that was scored:
our encoder and our head where the saved head is one of ours, else the library's own class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from ..architectures import fine_tuned_heads
from ..architectures.fine_tuned import token_output
from ..downstream.encoder import Loaded, load
from ..downstream.examples import Answer, Example, Question, Sentence
from ..downstream.heads import Finetuned, TextHead
from ..downstream.one_run import problem_of
from ..downstream.options import FinetuneSettings
from ..downstream.problems.problem import Problem
from ..downstream.problems.texts import Texts
from ..downstream.reading import Reading, noted
from ..downstream.tasks import Kind, TaskData
from ..errors import UserError
from ..export.folders import load_config, load_weights
from .kinds import CLASSES, ending_in, kind_of


@dataclass(frozen=True)
class Saved:
    """A fine-tuned model. kind, labels: what it predicts; reading: how it was fine-tuned, if that
    is known; scale, center: those of a regression's values."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    loaded: Loaded
    reading: Reading
    net: Finetuned
    scale: float = 1.0
    center: float = 0.0

    def problem(self, settings: FinetuneSettings, *, device: torch.device, bf16: bool) -> Problem:
        """The problem, which makes rows of new examples and reads the network's answers. It
        remembers the words that it has seen, so each block of texts has a new one."""
        return _problem(self, settings, device=device, bf16=bf16)


def load_saved(model: str, *, device: torch.device) -> Saved:
    """Raises UserError for a model that was not fine-tuned, or lacks weights."""
    config = load_config(model, causal=True)
    said = config.to_dict()
    kind = kind_of(model, said)
    labels = _labels(model, config, kind)
    loaded = load(model, device=device)
    cls = getattr(transformers, CLASSES[ending_in(model, said)])
    whole, missing = load_weights(cls, model, config)
    if missing:
        raise UserError(
            f"{model}: the checkpoint lacks weights of the head: {', '.join(missing[:8])}; it was "
            "not fine-tuned, or not saved in full"
        )
    if whole.config.pad_token_id is None:  # a decoder finds the last token by it
        whole.config.pad_token_id = loaded.tokenizer.pad_token_id
    whole = whole.to(device).eval()
    saved = Saved(model, kind, labels, loaded, noted(config), Finetuned(whole, nn.Identity()))
    ours = _with_our_head(saved, whole, device)
    if ours is not None:
        return ours
    return replace(saved, net=_as_states(saved, whole, device).eval())


def _labels(model: str, config: Any, kind: Kind) -> tuple[str, ...]:
    if kind == "regression" and config.num_labels != 1:
        raise UserError(
            f"{model}: its config.json says regression, which has one value, and "
            f"{config.num_labels} outputs"
        )
    if kind in ("regression", "answering"):
        return ()
    known: dict[Any, Any] = config.id2label
    labels = tuple(name for i in range(len(known)) if isinstance(name := known.get(i), str))
    if len(set(labels)) < config.num_labels or len(known) != len(labels):
        raise UserError(
            f"{model}: id2label in its config.json does not give each of {config.num_labels} "
            "outputs a name of its own"
        )
    return labels


def _task(saved: Saved) -> TaskData:
    """The model's task; its one example stands for those that it was trained on."""
    none = saved.reading.no_answer_threshold is not None
    match saved.kind:
        case "tagging":
            one: Any = Sentence(("a",), saved.labels[:1])
        case "answering":
            one = Question("0", "a", "a", () if none else (Answer("a", 0),))
        case _:
            one = Example("a", None, () if saved.kind == "multilabel" else 0.0)
    return TaskData(saved.name, saved.kind, saved.labels, (), 1, (one,), (one,))


def _problem(
    saved: Saved, settings: FinetuneSettings, *, device: torch.device, bf16: bool
) -> Problem:
    problem = problem_of(
        _task(saved), saved.loaded, settings=settings, device=device, bf16=bf16, name=saved.name
    )
    if isinstance(problem, Texts):
        problem.scale = saved.scale
        problem.center = saved.center
    return problem


def _with_our_head(saved: Saved, whole: Any, device: torch.device) -> Saved | None:
    """The model with the head of fine-tuning, if the library's computes the same."""
    form = fine_tuned_heads().get(whole.config.model_type)
    texts = saved.kind not in ("tagging", "answering")
    if form is None:
        found = None if texts else token_output(whole)
    else:
        found = form.read(whole, whole=texts)
    if found is None or found.layer.in_features != saved.loaded.width:
        return None
    linear, scale, center = found.layer, found.scale, found.center
    problem = _problem(saved, _settings(saved), device=device, bf16=False)
    net = problem.model(dropout=0.0, std=0.02).eval()
    net.head.out = linear.to(device)
    batch = problem.held_out(_task(saved).validation).data.batch(torch.arange(1))
    with torch.inference_mode():
        states_BLD = net.encoder.eval()(**batch.inputs).last_hidden_state.float()
        ours = net.head(states_BLD, batch) * scale + center if texts else linear(states_BLD)
        theirs = _logits(saved, whole(**batch.inputs))
    same = ours.shape == theirs.shape and torch.allclose(ours, theirs, atol=1e-4, rtol=1e-4)
    return replace(saved, net=net, scale=scale, center=center) if same else None


def _settings(saved: Saved) -> FinetuneSettings:
    """What decides how a net is built."""
    longest = saved.reading.max_answer_length
    return FinetuneSettings(answer_head="plain", max_answer_length=longest)


def _as_states(saved: Saved, whole: Any, device: torch.device) -> Finetuned:
    """The library's model, whose logits take the place of an encoder's states, under a head that
    only reads them."""
    problem = _problem(saved, _settings(saved), device=device, bf16=False)
    net = problem.model(dropout=0.0, std=0.02)
    net.head.out = nn.Identity()
    if isinstance(net.head, TextHead):  # a whole text has one row of logits
        net.head.last = False
    net.encoder = _Logits(saved, whole)
    return net.to(device)


class _Logits(nn.Module):
    """A model of the library, called like an encoder: its last_hidden_state holds its logits, [B,
    L, C], or [B, 1, C] for a whole text. As in fine-tuning, autocast holds for the encoder, and not
    for what is on top of it."""

    def __init__(self, saved: Saved, whole: Any) -> None:
        super().__init__()
        self.saved = saved
        self.whole = whole
        self.autocast = False
        base = whole.base_model
        if base is not whole:
            own: Any = saved.loaded.encoder
            base.config._attn_implementation = own.config._attn_implementation
            base.forward = self._encoder_of(base.forward)
            if getattr(base, "pooler", None) is not None:
                base.pooler.forward = _in_float32(base.pooler.forward)

    def _encoder_of(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def encoder(*given: Any, **named: Any) -> Any:
            kind = next(self.whole.parameters()).device.type
            with torch.autocast(kind, torch.bfloat16, enabled=self.autocast):
                output = forward(*given, **named)
            if getattr(output, "last_hidden_state", None) is not None:
                output.last_hidden_state = output.last_hidden_state.float()
            return output

        return functools.wraps(forward)(encoder)

    def forward(self, **inputs: Tensor) -> SimpleNamespace:
        kind = next(self.whole.parameters()).device.type
        self.autocast = torch.is_autocast_enabled(kind)
        with torch.autocast(kind, enabled=False):
            logits = _logits(self.saved, self.whole(**inputs)).float()
        return SimpleNamespace(last_hidden_state=logits if logits.ndim == 3 else logits[:, None])


def _in_float32(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What is on top of an encoder, but called inside it."""

    def pooler(states_BLD: Tensor) -> Tensor:
        with torch.autocast(states_BLD.device.type, enabled=False):
            return forward(states_BLD.float())

    return functools.wraps(forward)(pooler)


def _logits(saved: Saved, output: Any) -> Tensor:
    if saved.kind != "answering":
        return output.logits
    if getattr(output, "start_logits", None) is None:
        raise UserError(
            f"{saved.name}: its head for questions gives no logits of start and end (it may be one "
            "with a beam search)"
        )
    return torch.stack([output.start_logits, output.end_logits], -1)
