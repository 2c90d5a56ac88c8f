"""Checks whether the objective of a recipe can grade the text that its corruptor makes."""

from __future__ import annotations

import math
import re

from ..console import brief
from ..errors import UserError, need
from ..oldfiles.run_folder import is_of_the_run
from .architectures import ARCHITECTURES
from .networks import KEPT
from .objective_options import DetectingOptions
from .objectives import OBJECTIVES
from .pretrain import (
    CorruptionConfig,
    ModelConfig,
    ObjectiveConfig,
    learns_by_likelihood,
)

DECAY = CorruptionConfig.__dataclass_fields__["temperature_decay"].default
PLAIN_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
SPAN = CorruptionConfig.__dataclass_fields__["span_length"].default


def check_task(c: CorruptionConfig, o: ObjectiveConfig, m: ModelConfig) -> None:
    check_choosing(c)
    row = o.row
    known = " or ".join(sorted(o.row.corruptors))
    need(
        c.corruptor in row.corruptors,
        f"objective {o.objective} needs corruptor {known}, not {c.corruptor}",
    )
    check_detecting(o, m)
    check_masked_lm(c, o, m)
    for option, corruptors in row.needs.items():
        need(
            not getattr(o.options, option) or c.corruptor in corruptors,
            f"{option} needs corruptor {' or '.join(corruptors)}, not {c.corruptor}",
        )
    check_drawing(c, m)
    check_temperature(c)
    odd = [named.split("=")[0] for named in row.uncovered if _says(c, *named.split("="))]
    need(
        not odd,
        (
            f"objective {o.objective} is exact for plain draws only: leave {', '.join(odd)} at the "
            "default"
        ),
    )
    wrong = row.check(m, o.options) or c.row.check(m, c.options)
    need(wrong is None, str(wrong))
    frozen = c.generator_training == "frozen"
    need(
        not (frozen and row.rewarded),
        (
            f"objective {o.objective} trains its generator; generator_training frozen goes with "
            "the others"
        ),
    )
    check_leaves(c, o)
    check_weights(c, o)


def _says(c: CorruptionConfig, name: str, value: str | None = None) -> bool:
    """Whether an option has this value or, without one, any but its default."""
    given = getattr(c, name)
    default = CorruptionConfig(corruptor=c.corruptor, mask_rate=c.mask_rate)
    return given != getattr(default, name) if value is None else given == value


def check_detecting(o: ObjectiveConfig, m: ModelConfig) -> None:
    """Whether the objective has a head that detects, and the architecture has that form of it."""
    need(
        m.init_rtd_bias == "zero" or o.row.logits == "replaced",
        f"init_rtd_bias {m.init_rtd_bias} is for heads that detect replaced tokens; objective "
        f"{o.objective} has none",
    )
    if not isinstance(o.options, DetectingOptions):
        return
    form = o.options.rtd_head
    having = [name for name, row in ARCHITECTURES.items() if form in row.rtd_heads]
    need(
        form in m.row.rtd_heads,
        f"rtd_head {form} is for architecture {' or '.join(having)}, not {m.architecture}: take "
        f"rtd_head {' or '.join(m.row.rtd_heads)}",
    )


def check_masked_lm(c: CorruptionConfig, o: ObjectiveConfig, m: ModelConfig) -> None:
    """Whether there is a masked language model for the architecture's options that change one."""
    one = c.row.has_generator or (o.row.masked_lm and c.row.shows_mask)
    for name in m.row.of_masked_lms:
        need(
            one or not getattr(m.options, name),
            f"{name} is for a masked language model, that of corruptor generator or of objective "
            f"mlm with corruptor mask; objective {o.objective} with corruptor {c.corruptor} has "
            "none: leave it out",
        )


def check_choosing(c: CorruptionConfig) -> None:
    """Which tokens are chosen, and what a language model is shown there."""
    need(0 < c.mask_rate < 1, f"mask_rate must lie between 0 and 1, not {c.mask_rate}")
    end = c.mask_rate_end
    need(end is None or 0 < end < 1, f"mask_rate_end must lie between 0 and 1, not {end}")
    need(0 <= c.clean_rate < 1, f"clean_rate must lie in [0, 1), not {c.clean_rate}")
    need(
        len(c.mask_mix) == 3 and min(c.mask_mix) >= 0 and abs(sum(c.mask_mix) - 1) < 1e-6,
        f"mask_mix {c.mask_mix} must be three shares that sum to 1",
    )
    need(
        c.span_length == SPAN or c.mask_unit == "span",
        f"span_length is for mask_unit span, not {c.mask_unit}",
    )
    need(2 <= c.span_length <= 64, f"span_length must lie between 2 and 64, not {c.span_length}")


def check_leaves(c: CorruptionConfig, o: ObjectiveConfig) -> None:
    """Raises UserError if a network that a row names would take the place of something else in the
    run's folder."""
    rows = {f"corruptor {c.corruptor}": c.row, f"objective {o.objective}": o.row}
    for whose, row in rows.items():
        for name in row.leaves:
            need(
                PLAIN_NAME.fullmatch(name) is not None and name != KEPT and not is_of_the_run(name),
                f"{whose} leaves a network in a folder {brief(name)}, which is not a name for it: "
                "the run has its own files",
                "give it another name of letters, digits, _ and - in `leaves` of its row",
            )
    both = sorted(c.row.leaves.keys() & o.row.leaves.keys())
    need(
        not both,
        f"{' and '.join(rows)} both leave a network in a folder {', '.join(both)}",
        "give one of them another name in `leaves` of its row",
    )


def check_weights(c: CorruptionConfig, o: ObjectiveConfig) -> None:
    losses = set(o.row.losses) | ({"generator"} if learns_by_likelihood(c, o) else set())
    options = vars(c) | vars(o.options)
    extra = {loss for loss, option in o.row.optional.items() if options[option]}
    names = set(o.term_weights)
    for row_name, row in OBJECTIVES.items():
        for loss in sorted(names & row.optional.keys() - extra - losses):
            need(
                False,
                (
                    f"a term weight for `{loss}` needs objective {row_name} and a "
                    f"{row.optional[loss]} above 0"
                ),
            )
    for loss, option in o.row.optional.items():
        need(
            o.term_weights.get(loss, 0) > 0 or option not in vars(o.options) or not options[option],
            f"{option} is for the loss `{loss}`, which has no weight: give term_weights with "
            f"{loss}=1, too",
        )
    if not losses <= names <= losses | extra:
        right = losses | names & extra
        given = {loss: o.term_weights.get(loss, o.row.losses.get(loss, 1)) for loss in right}
        raise UserError(
            f"term_weights must name {sorted(losses)}, not {sorted(names)}"
            + ("generator" in names ^ losses) * _about_generator(c, o, "generator" in losses),
            "give term_weights " + ",".join(f"{k}={w:g}" for k, w in sorted(given.items())),
        )
    weights = o.term_weights.values()
    need(
        all(0 <= w < math.inf for w in weights) and any(weights),
        f"term_weights must be 0 or more, and not all 0: {o.term_weights}",
    )
    wrong = o.row.check_weights(o.term_weights, o.options)
    need(wrong is None, str(wrong))


def _about_generator(c: CorruptionConfig, o: ObjectiveConfig, learns: bool) -> str:
    """Why the loss `generator` is there, or is not."""
    if learns:
        return f", because corruptor {c.corruptor} is trained with the loss `generator`"
    if not c.row.learned:
        return f", because corruptor {c.corruptor} has no loss `generator`"
    if o.row.rewarded:
        return f", because objective {o.objective} trains the generator with rewards"
    return ", because nothing trains a generator that is frozen"


def check_drawing(c: CorruptionConfig, m: ModelConfig) -> None:
    for name in ("temperature", "temperature_end"):
        value = getattr(c, name)
        need(value is None or 0 < value < math.inf, f"{name} must be positive, not {value}")
    drawn = (c.temperature, c.temperature_end, c.disallow_correct) != (1.0, None, False)
    need(
        c.row.learned or not drawn,
        (
            "temperature, temperature_end and disallow_correct are for learned corruptors, not "
            f"{c.corruptor}"
        ),
    )
    frozen = c.generator_training == "frozen"
    need(
        not frozen or c.row.has_generator,
        f"generator_training frozen is for corruptor generator, not {c.corruptor}",
    )
    need(
        not frozen or m.tie in ("none", "gdes"),
        (
            f"a frozen generator needs tie none or gdes: with {m.tie} the discriminator would "
            "change it"
        ),
    )
    need(
        m.tie not in ("all", "lower") or c.row.has_generator or not c.row.learned,
        f"tie {m.tie} is for corruptor generator, which is one language model, not for "
        f"{c.corruptor}",
    )


def check_temperature(c: CorruptionConfig) -> None:
    """How a temperature moves."""
    exponential = c.temperature_schedule == "exponential"
    need(
        not exponential or c.temperature_end not in (None, c.temperature),
        "temperature_schedule exponential needs another temperature_end to move to",
    )
    need(
        exponential or c.temperature_decay == DECAY,
        "temperature_decay is for temperature_schedule exponential",
    )
    need(
        0 < c.temperature_decay < math.inf,
        f"temperature_decay must be positive, not {c.temperature_decay}",
    )
