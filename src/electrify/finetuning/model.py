"""Encoders and fine-tuned models: folders or Hub ids, loaded strictly, with their tokenizers.

Strictly means that a weight of the encoder which the checkpoint lacks, or which the library's class
does not use, is an error that names it. The library itself would fill it with random numbers, or
leave it out, and mention this in a table. A fine-tuned model is a class of the library
(`AutoModelForSequenceClassification` and so on) with a fresh head: what is trained is saved.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoModel
from transformers.masking_utils import eager_mask
from transformers.models.auto.modeling_auto import MODEL_MAPPING

from ..errors import UserError, failing_as, need
from ..exporting import loading
from ..exporting.places import METADATA, RANDOM
from ..files import json_text, written
from ..model.attention import LONG_ROW, attend
from ..text.tokenizer import rewrite_settings
from .encoding import Frame
from .loop import PROTOCOLS
from .options import FinetuneSettings
from .split import first
from .tasks import CLASSES, KEY, TRAINED, Kind, TaskData

LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|albert_layer_groups)\.(\d+)\.")
PLAIN = "electrify_plain"
FROZEN_RATE = 2e-3  # a head alone needs a higher rate

# ------------------------------------------------------------------ encoders


@dataclass(frozen=True)
class Reader:
    """An encoder with its tokenizer, and properties of its inputs."""

    name: str
    encoder: Any
    tokenizer: Any
    segments: bool
    """Whether it takes token types."""
    last: bool
    """Whether the last token, and not the first, represents the whole text."""

    @property
    def width(self) -> int:
        return self.encoder.config.hidden_size

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    @property
    def positions(self) -> int:
        """The most tokens of a sequence."""
        return loading.positions_of(self.encoder)


def load_encoder(model: str, *, device: torch.device, dropout: float | None = None) -> Reader:
    """Loads encoder and tokenizer from a folder, a Hub id, or `random:` and one of them. dropout:
    for all its layers and for attention; None leaves the model's own.

    Random weights are drawn from torch's global generator. Raises UserError, also if the checkpoint
    and the encoder do not hold the same weights.
    """
    path = model.removeprefix(RANDOM)
    config = loading.load_config(path, causal=True)
    for name, value in config.to_dict().items() if dropout is not None else ():
        if ("dropout" in name or name.endswith("pdrop")) and type(value) in (int, float):
            setattr(config, name, dropout)
    model_class: Any = MODEL_MAPPING[type(config)]
    options: dict[str, Any] = {
        "attn_implementation": implementation_for(model_class, config, device)
    }
    if "add_pooling_layer" in inspect.signature(model_class.__init__).parameters:
        options["add_pooling_layer"] = False
    if model.startswith(RANDOM):
        config._attn_implementation = options.pop("attn_implementation")
        with loading.quiet():
            encoder = model_class(config, **options)
    else:
        encoder, info = loading.loaded(AutoModel, path, config, **options)
        lacking = sorted(info["missing_keys"])
        fact = f"{path} lacks {len(lacking)} of the encoder's {len(encoder.state_dict())} weights "
        need(not lacking, f"{fact}({first(lacking, 4)}). {RANDOM}{path} would give it random ones")
        must_be_used(path, encoder, info["unexpected_keys"])
    return _reader(model, encoder, device)


def _reader(name: str, encoder: Any, device: torch.device) -> Reader:
    path = name.removeprefix(RANDOM)
    config = encoder.config
    weight = getattr(encoder.get_input_embeddings(), "weight", None)
    size = weight.shape[0] if weight is not None and weight.ndim == 2 else 0
    need(size > 0, f"{path} is a {config.model_type!r} model, which reads no tokens of a text")
    tokenizer = loading.load_tokenizer(path, vocab_size=size)
    several = (getattr(config, "type_vocab_size", None) or 0) > 1
    types = several and "token_type_ids" in inspect.signature(encoder.forward).parameters
    last = loading.is_causal(config) or not Frame.of(tokenizer, "a").before
    encoder = encoder.to(device=device, dtype=torch.float32)
    return Reader(name, encoder, tokenizer, types, last)


def must_be_used(path: str, encoder: Any, unexpected: Iterable[str]) -> None:
    """Raises UserError for weights of the encoder that its class does not compute with: it would
    be another encoder than the one that was trained. Heads and poolers are not meant."""
    parts = dict(encoder.named_children())
    prefix = f"{encoder.base_model_prefix}."
    odd = [key for key in unexpected if key.removeprefix(prefix).partition(".")[0] in parts]
    odd = [key for key in odd if not key.endswith("position_ids")]  # a table that counts
    what = f"{len(odd)} weights that transformers {transformers.__version__} does not use"
    fact = f"{path} holds {what} ({first(sorted(odd), 4)})"
    need(not odd, fact, "use the version that it was trained with, or another model")


# ------------------------------------------------------------------ attention


def plain_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **how: Any
) -> tuple[Tensor, None]:
    """Attention in the dtype of the query, with transformers' interface. query, key, value: [B, H,
    L, W] each; returns [B, L, H, W].

    On a CPU in bfloat16 transformers' own plain attention adds a float32 mask to bfloat16 scores,
    so everything after it is float32; with contexts of 200 tokens this takes two thirds of a step.
    The same products in bfloat16 take half the time, and with short texts less than the fused
    kernel (research/log.md). Long rows are read with the fused kernel, which keeps no table of
    scores.

    If there are fewer key heads than query heads, each key head serves several query heads.
    attention_mask: is added to the scores, [B, 1, L, L]. how: scaling and dropout.
    """
    # A model that rotates queries and keys in float32 leaves the values in the dtype of autocast.
    key, value = key.to(query.dtype), value.to(query.dtype)
    if key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(times, dim=1) for x in (key, value))
    bias = query.new_zeros(1, 1, 1, 1) if attention_mask is None else attention_mask
    bias = bias.to(query.dtype).clamp(min=torch.finfo(query.dtype).min)
    dropout = how.get("dropout", 0.0) * module.training
    # With dropout, the fused kernel keeps the weights, too.
    backend = "sdpa" if key.shape[2] >= LONG_ROW and not dropout else "matmul"
    # Under autocast, the softmax would be computed in float32.
    with torch.autocast(query.device.type, enabled=False):
        kind: Any = {"dropout": dropout, "backend": backend, "scale": how.get("scaling")}
        found = attend(query, key, value, bias, **kind)
    return found.transpose(1, 2).contiguous(), None


def implementation_for(model_class: Any, config: Any, device: torch.device) -> str:
    """The best `attn_implementation` for a model class; "eager" for classes with an attention of
    their own (DeBERTa, XLNet, Gemma 2)."""
    shared = model_class._supports_attention_backend and model_class._supports_sdpa
    if not shared or getattr(config, "attn_logit_softcapping", None):
        return "eager"
    return PLAIN if device.type == "cpu" else "sdpa"


AttentionInterface.register(PLAIN, plain_attention)
AttentionMaskInterface.register(PLAIN, eager_mask)


# ------------------------------------------------------------------ networks


class Net(nn.Module):
    """A class of the library with a head. Its logits are float32: [B, C] for a text, [B, L, C] for
    tags, [B, L, 2] (start and end) for answers."""

    def __init__(self, library: Any) -> None:
        super().__init__()
        self.library = library

    @property
    def encoder(self) -> Any:
        return self.library.base_model

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        output = self.library(**inputs)
        if getattr(output, "start_logits", None) is not None:
            return torch.stack([output.start_logits, output.end_logits], -1).float()
        return output.logits.float()


def probabilities_of(kind: Kind, logits_NC: Any) -> Tensor:
    """[N, C]: the probability of each class; with several labels, that each holds."""
    logits = torch.as_tensor(logits_NC)
    return logits.sigmoid() if kind == "multilabel" else logits.softmax(-1)


def computing_in_bf16(encoder: Any) -> None:
    """From here on the encoder computes in bfloat16. What is on top of it gets float32: predicted
    values with eight bits would have ties."""
    forward = encoder.forward

    @functools.wraps(forward)
    def in_bf16(*given: Any, **named: Any) -> Any:
        kind = next(encoder.parameters()).device.type
        with torch.autocast(kind, torch.bfloat16):
            output = forward(*given, **named)
        for name in ("last_hidden_state", "pooler_output"):
            if getattr(output, name, None) is not None:
                output[name] = output[name].float()
        return output

    encoder.forward = in_bf16


def with_fresh_head(
    reader: Reader, kind: Kind, labels: tuple[str, ...], *, dropout: float | None = None
) -> Net:
    """The library's class for a kind of task, with the encoder's weights and a head whose values
    are drawn from torch's generator. dropout: of the head; None leaves the model's own. Raises
    UserError if the library has no such class."""
    config = copy.deepcopy(reader.encoder.config)
    config.problem_type = CLASSES[kind][1]
    names = labels or (("start", "end") if kind == "answering" else ("score",))
    config.id2label = dict(enumerate(names))
    config.label2id = {name: k for k, name in enumerate(names)}
    if config.pad_token_id is None:  # a decoder finds the last token by it
        config.pad_token_id = reader.tokenizer.pad_token_id
    auto = getattr(transformers, CLASSES[kind][0])
    try:
        with loading.quiet():
            library = auto.from_config(config)
    except ValueError as e:
        what = f"{auto.__name__} for {config.model_type!r} models"
        raise UserError(f"{reader.name}: transformers has no {what}") from e
    # XLNet's class for texts reads the last place of a row, which may be padding.
    at_end = getattr(getattr(library, "sequence_summary", None), "summary_type", "") == "last"
    inner = library.base_model
    left = inner.load_state_dict(reader.encoder.state_dict(), strict=False)
    whole = not at_end and not left.unexpected_keys
    need(whole, f"{reader.name}: {type(library).__name__} does not read a text as needed here")
    inner.set_attn_implementation(reader.encoder.config._attn_implementation)
    encoder = {id(module) for module in inner.modules()}
    for module in library.modules():
        if isinstance(module, nn.Dropout) and id(module) not in encoder and dropout is not None:
            module.p = dropout
    return Net(library.to(reader.device))


def learning_rates(net: Any, *, peak: float, decay: float, skip: bool = False) -> dict[str, float]:
    """The peak learning rate of every parameter: peak * decay^(distance from the head).

    | part                                   | distance       |
    |----------------------------------------|----------------|
    | head, pooler                           | 0              |
    | layer i of n (0 = next to the input)   | n - i          |
    | final norms (after the last layer)     | 1              |
    | embeddings and their projection        | n + 1          |

    This is the paper's rule. net: has an `encoder`. skip: every distance except the head's is
    larger by one, as in the public code (google-research/electra, model/optimization.py and
    issue 51), where the top layer gets decay^2.
    """
    inside = {id(p): name for name, p in net.encoder.named_parameters()}
    layers = (found for name in inside.values() if (found := LAYER.search(name)))
    n = 1 + max((int(found[1]) for found in layers), default=-1)  # ALBERT's shared one is one
    tables = any("rel_embeddings" in name for name in inside.values())
    rates, reached = {}, False
    for full, parameter in net.named_parameters():
        name = inside.get(id(parameter), "")
        found = LAYER.search(name)
        reached = reached or found is not None
        if not name or "pooler" in name:
            distance = 0
        elif found:
            distance = n - int(found[1])
        else:
            # DeBERTa's norm of the table of distances, which every layer reads, is not a final one.
            of_table = tables and name.startswith("encoder.LayerNorm.")
            distance = 1 if reached and "embed" not in name and not of_table else n + 1
        rates[full] = peak * decay ** (distance + int(skip and distance > 0))
    return rates


def default_rates(hidden_size: int, *, tags: bool = False) -> tuple[float, float]:
    """Learning rate and layer-wise decay by width (ELECTRA's table 7: Small, Base, Large). tags:
    the rate for a narrow encoder, which learns them with a larger rate (research/results.md)."""
    if tags and hidden_size <= 128:
        return 3e-3, 0.8
    if hidden_size <= 256:
        return 3e-4, 0.8
    return (1e-4, 0.8) if hidden_size < 1024 else (5e-5, 0.9)


def rates_of(
    net: Any, reader: Reader, task: TaskData, settings: FinetuneSettings
) -> dict[str, float]:
    """The peak learning rate of every parameter that is trained."""
    if settings.frozen_encoder != "none":
        return dict.fromkeys(dict(net.named_parameters()), settings.learning_rate or FROZEN_RATE)
    published = settings.protocol == "published"
    peak, decay = default_rates(reader.width, tags=task.kind == "tagging" and not published)
    return learning_rates(
        net,
        peak=settings.learning_rate or peak,
        decay=settings.layerwise_lr_decay or decay,
        skip=PROTOCOLS[settings.protocol].skip_level,
    )


# ------------------------------------------------------------------ fine-tuned folders


def save(
    net: Net,
    reader: Reader,
    task: str,
    folder: Path,
    *,
    reading: dict[str, Any],
    scaled: tuple[float, float] = (1.0, 0.0),
) -> None:
    """Writes a Hugging Face folder, whole or not at all. reading: see tasks.Saved. scaled: scale
    and center of a regression's values, folded into the last layer."""
    library = copy.deepcopy(net.library).cpu()
    library.base_model.__dict__.pop("forward", None)  # of computing_in_bf16
    setattr(library.config, KEY, reading)
    library.config.dtype = torch.float32
    if scaled != (1.0, 0.0):
        last = last_layer(library)
        with torch.no_grad():
            last.weight.mul_(scaled[0])
            last.bias.mul_(scaled[0]).add_(scaled[1])
    tokenizer = copy.deepcopy(reader.tokenizer.original)
    # Without these names it gives no token types, and a second text would look like the first.
    names = ["input_ids", *["token_type_ids"] * reader.segments, "attention_mask"]
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    if tokenizer.is_fast:  # else the file would hold what the last call here asked for
        tokenizer.backend_tokenizer.no_truncation()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # An error of the disk has its own type in each of three libraries, one of them bare.
    with failing_as(f"{folder} could not be written"), written(folder) as part, loading.quiet():
        library.save_pretrained(part)
        tokenizer.save_pretrained(part)
        rewrite_settings(part)
        metadata = json_text({"part": TRAINED, "task": task}, indent=1)
        (part / METADATA).write_text(f"{metadata}\n", encoding="utf-8")


def last_layer(library: Any) -> nn.Linear:
    """The layer that gives a text's logits. Raises UserError if it has no bias into which the mean
    of a regression's values could go."""
    encoder = {id(module) for module in library.base_model.modules()}
    outside = [m for m in library.modules() if isinstance(m, nn.Linear) and id(m) not in encoder]
    fact = f"a regression cannot be saved in a head without bias ({type(library).__name__})"
    need(outside[-1].bias is not None, fact, "give --save-model false")
    return outside[-1]


def load_finetuned(model: str, kind: Kind, *, device: torch.device) -> tuple[Reader, Net]:
    """A saved model of this kind. Raises UserError if it lacks weights."""
    config = loading.load_config(model, causal=True)
    library, missing = loading.load_weights(getattr(transformers, CLASSES[kind][0]), model, config)
    fact = f"{model} lacks weights of the head ({first(missing, 4)})"
    need(not missing, f"{fact}, so it was not fine-tuned, or not saved in full")
    inner = library.base_model
    inner.set_attn_implementation(implementation_for(type(inner), config, device))
    reader = _reader(model, inner, device)
    if library.config.pad_token_id is None:  # a decoder finds the last token by it
        library.config.pad_token_id = reader.tokenizer.pad_token_id
    return reader, Net(library.to(device).eval())
