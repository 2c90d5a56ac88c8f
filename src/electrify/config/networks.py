"""The networks that a run leaves, each in a folder of its own: the encoder that the run is for, and
those that the rows of its objective and of its corruptor name. Free of torch."""

from __future__ import annotations

from .corruptors import CORRUPTORS
from .objectives import OBJECTIVES
from .pretrain import PretrainConfig
from .rows import Exported, Logits

# The folder of the encoder that a run is for, whatever its objective.
KEPT = "discriminator"


def beside(config: PretrainConfig) -> dict[str, Exported]:
    """The networks that a run of this recipe leaves beside the one that it is for."""
    o = config.objective
    t = config.train
    own = config.corruption.row.leaves
    if is_untaught(config) and not (t.init_generator or t.generator_steps):
        own = {}
    return o.row.leaving(o.term_weights, o.options) | own


def meaning_of(config: PretrainConfig, part: str) -> Logits:
    """What the head of a network of this recipe says."""
    own = config.corruption.row.leaves | config.objective.row.leaves
    return own[part].logits if part in own else config.objective.row.logits


def is_untaught(config: PretrainConfig) -> bool:
    """Whether the generator has a loss and its weight is 0."""
    return config.objective.term_weights.get("generator") == 0


def every_one_beside() -> dict[str, Exported]:
    """The networks that any recipe leaves beside the one that it is for."""
    rows = [*OBJECTIVES.values(), *CORRUPTORS.values()]
    return {name: its for row in rows for name, its in row.leaves.items()}


# What a card says of ways to share that a successor of ELECTRA brought.
_TIES = {
    "gdes": "sharing word embeddings with the encoder by disentangled gradients (as in DeBERTaV3, "
    "arXiv 2111.09543)",
    "lower": "sharing its embeddings and lowest blocks with the encoder",
}


def generator_words(config: PretrainConfig, *, width: int | None = None) -> str:
    """The generator in the sentence of the model card, with what some successors of ELECTRA changed
    in it. width: that of a generator whose folder decided it."""
    m = config.model
    c = config.corruption
    width = width or m.generator_numbers()["hidden_size"]
    frozen = c.generator_training == "frozen"
    like = "as wide as" if width == m.hidden_size else "wider than"
    size = [f"{like} the encoder"] if width >= m.hidden_size else []
    dry = ["without dropout"] if m.generator_dropout == 0 and m.dropout else []
    noun = f"{'frozen ' * frozen}{'small ' * (not size)}generator"
    more = [_TIES[m.tie]] if m.tie in _TIES else []
    end = c.temperature if c.temperature_end is None else c.temperature_end
    if end != c.temperature:
        fast = frozen and end < c.temperature and c.temperature_schedule == "exponential"
        how = "falls exponentially (as in Fast-ELECTRA, arXiv 2310.07347)" if fast else "goes"
        more.append(f"whose temperature {how} from {c.temperature:g} to {end:g}")
    named = " ".join(["a", noun, " and ".join(size + dry)]).rstrip()
    return ", ".join([named, *more]) + "," * bool(more)


def network_names() -> tuple[str, ...]:
    """The names of the folders that a run may leave, whatever its recipe."""
    return (KEPT, *every_one_beside())


def part_help() -> str:
    """The help of `export --part`."""
    others = every_one_beside().items()
    shown = "; ".join(f"{name} = the {its.title} beside it" for name, its in others)
    return f"{KEPT} = the encoder that the run is for (of a bert run too); {shown}."
