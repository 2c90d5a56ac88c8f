"""Which tensors a config.json promises, according to transformers' own class, which is built
without allocating memory. Code from a folder is never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..errors import is_of_memory
from ..export.folders import computing_plainly
from ..export.quiet import quiet
from .findings import DamageError


@dataclass(frozen=True)
class Expected:
    """shapes: shapes of the parameters by name. tied: names of tied copies. prefix: the prefix of
    the encoder's names, which is missing if a bare encoder was saved."""

    shapes: dict[str, tuple[int, ...]]
    tied: dict[str, str]
    prefix: str

    def bare(self, name: str) -> str:
        """The name without the prefix; in older files gamma and beta are a LayerNorm's weight and
        bias."""
        name = name.removeprefix(f"{self.prefix}.")
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name


def expected_shapes(
    config: dict[str, Any], architecture: str, *, own: Any = None
) -> Expected | None:
    """The expected tensors; None if the library has no such class. own: the class, where it is
    known already. Raises DamageError if it cannot be built from this config."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    known = getattr(transformers, architecture, None) if architecture.isidentifier() else None
    cls = own or known
    kind = config.get("model_type")
    if (
        not isinstance(cls, type)
        or not issubclass(cls, transformers.PreTrainedModel)
        or not isinstance(kind, str)
        or kind not in CONFIG_MAPPING
    ):
        return None
    try:
        with quiet(), torch.device("meta"):
            promised = CONFIG_MAPPING[kind].from_dict(config)
            computing_plainly(promised)
            model: Any = cls(promised)
    except Exception as e:  # whatever the library makes of a foreign file
        if is_of_memory(e):
            raise
        said = " ".join(str(e).split())[:150]
        raise DamageError(
            "config",
            f"transformers cannot build {architecture} from config.json ({said})",
            "Copy the config.json that belongs to the weights.",
        ) from e
    shapes = {name: tuple(t.shape) for name, t in model.named_parameters(remove_duplicate=False)}
    return Expected(shapes, tied_names(model), cls.base_model_prefix)


def tied_names(model: Any) -> dict[str, str]:
    """Name of a tied copy -> name of the original, if the config ties them."""
    first: dict[int, str] = {}
    same = {
        name: first[id(p)]
        for name, p in model.named_parameters(remove_duplicate=False)
        if first.setdefault(id(p), name) != name
    }
    declared = getattr(model, "_tied_weights_keys", None) or {}
    if not getattr(model.config, "tie_word_embeddings", True) or not isinstance(declared, dict):
        return same
    return {name: source for name, source in declared.items() if isinstance(source, str)} | same
