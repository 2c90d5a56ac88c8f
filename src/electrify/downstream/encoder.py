"""Encoders: any AutoModel folder or Hub id, loaded strictly, with a tokenizer and a head of our own.

Strictly: a weight of the encoder that the checkpoint lacks is an error with its name. Left alone, the library fills it with random numbers and
says so in a table that scrolls by.

Shape suffixes: B examples, L tokens, D width, C classes (1 for regression).
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING
from transformers.utils import logging as hf_logging

from ..errors import UserError

RANDOM = "random:"
_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.")
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "spm.model", "tokenizer.model")


class Classifier(nn.Module):
    """Encoder, dropout and one linear layer on the first token's state (ELECTRA's own fine-tuning head)."""

    def __init__(self, encoder: nn.Module, *, num_outputs: int, dropout: float, std: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder.config.hidden_size, num_outputs)  # type: ignore[union-attr]
        nn.init.normal_(self.head.weight, std=std)
        nn.init.zeros_(self.head.bias)

    def forward(self, **inputs: Tensor) -> Tensor:
        """Logits [B, C] in float32, whatever the encoder computed in."""
        first_BD = self.encoder(**inputs).last_hidden_state[:, 0]
        with torch.autocast(first_BD.device.type, enabled=False):
            return self.head(self.dropout(first_BD.float()))


@dataclass(frozen=True)
class Loaded:
    """An encoder with its tokenizer and what its inputs may be."""

    encoder: nn.Module
    tokenizer: Any
    positions: int
    segments: bool

    @property
    def dropout(self) -> float:
        config: Any = self.encoder.config
        given = (getattr(config, name, None) for name in ("classifier_dropout", "hidden_dropout_prob", "dropout"))
        return next((float(p) for p in given if isinstance(p, int | float)), 0.1)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the library's own tables and bars: what matters of them is raised here as one sentence."""
    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity(hf_logging.CRITICAL)
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()


def check_place(path: str) -> None:
    """Raises UserError for a name that is meant as a folder and is none, before the Hub is asked (offline that takes half a minute)."""
    if Path(path).is_dir():
        if not (Path(path) / "config.json").is_file():
            inner = next(
                (f"; did you mean {path.rstrip('/')}/{sub}?" for sub in ("discriminator", "encoder") if (Path(path) / sub / "config.json").is_file()),
                "",
            )
            raise UserError(f"{path}: the folder holds no config.json, so it is no Hugging Face model{inner}")
        return
    if Path(path).is_file():
        raise UserError(f"{path}: a file, not a folder")
    beside_a_folder = "/" in path and Path(path).parent.is_dir()
    if beside_a_folder or not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", path):
        raise UserError(f"{path}: no such folder")


def _said(path: str, error: Exception) -> UserError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return UserError(f"{path}: cannot be loaded as a Hugging Face model: {lines[0][:300] if lines else type(error).__name__}")


def load_config(path: str) -> Any:
    """The configuration of an encoder. Raises UserError where there is none or where it is no encoder."""
    check_place(path)
    try:
        with quiet():
            config = AutoConfig.from_pretrained(path)
    except (OSError, ValueError, KeyError) as e:
        raise _said(path, e) from e
    if type(config) not in MODEL_MAPPING:
        raise UserError(f"{path}: AutoModel has no model of type {config.model_type!r}")
    generates = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False) or generates:
        raise UserError(f"{path}: a {config.model_type!r} model reads from left to right; its first token sees no text, so an encoder is needed")
    return config


def load_tokenizer(path: str, *, vocab_size: int) -> Any:
    """The tokenizer of a model. Raises UserError where there is none (the library would make an empty one) or where it is too large for the model."""
    if Path(path).is_dir() and not any((Path(path) / name).is_file() for name in _TOKENIZER_FILES):
        raise UserError(
            f"{path}: the folder holds no tokenizer (none of {', '.join(_TOKENIZER_FILES[:4])}); copy the one the model was trained with into it"
        )
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(path)
    except Exception as e:  # the tokenizers library raises bare Exception
        raise UserError(f"{path}: its tokenizer cannot be loaded: {(str(e).strip() or type(e).__name__).splitlines()[0][:300]}") from e
    if tokenizer.pad_token_id is None:
        raise UserError(f"{path}: its tokenizer has no padding token; set pad_token in tokenizer_config.json")
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vocab_size:
        raise UserError(f"{path}: its tokenizer has ids up to {largest}, the model has {vocab_size} embeddings; they do not belong together")
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    return tokenizer


def load(model: str, *, device: torch.device) -> Loaded:
    """A folder, a Hub id, or `random:` and one of them: encoder and tokenizer.

    Random weights are drawn from torch's global generator. Raises UserError, also where the checkpoint lacks weights of the encoder.
    """
    path = model.removeprefix(RANDOM)
    config = load_config(path)
    # Plain matmuls beat scaled_dot_product_attention on CPU in training (bf16, length 128, ELECTRA-Small: 1.03 s a step against 1.31 s).
    attention = {"attn_implementation": "eager" if device.type == "cpu" else "sdpa"}
    model_class: Any = MODEL_MAPPING[type(config)]
    accepts = inspect.signature(model_class.__init__).parameters
    pooling = {"add_pooling_layer": False} if "add_pooling_layer" in accepts else {}
    with quiet():
        if model.startswith(RANDOM):
            config._attn_implementation = attention["attn_implementation"]
            encoder = model_class(config, **pooling)
        else:
            encoder = _strictly(path, config, attention | pooling)
    tokenizer = load_tokenizer(path, vocab_size=encoder.get_input_embeddings().num_embeddings)
    types = "token_type_ids" in inspect.signature(encoder.forward).parameters and getattr(config, "type_vocab_size", 0) > 1
    return Loaded(encoder.to(device=device, dtype=torch.float32), tokenizer, _positions(encoder), types)


def _strictly(path: str, config: Any, options: dict[str, Any]) -> Any:
    try:
        encoder, info = AutoModel.from_pretrained(path, config=config, output_loading_info=True, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as e:
        raise _said(path, e) from e
    except Exception as e:
        if type(e).__name__ != "SafetensorError":
            raise
        raise UserError(f"{path}: its weights file is damaged or truncated ({e})") from e
    lacking = sorted({*info["missing_keys"], *(key[0] if isinstance(key, tuple) else key for key in info["mismatched_keys"])})
    if lacking:
        names = ", ".join(lacking[:8]) + (f" and {len(lacking) - 8} more" if len(lacking) > 8 else "")
        whole = len(encoder.state_dict())
        raise UserError(
            f"{path}: the checkpoint lacks {len(lacking)} of the encoder's {whole} weights: {names}; for random weights say {RANDOM}{path}"
        )
    depth, ours = layers_of(dict(encoder.named_parameters())), (f"{encoder.base_model_prefix}.", "encoder.")
    layers = {int(found[1]) for key in info["unexpected_keys"] if (found := _LAYER.search(key)) and key.startswith(ours)}
    if layers and max(layers) >= depth:
        raise UserError(f"{path}: the checkpoint holds {max(layers) + 1} layers, its config.json says {depth}")
    return encoder


def _positions(encoder: Any) -> int:
    """How many tokens a sequence may have."""
    positions = getattr(encoder.config, "max_position_embeddings", None) or 10**6
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa counts from the padding id + 1
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return positions if getattr(encoder.config, "position_biased_input", True) else 10**6


def layers_of(named: dict[str, Any]) -> int:
    """How many layers the parameters belong to."""
    return 1 + max((int(found[1]) for name in named if (found := _LAYER.search(name))), default=-1)


def learning_rates(named: dict[str, nn.Parameter], *, peak: float, decay: float) -> dict[str, float]:
    """The peak learning rate of every parameter of a Classifier: peak * decay^(distance from the head).

    | part                                   | distance       |
    |----------------------------------------|----------------|
    | head                                   | 0              |
    | layer i of n (0 = next to the input)   | n - i          |
    | final norms (after the last layer)     | 1              |
    | embeddings and their projection        | n + 1          |

    The paper's rule. Its public code skips a level (the top layer gets decay^2, google-research/electra issue 51); that is not repeated here.
    """
    n = layers_of(named)
    rates, reached = {}, False
    for name in named:
        found = _LAYER.search(name)
        reached = reached or found is not None
        if name.startswith("head."):
            distance = 0
        elif found:
            distance = n - int(found[1])
        else:
            distance = 1 if reached and "embed" not in name else n + 1
        rates[name] = peak * decay**distance
    return rates


def encoder_fingerprint(model: str) -> str:
    """A short hash of the weights, configuration and tokenizer files of a folder; the name itself for a Hub id."""
    path = Path(model.removeprefix(RANDOM))
    if not path.is_dir():
        return model
    digest = hashlib.sha256(b"random" if model.startswith(RANDOM) else b"")
    for file in sorted(path.iterdir()):
        weights = file.suffix in (".safetensors", ".bin")
        if file.is_file() and ((weights and not model.startswith(RANDOM)) or file.name == "config.json" or file.name in _TOKENIZER_FILES):
            digest.update(file.name.encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
