"""Reads the model folders of others and our own, strictly: configuration, weights and tokenizer, or
one sentence about what is wrong with them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
)

from ..errors import UserError, failing_as, need
from ..onnx_models import must_be_of_torch
from ..text.tokenizer import VOCABULARY_FILES, reading_text
from .places import check_place

# Shapes that do not match are looked at here. The dtype of a config.json would round the weights.
SAFE_WEIGHTS: dict[str, Any] = {
    "dtype": torch.float32,
    "use_safetensors": True,
    "trust_remote_code": False,
    "ignore_mismatched_sizes": True,
}
UNSAFE = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
# The library counts these as causal, because of their language-model heads.
BOTH_WAYS = ("xlnet", "xlm", "flaubert")
UNLIMITED = 10**6


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars, load reports and warnings of transformers; its settings are put
    back afterwards."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


# ------------------------------------------------------------------ configuration


def load_config(path: str, *, causal: bool = False) -> Any:
    """The configuration of an encoder; causal: or of a model that reads from left to right. Raises
    UserError."""
    check_place(path)
    must_be_of_torch(path)
    # A config.json may hold anything, and may raise anything.
    with quiet(), failing_as(f"{path}: cannot be loaded as a Hugging Face model"):
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    kind = config.model_type
    need(type(config) in MODEL_MAPPING, f"{path}: AutoModel has no model of type {kind!r}")
    need(
        not getattr(config, "is_encoder_decoder", False),
        f"{path}: a {kind!r} model is an encoder with a decoder. An encoder is needed",
    )
    need(
        causal or not is_causal(config),
        f"{path}: a {kind!r} model reads from left to right. Its first token sees no text, so an "
        "encoder is needed",
    )
    with quiet():
        _compute_plainly(config)
    return config


def is_causal(config: Any) -> bool:
    """Whether a model's tokens see only those before them (GPT-2). A model that has a masked-LM
    head, too, is an encoder."""
    kind = type(config)
    generates = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    one_way = generates or bool(getattr(config, "is_decoder", False))
    return one_way and config.model_type not in BOTH_WAYS


def _compute_plainly(config: Any) -> None:
    """Sets the options that the caller should choose, not whoever saved the weights: what a forward
    pass returns, and which implementation computes attention."""
    # The library's own choice for this machine; before the outputs, which are checked against it.
    config._attn_implementation = None
    config.return_dict = True
    config.output_attentions = False
    config.output_hidden_states = False
    # Chunks trade time for memory; a length that they do not divide is an error.
    config.chunk_size_feed_forward = 0


# ------------------------------------------------------------------ weights


def load_weights(cls: Any, path: str, config: Any) -> tuple[Any, list[str]]:
    """A model of this class of the library in float32, and the weights that the folder lacks.
    config: what `load_config` gave.

    Raises UserError if it cannot be read.
    """
    model, info = loaded(cls, path, config)
    return model.eval(), sorted(info["missing_keys"])


def loaded(cls: Any, path: str, config: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The model, and what the library says of its weights. options: of the library.

    Raises UserError if it cannot be read, if the library put random numbers in place of weights of
    another shape, or if weights are not numbers. Weights that only pickle could read are never
    opened.
    """
    folder = Path(path)
    unsafe = sorted(p.name for kind in UNSAFE for p in folder.glob(kind))
    need(
        not unsafe or any(folder.glob("*.safetensors")),
        f"{path}: {', '.join(unsafe)} could run other people's code when it is opened, so it is "
        "not opened. Convert the weights to model.safetensors",
    )
    how = {"config": config, "output_loading_info": True} | SAFE_WEIGHTS | options
    with quiet(), failing_as(f"{path}: its weights cannot be loaded"):
        model, info = cls.from_pretrained(path, **how)
    wrong = sorted(info["mismatched_keys"])
    for name, theirs, wanted in wrong[:1]:
        raise UserError(
            f"{path}: {len(wrong)} weights do not have the shape that its config.json says: {name} "
            f"is {list(theirs)}, not {list(wanted)}"
        )
    for name, t in model.state_dict().items():
        need(
            not t.is_floating_point() or bool(t.isfinite().all()),
            f"{path}: the weight {name} holds numbers that are not finite: the model is damaged",
        )
    return model, info


# ------------------------------------------------------------------ tokenizer, lengths


def load_tokenizer(path: str, *, vocab_size: int) -> Any:
    """The tokenizer of a model. Raises UserError if there is none (the library would make an empty
    one) or if it is too large for the model. Special tokens in a text are plain text to it, unlike
    to that of text.tokenizer."""
    folder = Path(path)
    if folder.is_dir():
        need(
            any((folder / name).is_file() for name in VOCABULARY_FILES),
            f"{path}: the folder holds no tokenizer (none of {', '.join(VOCABULARY_FILES[:4])})",
            "copy the one the model was trained with into it",
        )
    with quiet(), failing_as(f"{path}: its tokenizer cannot be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    need(
        tokenizer.pad_token_id is not None,
        f"{path}: its tokenizer has no padding token. Set pad_token in tokenizer_config.json",
    )
    largest = max(tokenizer.get_vocab().values(), default=0)
    need(
        largest < vocab_size,
        f"{path}: its tokenizer has ids up to {largest}, the model has {vocab_size} embeddings. "
        "They do not belong together",
    )
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    return reading_text(tokenizer)


def positions_of(model: Any) -> int:
    """The most tokens of a sequence that a model reads, special ones included; UNLIMITED where
    positions are relative.

    Models that follow RoBERTa count from the padding token's id + 1, so the first rows of their
    table are not positions; others begin later in their table of position ids.
    """
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if name.endswith("position_embeddings") and hasattr(module, "weight"):
            padding = getattr(module, "padding_idx", None)
            rows = module.weight.shape[0] - (0 if padding is None else padding + 1)
            ids = getattr(modules[name.rpartition(".")[0]], "position_ids", None)
            return rows if ids is None else min(rows, ids.shape[-1])
    biased = getattr(model.config, "position_biased_input", True)
    return positions_in(model.config) if biased else UNLIMITED


def made_for(model: Any) -> int:
    """The most tokens of a sequence that the model was made for. One with relative positions
    (DeBERTa) computes longer ones, too, with distances that no training showed it."""
    return min(positions_of(model), positions_in(model.config))


def positions_in(config: Any) -> int:
    """The same by a configuration alone."""
    positions = getattr(config, "max_position_embeddings", None) or UNLIMITED
    return positions if positions > 0 else UNLIMITED  # XLNet's are relative: its config says -1
