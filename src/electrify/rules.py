"""Which numbers of a recipe cannot work together. Types and ranges of single fields are those of
recipe.py."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from .errors import UserError
from .process import thread_count
from .recipe import (
    DEFAULTS,
    GENERATOR_RATES,
    GENERATOR_SIZES,
    SECTIONS,
    Model,
    Recipe,
    entry,
    first_asked,
    last_asked,
    learns_by_likelihood,
    load,
    stages_of,
)

POSITIONS = "max_position_embeddings"
_OF_LEARNED_NETWORK = (
    *(f"generator_{name}" for name in (*GENERATOR_SIZES, "dropout", "size")),
    *("tie", "tie_layers", "temperature", "temperature_end", "disallow_correct"),
)
_OF_TRAINED_NETWORK = tuple(f"generator_{name}" for name in (*GENERATOR_RATES, "dropout"))
_OWN_LAYERS = ("none", "tokens", "gdes")
_OF_GENERATOR = ("mlm_share", "mlm_end_share", "init_generator", "generator_steps")
_CARRIED = {"generator_size", "tie", "mask_mix", "local_amplitude", "adam_beta2"}
"""Fields that many recipes carry along without effect: only the user's must have one."""


def check(recipe: Recipe, given: Collection[str] = ()) -> None:
    """Raises UserError with the first rule that the recipe breaks.

    Args:
        given: Fields that the user wrote. Each must have an effect, those that a recipe carries
            along need not.
    """
    for sentence in broken(recipe, given):
        raise UserError(sentence)


def countable(name: str) -> Recipe:
    """The recipe of a name, an entry with changes, or a file, whose FLOPs can be counted. Raises
    UserError."""
    one = entry(name)
    recipe = one.load() if one.changes else load(name)
    check(recipe, one.changes)
    if recipe.train.init_discriminator or recipe.train.init_generator:
        raise UserError(f"{name} starts from a folder, whose shape is not counted")
    return recipe


def broken(recipe: Recipe, given: Collection[str] = ()) -> Iterator[str]:
    """A sentence for each rule that the recipe breaks. Later rules rely on earlier ones."""
    yield from _needs(recipe, given)
    yield from _networks(recipe)
    yield from _corruption(recipe)
    yield from _objective(recipe)
    yield from _training(recipe)
    yield from _starts(recipe)
    yield from _lengths(recipe)


def _needs(recipe: Recipe, given: Collection[str]) -> Iterator[str]:
    """Fields that another one makes work, where they have another value than their default."""
    m, c, o, t = recipe.model, recipe.corruption, recipe.objective, recipe.train
    joint = c.row.learned and c.generator_training != "frozen"
    trained = joint or (c.row.learned and t.generator_steps)
    moves = c.temperature_end not in (None, c.temperature)
    slow = c.temperature_schedule == "exponential"
    values = {name: v for section in SECTIONS for name, v in vars(getattr(recipe, section)).items()}
    for works, what, names in (
        (c.row.learned, "a corruptor with a generator", _OF_LEARNED_NETWORK),
        (trained, "a generator that is trained", _OF_TRAINED_NETWORK),
        (joint, "a generator that is trained with the encoder", ("clip",)),
        (c.row.has_generator, "corruptor generator", _OF_GENERATOR),
        (c.row.shows_mask or c.row.leaves, "a corruptor with [MASK]", ("mask_mix",)),
        (o.row.logits == "replaced", "an RTD head", ("init_rtd_bias",)),
        (o.loss_on == "all", "loss_on all", ("correct_as_replaced", "init_rtd_bias")),
        (m.tie in _OWN_LAYERS, f"tie {' or '.join(_OWN_LAYERS)}", ("generator_dropout",)),
        (m.init == "local", "init local", ("local_amplitude",)),
        (t.max_grad_norm, "a max_grad_norm above 0", ("clip",)),
        (t.adam_beta2_tokens is None, "no adam_beta2_tokens", ("adam_beta2",)),
        (c.mask_unit == "span", "mask_unit span", ("span_length",)),
        (moves, "another temperature_end", ("temperature_schedule",)),
        (slow, "temperature_schedule exponential", ("temperature_decay",)),
        (o.contrast_rows, "contrast_rows", ("contrast_temperature", "crop_share")),
        (t.lr_scheduler_type == "wsd", "lr_scheduler_type wsd", ("decay_share",)),
        (t.generator_steps, "generator_steps", ("discriminator_start",)),
    ):
        for name in names if not works else ():
            is_set = name in given if name in _CARRIED else values[name] != DEFAULTS[name]
            if is_set:
                yield f"{name} {values[name]} needs {what}"


def _networks(recipe: Recipe) -> Iterator[str]:
    m, learned = recipe.model, recipe.corruption.row.learned
    own = m.generator_numbers()
    if m.init not in m.row.inits:
        yield f"init must be {' or '.join(m.row.inits)} in {m.architecture}, not {m.init}"
    if not m.row.narrow_embeddings and m.embedding_size != m.hidden_size:
        yield f"embedding_size must be hidden_size {m.hidden_size} in {m.architecture}"
    for whose, its in (("", vars(m)), *([("generator_", own)] if learned else [])):
        width, heads = its["hidden_size"], its["num_attention_heads"]
        if width % heads:
            heads_of = f"{whose}num_attention_heads {heads}"
            yield f"{whose}hidden_size {width} must be a multiple of {heads_of}"
    if not learned:
        return
    odd = [name for name in GENERATOR_SIZES if own[name] != getattr(m, name)]
    differs = ", ".join(f"generator_{name} {own[name]} for {getattr(m, name)}" for name in odd)
    if not m.row.narrow_embeddings and m.tie != "none" and "hidden_size" in odd:
        yield f"tie must be none in {m.architecture}, or the generator as wide ({differs})"
    if m.tie == "all" and odd:
        yield f"tie all needs equal networks, as generator_size 1 ({differs})"
    if (m.tie == "lower") != (m.tie_layers is not None):
        yield "tie_layers and tie lower go together: give both or neither"
    if m.tie == "lower" and set(odd) - {"num_hidden_layers"}:
        yield f"tie lower needs equal widths ({differs})"
    most = min(m.num_hidden_layers, own["num_hidden_layers"])
    if m.tie_layers is not None and m.tie_layers > most:
        yield f"tie_layers must be at most {most}, the layers that both have, not {m.tie_layers}"


def _corruption(recipe: Recipe) -> Iterator[str]:
    m, c, o = recipe.model, recipe.corruption, recipe.objective
    row = c.row
    if len(c.mask_mix) != 3 or abs(sum(c.mask_mix) - 1) > 1e-6:
        yield f"mask_mix must be three shares that sum to 1, not {c.mask_mix}"
    if c.corruptor not in o.row.corruptors and ":" not in c.corruptor:
        known = " or ".join(sorted(o.row.corruptors))
        yield f"corruptor must be {known} for objective {o.objective}, not {c.corruptor}"
    if c.generator_training == "frozen":
        if not row.has_generator or o.row.rewarded:
            yield "generator_training frozen needs corruptor generator and no rewards"
        if m.tie not in ("none", "gdes"):
            yield f"generator_training frozen needs tie none or gdes, not {m.tie}"
    if m.tie in ("all", "lower") and row.learned and not row.has_generator:
        yield f"tie {m.tie} is for corruptor generator, not {c.corruptor}"
    layers, depths = m.generator_numbers()["num_hidden_layers"], list(c.read_outs)
    if depths and (depths != sorted(set(depths)) or depths[-1] != layers):
        yield f"read_outs must ascend to {layers}, the generator's layers, not {depths}"


def _objective(recipe: Recipe) -> Iterator[str]:
    m, c, o = recipe.model, recipe.corruption, recipe.objective
    heads = m.row.rtd_heads
    if "rtd_head" in o.row.options and o.rtd_head not in heads:
        yield f"rtd_head must be {' or '.join(heads)} in {m.architecture}, not {o.rtd_head}"
    if m.mask_decoder and not (c.row.has_generator or (o.row.masked_lm and c.row.shows_mask)):
        yield "mask_decoder needs a masked language model: corruptor generator, or mask with mlm"
    for option in o.row.uncovered:
        name, _, value = option.partition("=")
        found = getattr(c, name)
        if found == value or (not value and found != DEFAULTS[name]):
            yield f"{name} {found} does not go with objective {o.objective} (plain draws only)"
    weights, its = o.term_weights, o.row.optional
    losses = {*o.row.losses, *(["generator"] if learns_by_likelihood(recipe) else [])}
    values = vars(c) | vars(o) | o.objective_options
    for loss, option in its.items():
        if loss in weights and not values[option]:
            yield f"term_weights: the loss {loss} needs {option} above 0"
        if option in o.options and values[option] and not weights.get(loss):
            yield f"{option} is for the loss {loss}: add {loss}=1 to term_weights"
    if not losses <= weights.keys() <= losses | its.keys():
        right = sorted(losses | weights.keys() & its)
        shown = ",".join(f"{n}={weights.get(n, o.row.losses.get(n, 1)):g}" for n in right)
        yield f"term_weights must be {shown}, not {','.join(sorted(weights))}"
    if not any(weights.values()):
        yield f"term_weights must not all be 0: {weights}"
    if o.contrast_rows == 1:
        yield "contrast_rows must be 0 or at least 2, not 1"
    for name in ("mlm_share", "mlm_end_share"):
        if getattr(o, name) and not weights.get("correct"):
            yield f"{name} trains by the loss correct, whose weight is 0 in term_weights"
    detects = o.correction == "none" or (o.correction != "plain" and weights.get("correct"))
    if detects and not weights.get("rtd"):
        yield f"correction {o.correction} needs the loss rtd, whose weight is 0 in term_weights"


def _training(recipe: Recipe) -> Iterator[str]:
    t = recipe.train
    thread_count(t.threads)  # refuses other words
    if t.fsdp == "full_shard" and t.torch_compile:
        yield "fsdp full_shard and torch_compile exclude each other"
    if t.fsdp == "full_shard" and t.optim == "muon":
        yield "fsdp full_shard and optim muon exclude each other: Muon needs whole matrices"
    grows = recipe.data.seq_length_schedule or t.batch_size_schedule
    for name in ("non_finite", "spike"):
        if getattr(t, name) == "rollback" and grows:
            yield f"{name} rollback excludes schedules of lengths and batch sizes"


def _starts(recipe: Recipe) -> Iterator[str]:
    """Two stages, and networks that start from folders."""
    m, c, o, t = recipe.model, recipe.corruption, recipe.objective, recipe.train
    frozen = c.generator_training == "frozen"
    if frozen and not (t.generator_steps or t.init_generator):
        yield "generator_training frozen needs generator_steps or init_generator"
    if m.init_rtd_bias != "zero" and t.init_discriminator:
        yield "init_rtd_bias and init_discriminator exclude each other"
    if m.tie == "lower" and (t.init_generator or t.generator_steps):
        yield "tie lower excludes init_generator and generator_steps"
    for name in m.extends:
        if not t.init_discriminator:
            yield f"{name} needs init_discriminator. Otherwise give {m.row.extends[name]}"
    if not t.generator_steps:
        return
    if not frozen and not o.row.rewarded:
        yield "generator_steps needs generator_training frozen, or objective adversarial"
    if t.init_generator:
        yield "generator_steps and init_generator exclude each other"
    own = m.generator_numbers()
    unlike = t.init_discriminator or any(own[name] != getattr(m, name) for name in own)
    if t.discriminator_start == "generator" and unlike:
        yield "discriminator_start generator needs generator_size 1 and no init_discriminator"


def extending(model: Model, number: str) -> str | None:
    """The option of an architecture that extends a number of a folder's encoder."""
    return next((name for name, of in model.row.extends.items() if of == number), None)


def _lengths(recipe: Recipe) -> Iterator[str]:
    m, d, t = recipe.model, recipe.data, recipe.train
    lengths, sizes = d.seq_length_schedule, t.batch_size_schedule
    name, most = POSITIONS, m.max_position_embeddings
    if t.init_discriminator:  # its folder's own limit is compared when it is loaded
        name = extending(m, POSITIONS) or name
        most = getattr(m, name) if name in m.extends else math.inf
    for length in (d.max_seq_length, *lengths):
        if length > most:
            field = "seq_length_schedule" if length in lengths else "max_seq_length"
            yield f"{field} {length} exceeds {name} {most}"
    for field, schedule in (("seq_length_schedule", lengths), ("batch_size_schedule", sizes)):
        if sum(schedule.values()) >= 1:
            yield f"{field}: the shares must sum to less than 1, not {sum(schedule.values()):g}"
    for length in m.global_rope_theta_schedule:
        if length not in lengths or length == d.max_seq_length:
            yield f"global_rope_theta_schedule: no earlier rows have {length} tokens"
    yield from periods(recipe)


def periods(recipe: Recipe) -> Iterator[str]:
    """The rule that each period of the run has an update."""
    o, steps = recipe.objective, recipe.train.max_steps
    first, last = first_asked(recipe), last_asked(recipe)
    if first >= last:
        shares = f"mlm_share {o.mlm_share} and mlm_end_share {o.mlm_end_share}"
        yield f"{shares} of {steps:,} updates leave none for detection"
    if o.mlm_end_share and last >= steps:
        yield f"mlm_end_share {o.mlm_end_share} of {steps:,} updates is less than one"


def cautions(recipe: Recipe) -> Iterator[str]:
    """Warnings about settings that work and are probably not meant."""
    for name, steps, updates in endless_warmups(recipe):
        yield f"{name} {steps:,} is not below the {updates:,} updates, so the peak is never reached"


LONG_WARMUP = 0.25
"""The share of a run above which its warm-up is too long (recipes have 1 to 2 %)."""


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
