"""Reads foreign model folders: the configuration and the tokenizer of an encoder, or one sentence
about what is wrong with them."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import AutoConfig, AutoTokenizer
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
)

from ..errors import UserError, failing_as, is_of_memory
from ..tables import Logits
from ..text.tokenizer import (
    VOCABULARY_FILES,
    must_be_readable,
    must_be_steady,
    reading_text,
    without_code,
)
from .places import check_place, mark_of, must_not_be_quantised
from .quiet import quiet

_LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
# Shapes that do not match are looked at here. The dtype of a config.json would round the weights.
SAFE_WEIGHTS: dict[str, Any] = {
    "dtype": torch.float32,
    "use_safetensors": True,
    "trust_remote_code": False,
    "ignore_mismatched_sizes": True,
}
# The library counts these as causal, because of their language-model heads.
_BOTH_WAYS = ("xlnet", "xlm", "flaubert")


def saved_objective(path: str) -> str | None:
    """The objective of our export, a folder or a model of the Hub; None if it does not say."""
    return mark_of(path).get("objective")


def logits_of(path: str) -> Logits | None:
    """The meaning of the logits of our export, a folder or a model of the Hub; None if it does not
    say."""
    return mark_of(path).get("logits")


def load_weights(cls: Any, path: str, config: Any) -> tuple[Any, list[str]]:
    """A model of this class of the library in float32, and the weights that the folder lacks.
    config: what `load_config` gave.

    Raises UserError if it cannot be read.
    """
    try:
        with quiet():
            model, info = cls.from_pretrained(
                path, config=config, output_loading_info=True, **SAFE_WEIGHTS
            )
    except Exception as e:  # damaged weights raise types of three libraries
        if is_of_memory(e):
            raise
        raise unreadable_weights(path, e) from e
    must_be_sound_weights(path, model, info)
    return model.eval(), sorted(info["missing_keys"])


def unreadable_weights(path: str, error: Exception) -> UserError:
    """What is wrong with the weights of a folder; those that only pickle could read are never
    opened."""
    folder = Path(path)
    unsafe = sorted(
        p.name
        for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
        for p in folder.glob(kind)
        if folder.is_dir()
    )
    if unsafe and not any(folder.glob("*.safetensors")):
        return UserError(
            f"{path}: {unsafe[0]} could run other people's code when it is opened, so it is not "
            "opened; convert the weights to model.safetensors"
        )
    return UserError(f"{path}: its weights cannot be loaded: {said(error)}")


def said(error: BaseException) -> str:
    """A library's words on one line."""
    return shorten(str(error), 200, placeholder=" ...") or type(error).__name__


def must_be_sound_weights(path: str, model: Any, info: dict[str, Any]) -> None:
    """Raises UserError if the library put random numbers in place of weights of another shape, or
    if weights are not numbers."""
    wrong = sorted(info["mismatched_keys"])
    if wrong:
        shown = ", ".join(
            f"{name} is {list(theirs)}, not {list(wanted)}" for name, theirs, wanted in wrong[:3]
        ) + ", ..." * (len(wrong) > 3)
        raise UserError(
            f"{path}: {len(wrong)} weights do not have the shape that its config.json says: {shown}"
        )
    layers = {int(found[1]) for key in info["unexpected_keys"] if (found := _LAYER.search(key))}
    depth = getattr(model.config, "num_hidden_layers", None)
    if layers and depth is not None and max(layers) >= depth:
        raise UserError(
            f"{path}: the checkpoint holds {max(layers) + 1} layers, its config.json says {depth}"
        )
    must_be_finite(path, model)


def must_be_finite(path: str, model: Any) -> None:
    odd = next(
        (
            name
            for name, t in model.state_dict().items()
            if t.is_floating_point() and not t.isfinite().all()
        ),
        None,
    )
    if odd is not None:
        raise UserError(
            f"{path}: the weight {odd} holds numbers that are not finite; the model is damaged"
        )


def unloadable(path: str, error: Exception) -> UserError:
    """The library's complaint as one sentence."""
    if isinstance(error.__cause__, LocalEntryNotFoundError) and not Path(path).is_dir():
        return UserError(
            f"{path}: there is no such folder, and the Hub, where a model of this name may be, "
            "cannot be reached; name a folder, or repeat the command with a network"
        )
    return UserError(f"{path}: cannot be loaded as a Hugging Face model: {said(error)}")


def is_causal(config: Any) -> bool:
    """Whether a model's tokens see only those before them (GPT-2). A model that has a masked-LM
    head, too, is an encoder."""
    generates = (
        type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
        and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
    )
    return (
        generates or bool(getattr(config, "is_decoder", False))
    ) and config.model_type not in _BOTH_WAYS


def load_config(path: str, *, causal: bool = False) -> Any:
    """The configuration of an encoder; causal: or of a model that reads from left to right. Raises
    UserError."""
    check_place(path)
    try:
        with quiet(), without_code(path):
            config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    except UserError:
        raise
    except Exception as e:  # a config.json may hold anything, and may raise anything
        raise unloadable(path, e) from e
    must_not_be_quantised(path, config.to_dict())
    if type(config) not in MODEL_MAPPING:
        raise UserError(f"{path}: AutoModel has no model of type {config.model_type!r}")
    if getattr(config, "is_encoder_decoder", False):
        raise UserError(
            f"{path}: a {config.model_type!r} model is an encoder with a decoder; an encoder is "
            "needed"
        )
    if is_causal(config) and not causal:
        raise UserError(
            f"{path}: a {config.model_type!r} model reads from left to right; its first token sees "
            "no text, so an encoder is needed"
        )
    with quiet():
        computing_plainly(config)
    return config


def computing_plainly(config: Any) -> None:
    """Sets the options that the caller should choose, not whoever saved the weights: what a forward
    pass returns, and which implementation computes attention.

    A config.json may also set them, and then every reader of an output here would find something
    else.
    """
    # The library's own choice for this machine; before the outputs, which are checked against it.
    config._attn_implementation = None
    config.return_dict = True
    config.output_attentions = False
    config.output_hidden_states = False
    config.chunk_size_feed_forward = (
        0  # chunks trade time for memory; a length that they do not divide is an error
    )


def load_tokenizer(path: str, *, vocab_size: int) -> Any:
    """The tokenizer of a model. Raises UserError if there is none (the library would make an empty
    one) or if it is too large for the model. Special tokens in a text are plain text to it."""
    folder = Path(path)
    if folder.is_dir():
        if not any((folder / name).is_file() for name in VOCABULARY_FILES):
            raise UserError(
                f"{path}: the folder holds no tokenizer (none of "
                f"{', '.join(VOCABULARY_FILES[:4])}); copy the one the model was trained with into "
                "it"
            )
        must_be_readable(folder)
    with quiet(), failing_as(f"{path}: its tokenizer cannot be loaded"), without_code(path):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if tokenizer.pad_token_id is None:
        raise UserError(
            f"{path}: its tokenizer has no padding token; set pad_token in tokenizer_config.json"
        )
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vocab_size:
        raise UserError(
            f"{path}: its tokenizer has ids up to {largest}, the model has {vocab_size} "
            "embeddings; they do not belong together"
        )
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    must_be_steady(tokenizer, path)
    return reading_text(tokenizer)
