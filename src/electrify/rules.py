"""Which numbers of a recipe cannot work together. Types and ranges of single fields are those of
recipe.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from .errors import UserError
from .recipe import (
    Corruption,
    Model,
    Recipe,
    learns_by_likelihood,
    stages_of,
    starts_of,
)
from .tables import ARCHITECTURES, OBJECTIVES

POSITIONS = "max_position_embeddings"


def check(recipe: Recipe, given: Iterable[str] = ()) -> None:
    """Raises UserError with the first rule that the recipe breaks.

    Args:
        given: Fields that the user wrote. Each must have an effect, those that a recipe carries
            along need not.
    """
    for sentence in broken(recipe, given):
        raise UserError(sentence)


def broken(recipe: Recipe, given: Iterable[str] = ()) -> Iterator[str]:
    """A sentence for each rule that the recipe breaks. Later rules rely on earlier ones."""
    yield from _model(recipe)
    if recipe.corruption.row.learned:
        yield from _generator(recipe.model)
    yield from _corruption(recipe)
    yield from _objective(recipe)
    yield from _weights(recipe)
    yield from _training(recipe)
    yield from _starts(recipe)
    yield from _lengths(recipe)
    yield from _idle(recipe, given)


def _model(recipe: Recipe) -> Iterator[str]:
    m, c = recipe.model, recipe.corruption
    if m.init not in m.row.inits:
        yield (
            f"init {m.init} does not exist for architecture {m.architecture}. Use "
            f"{' or '.join(m.row.inits)}"
        )
    if not m.row.narrow_embeddings and m.embedding_size != m.hidden_size:
        yield (
            f"embedding_size must equal hidden_size {m.hidden_size} in architecture "
            f"{m.architecture}, not {m.embedding_size}"
        )
    yield from _heads("", m.hidden_size, m.num_attention_heads, rotary=m.row.rotary)
    if not c.row.learned:
        own = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        names = [f"generator_{name}" for name in (*own, "dropout")]
        for name in (*names, "tie_layers"):
            if getattr(m, name) is not None:
                yield f"{name}: corruptor {c.corruptor} has no generator"
    shapes = [{"hidden_size": m.hidden_size, "num_attention_heads": m.num_attention_heads}]
    shapes += [m.generator_numbers()] if c.row.learned else []
    narrow = min(s["hidden_size"] // s["num_attention_heads"] for s in shapes)
    if m.init == "local" and min(narrow, m.embedding_size) < 4:
        yield f"init local needs heads and embeddings of at least 4. Use init {m.row.inits[0]}"


def _heads(whose: str, width: int, heads: int, *, rotary: bool) -> Iterator[str]:
    if width % heads:
        yield (
            f"{whose}hidden_size {width} is not a multiple of {whose}num_attention_heads {heads}"
        )
    if rotary and width // heads % 2:
        yield (
            f"{whose}num_attention_heads: rotary positions need heads of an even width, not "
            f"{width // heads}"
        )


def _generator(m: Model) -> Iterator[str]:
    own = m.generator_numbers()
    odd = [
        f"generator_{name} {own[name]} for {getattr(m, name)}"
        for name in own
        if own[name] != getattr(m, name)
    ]
    if not m.row.narrow_embeddings and m.tie != "none" and own["hidden_size"] != m.hidden_size:
        yield (
            f"tie {m.tie} in architecture {m.architecture} needs a generator of hidden_size "
            f"{m.hidden_size}, not {own['hidden_size']}. Use generator_size 1 and fewer "
            "generator_num_hidden_layers, or tie none"
        )
    yield from _heads(
        "generator_", own["hidden_size"], own["num_attention_heads"], rotary=m.row.rotary
    )
    if m.tie == "all" and odd:
        yield f"tie all needs generator_size 1: the generator has {', '.join(odd)}"
    if m.generator_dropout is not None and m.tie not in ("none", "tokens", "gdes"):
        yield (
            f"generator_dropout cannot differ with tie {m.tie}, which shares the embedding layer. "
            "Use tie tokens, none or gdes"
        )
    if (m.tie == "lower") != (m.tie_layers is not None):
        yield "tie lower and tie_layers go together: give both or neither"
    wide = [one for one in odd if not one.startswith("generator_num_hidden_layers")]
    if m.tie == "lower" and wide:
        yield f"tie lower needs equal widths: the generator has {', '.join(wide)}"
    most = min(m.num_hidden_layers, own["num_hidden_layers"])
    if m.tie_layers is not None and m.tie_layers > most:
        yield f"tie_layers must be at most {most}, the layers that both have, not {m.tie_layers}"


def _corruption(recipe: Recipe) -> Iterator[str]:
    m, c, o = recipe.model, recipe.corruption, recipe.objective
    if len(c.mask_mix) != 3 or abs(sum(c.mask_mix) - 1) > 1e-6:
        yield f"mask_mix must be three shares that sum to 1, not {c.mask_mix}"
    if c.span_length != Corruption.span_length and c.mask_unit != "span":
        yield f"span_length is for mask_unit span, not {c.mask_unit}"
    if c.corruptor not in o.row.corruptors and ":" not in c.corruptor:
        yield (
            f"corruptor {c.corruptor} does not go with objective {o.objective}. Use "
            f"{' or '.join(sorted(o.row.corruptors))}"
        )
    drawn = ("temperature", "temperature_end", "disallow_correct")
    for name in drawn:
        if not c.row.learned and getattr(c, name) != getattr(Corruption, name):
            yield f"{name} is for learned corruptors, not {c.corruptor}"
    if c.temperature_schedule == "exponential" and c.temperature_end in (None, c.temperature):
        yield "temperature_schedule exponential needs another temperature_end to move to"
    if (
        c.temperature_schedule != "exponential"
        and c.temperature_decay != Corruption.temperature_decay
    ):
        yield "temperature_decay is for temperature_schedule exponential"
    if c.generator_training == "frozen":
        if not c.row.has_generator:
            yield f"generator_training frozen is for corruptor generator, not {c.corruptor}"
        if o.row.rewarded:
            yield f"generator_training frozen: objective {o.objective} trains its generator"
        if m.tie not in ("none", "gdes"):
            yield f"generator_training frozen needs tie none or gdes, not {m.tie}"
    if m.tie in ("all", "lower") and c.row.learned and not c.row.has_generator:
        yield f"tie {m.tie} is for corruptor generator, not {c.corruptor}"
    blocks = m.generator_numbers()["num_hidden_layers"]
    depths = list(c.read_outs)
    if depths and (depths != sorted(set(depths)) or depths[-1] != blocks):
        yield (
            f"read_outs must be ascending and end with {blocks}, the generator's layers, not "
            f"{','.join(map(str, depths))}"
        )


def _objective(recipe: Recipe) -> Iterator[str]:
    m, c, o = recipe.model, recipe.corruption, recipe.objective
    if m.init_rtd_bias != "zero" and o.row.logits != "replaced":
        yield f"init_rtd_bias is for RTD heads, and objective {o.objective} has none"
    if "rtd_head" in o.row.options and o.rtd_head not in m.row.rtd_heads:
        having = [name for name, row in ARCHITECTURES.items() if o.rtd_head in row.rtd_heads]
        yield (
            f"rtd_head {o.rtd_head} is for architecture {' or '.join(having)}, not "
            f"{m.architecture}. Use {' or '.join(m.row.rtd_heads)}"
        )
    if m.mask_decoder and not (c.row.has_generator or (o.row.masked_lm and c.row.shows_mask)):
        yield (
            "mask_decoder is for a masked language model (corruptor generator, or objective mlm "
            "with corruptor mask)"
        )
    if o.mlm_share and not c.row.has_generator:
        yield f"mlm_share needs corruptor generator, not {c.corruptor}"
    for option in o.row.uncovered:
        name, _, value = option.partition("=")
        found = getattr(c, name)
        if found == value or (not value and found != getattr(Corruption, name)):
            yield f"{name} {found} does not go with objective {o.objective} (plain draws only)"
    if o.loss_on == "chosen" and o.correct_as_replaced:
        yield "correct_as_replaced needs loss_on all: otherwise every graded token is replaced"
    if o.loss_on == "chosen" and m.init_rtd_bias == "replaced":
        yield "init_rtd_bias replaced is the share among all tokens, and loss_on chosen grades few"
    if o.correction == "none" and not o.mlm_share:
        yield "correction none needs mlm_share. For detection alone use objective rtd"
    if o.contrast_rows == 1:
        yield "contrast_rows must be 0 or at least 2, not 1"
    if not o.contrast_rows and (o.contrast_temperature, o.crop_share) != (1.0, 0.9):
        yield "contrast_temperature and crop_share need contrast_rows"


def _weights(recipe: Recipe) -> Iterator[str]:
    c, o = recipe.corruption, recipe.objective
    weights = o.term_weights
    losses = {*o.row.losses, *(["generator"] if learns_by_likelihood(recipe) else [])}
    values = vars(c) | vars(o) | o.objective_options
    optional = {loss for loss, option in o.row.optional.items() if values[option]}
    for loss, option in o.row.optional.items():
        if loss in weights and not values[option]:
            yield f"term_weights: the loss {loss} needs {option} above 0"
        if option in o.options and values[option] and not weights.get(loss):
            yield f"{option} is for the loss {loss}: add {loss}=1 to term_weights"
    for objective, row in OBJECTIVES.items():
        for loss in weights.keys() & row.optional.keys() - losses - optional:
            needs = row.optional[loss]
            yield f"term_weights: the loss {loss} is for objective {objective} with {needs}"
    if not losses <= weights.keys() <= losses | optional:
        right = sorted(losses | weights.keys() & optional)
        shown = [f"{loss}={weights.get(loss, o.row.losses.get(loss, 1)):g}" for loss in right]
        why = f" ({_about_generator(recipe)})" if "generator" in losses ^ weights.keys() else ""
        yield f"term_weights must be {','.join(shown)}, not {','.join(sorted(weights))}{why}"
    if not any(weights.values()):
        yield f"term_weights must not all be 0: {weights}"
    if o.mlm_share and not weights["correct"]:
        yield "mlm_share trains by the loss correct, whose weight is 0 in term_weights"
    detects = o.correction == "none" or (o.correction != "plain" and weights["correct"])
    if detects and not weights["rtd"]:
        yield f"correction {o.correction} needs the loss rtd, whose weight is 0 in term_weights"


def _about_generator(recipe: Recipe) -> str:
    """Why the loss `generator` is there, or is not."""
    c, o = recipe.corruption, recipe.objective
    if learns_by_likelihood(recipe):
        return f"corruptor {c.corruptor} is trained with the loss generator"
    if not c.row.learned:
        return f"corruptor {c.corruptor} has no loss generator"
    if o.row.rewarded:
        return f"objective {o.objective} trains the generator with rewards"
    return "a frozen generator has no loss"


def _training(recipe: Recipe) -> Iterator[str]:
    c, t = recipe.corruption, recipe.train
    if t.threads != "auto" and not (t.threads.isdigit() and int(t.threads)):
        yield f"threads must be auto or a number from 1, not {t.threads!r}"
    if t.clip == "apart" and not t.max_grad_norm:
        yield "clip apart needs a max_grad_norm above 0"
    if t.fsdp == "full_shard" and t.torch_compile:
        yield "fsdp full_shard and torch_compile exclude each other"
    frozen = c.generator_training == "frozen"
    trained = c.row.learned and (not frozen or t.generator_steps)
    for name in ("generator_learning_rate", "generator_warmup_steps", "generator_weight_decay"):
        if getattr(t, name) is not None and not trained:
            yield f"{name}: no generator is trained here"
    if t.clip == "apart" and (frozen or not c.row.learned):
        yield "clip apart: no generator is trained with the encoder here"
    if recipe.model.generator_dropout is not None and not trained:
        yield "generator_dropout: no generator is trained here"
    grows = recipe.data.seq_length_schedule or t.batch_size_schedule
    for name in ("non_finite", "spike"):
        if getattr(t, name) == "rollback" and grows:
            yield f"{name} rollback excludes schedules of lengths and batch sizes"


def _starts(recipe: Recipe) -> Iterator[str]:
    """Two stages, and networks that start from folders."""
    m, c, o, t = recipe.model, recipe.corruption, recipe.objective, recipe.train
    if t.init_generator and not c.row.has_generator:
        yield f"init_generator is for corruptor generator, not {c.corruptor}"
    if c.generator_training == "frozen" and not (t.generator_steps or t.init_generator):
        yield "generator_training frozen needs generator_steps or init_generator"
    if m.init_rtd_bias != "zero" and t.init_discriminator:
        yield "init_rtd_bias and init_discriminator exclude each other"
    if m.tie == "lower" and (t.init_generator or t.generator_steps):
        yield "tie lower excludes init_generator and generator_steps"
    for name in m.extends:
        if not t.init_discriminator:
            yield f"{name} needs init_discriminator. Otherwise give {m.row.extends[name]}"
        if t.generator_steps:
            yield f"{name} excludes generator_steps, whose generator starts from no folder"
    if not t.generator_steps:
        if t.discriminator_start != "generator":
            yield f"discriminator_start {t.discriminator_start} needs generator_steps"
        return
    if c.generator_training != "frozen" and not o.row.rewarded:
        yield "generator_steps needs generator_training frozen, or objective adversarial"
    if not c.row.has_generator:
        yield f"generator_steps is for corruptor generator, not {c.corruptor}"
    if t.init_generator:
        yield "generator_steps and init_generator exclude each other"
    own = m.generator_numbers()
    differs = any(own[name] != getattr(m, name) for name in own)
    if t.discriminator_start == "generator" and (differs or t.init_discriminator):
        yield (
            "discriminator_start generator needs generator_size 1 and no init_discriminator. Use "
            "discriminator_start random"
        )


def limit(recipe: Recipe) -> tuple[str, float]:
    """The longest sequence in tokens that the discriminator reads, and the field that sets it. A
    folder's own limit is compared when it is loaded."""
    if not recipe.train.init_discriminator:
        return POSITIONS, recipe.model.max_position_embeddings
    name = extending(recipe.model, POSITIONS)
    if name in recipe.model.extends:
        return name, getattr(recipe.model, name)
    return POSITIONS, math.inf


def extending(model: Model, number: str) -> str | None:
    """The option of an architecture that extends a number of a folder's encoder."""
    return next((name for name, of in model.row.extends.items() if of == number), None)


def _lengths(recipe: Recipe) -> Iterator[str]:
    m, d, t = recipe.model, recipe.data, recipe.train
    name, most = limit(recipe)
    for field, length in (
        ("max_seq_length", d.max_seq_length),
        *(("seq_length_schedule", length) for length in d.seq_length_schedule),
    ):
        if length > most:
            yield f"{field} {length} exceeds {name} {most}"
    for field, schedule in (
        ("seq_length_schedule", d.seq_length_schedule),
        ("batch_size_schedule", t.batch_size_schedule),
    ):
        if sum(schedule.values()) >= 1:
            yield f"{field}: the shares must sum to less than 1, not {sum(schedule.values()):g}"
    for length in m.global_rope_theta_schedule:
        if length not in d.seq_length_schedule:
            yield f"global_rope_theta_schedule: seq_length_schedule has no rows of {length} tokens"
        if length == d.max_seq_length:
            yield (
                f"global_rope_theta_schedule: rows of {length} tokens are the last ones, for which "
                "global_rope_theta holds"
            )
    yield from periods(recipe)


def periods(recipe: Recipe) -> Iterator[str]:
    """The rule that each period of the run has an update."""
    share, steps = recipe.objective.mlm_share, recipe.train.max_steps
    if share * steps > steps - 1:
        yield f"mlm_share {share} of {steps:,} updates leaves none for detection"


def _idle(recipe: Recipe, given: Iterable[str]) -> Iterator[str]:
    """Fields that many recipes carry along without effect, where the user wrote them."""
    m, c = recipe.model, recipe.corruption
    without = {
        "generator_size": c.row.learned,
        "tie": c.row.learned,
        "mask_mix": c.row.shows_mask or bool(c.row.leaves),
        "local_amplitude": m.init == "local",
    }
    for name in given:
        if not without.get(name, True):
            what = f"init {m.init}" if name == "local_amplitude" else f"corruptor {c.corruptor}"
            yield f"{name} has no effect with {what}"


def cautions(recipe: Recipe, asked: str = "max_steps") -> Iterator[str]:
    """Warnings about settings that work and are probably not meant. asked: the field that sets the
    number of updates."""
    for name, steps, updates in endless_warmups(recipe):
        yield f"{name} {steps:,} is not below the {updates:,} updates, so the peak is never reached"
    d = recipe.data
    for length in d.seq_length_schedule:
        if length >= d.max_seq_length:
            yield (
                f"seq_length_schedule: rows of {length} tokens are not shorter than max_seq_length "
                f"{d.max_seq_length}"
            )
    *before, _ = stages_of(recipe)
    for stage, field in ((recipe, asked), *((one, "generator_steps") for one in before)):
        yield from _unused_parts(stage, field)


def _unused_parts(recipe: Recipe, asked: str) -> Iterator[str]:
    d, t = recipe.data, recipe.train
    for name, schedule, last in (
        ("seq_length_schedule", d.seq_length_schedule, d.max_seq_length),
        ("batch_size_schedule", t.batch_size_schedule, t.train_batch_size),
    ):
        starts = starts_of(schedule, last, t.max_steps)
        taken = {value for first, value in starts.items() if first < t.max_steps}
        for value in (*schedule, last):
            if value not in taken:
                yield f"{name}: no update has {value}. Increase {asked} or its share"


def endless_warmups(recipe: Recipe) -> list[tuple[str, int, int]]:
    """Warm-ups that last as long as their stage: the field, its updates, those of the stage."""
    *before, _ = stages_of(recipe)
    t = recipe.train
    own = t.generator_warmup_steps
    found = [("warmup_steps", t.warmup_steps, t.max_steps)]
    for stage in before:
        name = "warmup_steps" if own is None else "generator_warmup_steps"
        found.append((name, stage.train.warmup_steps, stage.train.max_steps))
    if own is not None and not (before and recipe.corruption.generator_training == "frozen"):
        found.append(("generator_warmup_steps", own, t.max_steps))
    return [one for one in found if one[1] >= one[2]]
