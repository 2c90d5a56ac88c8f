"""Runs: a healthy one is called so, no damage to a checkpoint passes, and each trap is seen where
it is and nowhere else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from folders import cut, damaged, edit, flip, levels, link_out, of
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from electrify.config.checks import check
from electrify.config.doctor import DoctorConfig
from electrify.config.pretrain import PretrainConfig, load_recipe, override, recipe_names
from electrify.config.pretrain import load_file as read_config
from electrify.doctor.history import history_findings, judged_loss
from electrify.doctor.recipe import recipe_traps
from electrify.doctor.report import diagnose
from electrify.doctor.run import examine_run
from electrify.oldfiles.lock import holder, lock
from electrify.oldfiles.seals import SEAL, sealed
from electrify.train.guard import spike_text
from electrify.train.meter import slow_text
from electrify.train.monitor import GRACE_TOKENS, MAX_EPOCHS, Monitor

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")
# A run of eight updates is slower in its second half where another program takes the machine.
TRUE_OF_TINY = {"slower", "few-steps", "little-text", "vocabulary-too-large", "short-documents"}


def test_a_healthy_run_with_its_data_and_models(finished: Path, small_data: Path) -> None:
    report = diagnose(DoctorConfig(paths=(str(small_data), str(finished))))
    assert [d.kind for d in report.folders] == ["DATA", "RUN", "MODEL", "MODEL"]
    assert report.status == 0
    for folder in report.folders:
        assert of(folder, "error") == set()
        assert of(folder, "warning") <= TRUE_OF_TINY
    run, discriminator, generator = report.folders[1:]
    assert {"checkpoints", "finished", "learning", "same-data", "tokenizer"} <= of(run, "ok")
    assert {"whole", "shapes", "finite", "tokenizer"} <= of(discriminator, "ok") & of(
        generator, "ok"
    )


@pytest.fixture(scope="module")
def to_damage(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without its models, which are looked at elsewhere."""
    run = Path(shutil.copytree(finished, tmp_path_factory.mktemp("damage") / "run"))
    for half in ("discriminator", "generator"):
        shutil.rmtree(run / half)
    return run


@settings(max_examples=80)
@given(
    name=st.sampled_from(FILES),
    step=st.sampled_from([4, 8]),
    at=st.floats(0, 1),
    bit=st.integers(0, 7),
    cuts=st.booleans(),
)
def test_no_damage_to_a_checkpoint_passes(
    to_damage: Path, name: str, step: int, at: float, bit: int, cuts: bool
) -> None:
    path = to_damage / f"checkpoint-{step}" / name
    whole = path.read_bytes()
    with damaged(path, cut(whole, at) if cuts else flip(whole, at, bit)):
        (found,) = examine_run(to_damage, data=[])
        (bad,) = [f for f in found.findings if f.level == "error"]
        assert bad.fact.startswith(f"checkpoint-{step}: ")
        assert f"continuing takes checkpoint-{12 - step}" in bad.advice


def test_no_whole_checkpoint(run: Path) -> None:
    for step in (4, 8):
        (run / f"checkpoint-{step}" / "state.json").unlink()
    found = examine_run(run, data=[])[0]
    assert {"checkpoint", "no-checkpoint"} <= of(found, "error")


HEADS = st.sampled_from(["run.json", "config.yaml", "metrics.jsonl", "tokenizer/tokenizer.json"])


@settings(max_examples=60)
@given(name=HEADS, at=st.floats(0, 1), bit=st.integers(0, 7), cuts=st.booleans())
def test_damage_at_the_head_of_a_run_breaks_nothing(
    to_damage: Path, name: str, at: float, bit: int, cuts: bool
) -> None:
    """These have no hashes of their own, except the tokenizer: a digit may change unseen, a check
    may not break."""
    path = to_damage / name
    with damaged(path, cut(path.read_bytes(), at) if cuts else flip(path.read_bytes(), at, bit)):
        (found,) = examine_run(to_damage, data=[])
        assert "checkpoints" in of(found, "ok")
        if name.endswith("tokenizer.json"):
            assert {"hash", "missing", "tokenizer"} & of(found, "error")


@pytest.mark.parametrize("name", ["run.json", "config.yaml", "tokenizer/tokenizer.json"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        "a: [" * 5_000,
        "\0",
        '{"vocab_size": 1e999, "special_ids": {"others": 3}}',
    ],
)
def test_heads_that_are_none(run: Path, name: str, text: str) -> None:
    (run / name).write_text(text)
    assert of(examine_run(run, data=[])[0], "error")


def yaml_edit(run: Path, old: str, new: str) -> None:
    text = (run / "config.yaml").read_text()
    assert old in text
    (run / "config.yaml").write_text(text.replace(old, new))


def without(run: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(run / name)


def tear(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as f:
        f.write('{"kind": "tr')


def link_inside(run: Path) -> None:
    (run / "config.yaml").rename(run / "other.yaml")
    (run / "config.yaml").symlink_to("other.yaml")


def half_done(run: Path) -> None:
    without(run, "discriminator", "generator", "checkpoint-8")


@pytest.mark.parametrize(
    ("change", "level", "code"),
    [
        (half_done, "note", "unfinished"),
        (lambda run: without(run, "discriminator", "generator"), "warning", "not-exported"),
        (lambda run: without(run, "checkpoint-4", "checkpoint-8"), "note", "no-checkpoint"),
        (
            lambda run: without(run, "checkpoint-4", "checkpoint-8", "discriminator"),
            "warning",
            "no-checkpoint",
        ),
        (lambda run: (run / f".tmp-4-{'a' * 32}").mkdir(), "note", "left-over"),
        (lambda run: link_out(run / "config.yaml"), "error", "refused"),
        (link_inside, "error", "link"),
        (tear, "warning", "torn"),
        (lambda run: (run / "metrics.jsonl").unlink(), "warning", "no-log"),
        (
            lambda run: edit(run / "run.json", lambda f: f.update(tokenizer_sha256="0" * 64)),
            "error",
            "hash",
        ),
        (
            lambda run: edit(run / "run.json", lambda f: f["special_ids"].update(mask=9)),
            "error",
            "special-ids",
        ),
        (
            lambda run: edit(run / "run.json", lambda f: f.update(vocab_size=f["vocab_size"] - 1)),
            "error",
            "tokenizer-too-large",
        ),
        (
            lambda run: edit(run / "run.json", lambda f: f.update(vocab_size=f["vocab_size"] + 1)),
            "error",
            "vocabulary",
        ),
        (lambda run: yaml_edit(run, "tie: embeddings", "tie: none"), "error", "tie"),
        (lambda run: yaml_edit(run, "mask_rate: 0.15", "mask_rate: 1.5"), "error", "refused"),
        (lambda run: yaml_edit(run, "mask_rate: 0.15", "mask_rat: 0.15"), "error", "refused"),
    ],
)
def test_findings_of_a_run(run: Path, change: Callable[[Path], Any], level: str, code: str) -> None:
    assert levels(examine_run(run, data=[])[0]).get(code, "ok") == "ok"
    change(run)
    assert levels(examine_run(run, data=[])[0])[code] == level


def test_the_command_that_continues_a_run(run: Path, tmp_path: Path) -> None:
    """A study has its runs below a folder for each cell."""
    half_done(run)
    cell = Path(shutil.copytree(run, tmp_path / "study" / "cells" / "a-seed0" / "run"))
    shutil.copytree(run, cell / "generator-stage")
    (tmp_path / "study" / "study.yaml").touch()
    for folder, verb in (
        (run, "pretrain"),
        (cell, "compare"),
        (cell / "generator-stage", "compare"),
    ):
        found = examine_run(folder, data=[])[0].findings
        (advice,) = [f.advice for f in found if f.code == "unfinished"]
        assert advice == f"The same `electrify {verb}` command continues it."


def test_a_recipe_that_grows_when_it_is_read(run: Path) -> None:
    """Ten lines of aliases are 10^10 values where somebody prints them."""
    laughs = ["a0: &a0 [x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 11)
    ]
    (run / "config.yaml").write_text("\n".join(laughs))
    assert "refused" in of(examine_run(run, data=[])[0], "error")


def test_a_run_at_work_is_left_alone(run: Path) -> None:
    half_done(run)
    with lock(run):
        found = examine_run(run, data=[])[0]
        assert "in-use" in of(found, "note")
        assert not {"unfinished", "left-over"} & of(found, "note")
        assert holder(run) is not None  # looking has not freed it
    assert holder(run) is None


def test_another_corpus(run: Path, data: Path) -> None:
    from folders import edit_tokens

    edit_tokens(data, lambda ids: ids.__setitem__(0, 9))
    report = diagnose(DoctorConfig(paths=(str(run), str(data))))
    (found,) = [f for f in report.folders[0].findings if f.code == "other-data"]
    assert found.level == "error"
    assert "the same vocabulary and other text" in found.fact


def test_two_runs_of_one_seed(run: Path, finished: Path) -> None:
    report = diagnose(DoctorConfig(paths=(str(run), str(finished))))
    assert "same-seed" in of(report.folders[3], "note")
    yaml_edit(run, "seed: 0", "seed: 1")
    assert "same-seed" not in of(
        diagnose(DoctorConfig(paths=(str(run), str(finished)))).folders[3], "note"
    )


def test_a_run_is_examined_once_whatever_it_is_called(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(finished)
    report = diagnose(DoctorConfig(paths=(str(finished), str(tmp_path / "other"))))
    assert [d.path for d in report.folders if d.kind == "RUN"] == [finished]


def test_runs_on_two_corpora_are_two_samples_and_no_pair(run: Path, finished: Path) -> None:
    edit(run / "run.json", lambda f: f.update(data="0" * 64))
    for name in ("discriminator", "generator"):
        edit(run / name / "config.json", lambda c: c.update(vocab_size=600))
    report = diagnose(DoctorConfig(paths=(str(finished), str(run))))
    assert "same-seed" not in of(report.folders[3], "note")
    assert not any("other-vocabulary" in of(d, "warning") for d in report.folders)


def test_a_run_whose_models_are_no_pair(run: Path) -> None:
    edit(run / "generator" / "config.json", lambda c: c.update(vocab_size=600))
    report = diagnose(DoctorConfig(paths=(str(run),)))
    assert "other-vocabulary" in of(report.folders[2], "warning")


# ------------------------------------------------------------------ recipes


def traps_of(config: PretrainConfig, tokens: int | None = None) -> dict[str, str]:
    return levels(list(recipe_traps(config, tokens=tokens)))


def test_a_few_long_rows_are_a_batch() -> None:
    """4 rows of 8,192 tokens are as 256 of 128; for 4 short rows the rate is too high."""
    fields = {"train_batch_size": 4, "learning_rate": 5e-4, "max_position_embeddings": 8192}
    for length, high in ((8192, False), (128, True)):
        config = override(load_recipe("bert-small"), fields | {"max_seq_length": length})
        assert ("learning-rate-high" in traps_of(config)) == high


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_fall_into_no_trap(name: str) -> None:
    # Small++ was released with a generator as large as the encoder; the advice against it stands.
    known = {"warning"} if name == "electra-small-pp" else set()
    assert set(traps_of(load_recipe(name), tokens=10**12).values()) <= {"ok"} | known


@pytest.mark.parametrize(
    ("recipe", "fields", "level", "code"),
    [
        ("electra-base", {"train_batch_size": 4}, "warning", "learning-rate-high"),
        ("electra-small", {"learning_rate": 0.01}, "warning", "learning-rate-high"),
        (
            "electra-large",
            {"train_batch_size": 128, "learning_rate": 5e-4},
            "warning",
            "learning-rate-high",
        ),
        ("electra-small", {"learning_rate": 1e-6}, "warning", "learning-rate-low"),
        ("electra-small", {"warmup_steps": 1_000_000}, "warning", "warmup"),
        ("electra-small", {"max_steps": 20_000}, "note", "warmup"),
        ("electra-tiny", {"max_steps": 120, "warmup_steps": 1}, "warning", "few-steps"),
        (
            "electra-tiny",
            {"max_steps": 1200, "warmup_steps": 1, "init": "bert"},
            "warning",
            "few-steps",
        ),
        ("electra-small", {"generator_size": 1.0}, "warning", "generator-size"),
        (
            "electra-small",
            {"generator_size": 0.0625, "generator_num_attention_heads": 1},
            "warning",
            "generator-size",
        ),
        ("electra-small", {"mask_rate": 0.4}, "warning", "mask-rate"),
        ("bert-small", {"mask_rate": 0.6}, "warning", "mask-rate"),
        ("bert-small", {"mask_rate": 0.03}, "warning", "mask-rate"),
        ("bert-small", {"mask_rate_end": 0.8}, "warning", "mask-rate"),
        ("electra-small", {"mask_rate_end": 0.03}, "warning", "mask-rate"),
        ("electra-small", {"tie": "none"}, "note", "untied"),
    ],
)
def test_traps_of_recipes(recipe: str, fields: dict[str, Any], level: str, code: str) -> None:
    assert traps_of(load_recipe(recipe)).get(code, "ok") == "ok"
    assert traps_of(override(load_recipe(recipe), fields))[code] == level


def test_what_can_be_given_instead_of_so_strong_a_generator() -> None:
    """Where both share a table of one width, only blocks can be left out."""
    wide = {"generator_size": 1.0, "generator_num_hidden_layers": None}
    for recipe, cure in (
        ("electra-small", "--generator-size 0.25"),
        ("electra-modernbert-small", "--generator-num-hidden-layers"),
        ("electra-deberta-small", "--generator-num-hidden-layers"),
        ("amos-small", "--generator-num-hidden-layers"),
    ):
        fields = wide | ({"read_outs": ()} if recipe.startswith("amos") else {})
        (found,) = [
            f
            for f in recipe_traps(override(load_recipe(recipe), fields), tokens=None)
            if f.code == "generator-size"
        ]
        assert cure in found.advice


@pytest.mark.parametrize(
    ("recipe", "fields", "tie"),
    [
        ("electra-tiny", {}, "embeddings"),
        ("electra-tiny", {"generator_dropout": 0.0}, "tokens"),
        ("electra-modernbert-tiny", {"generator_size": 0.5}, None),
        ("electra-tiny", {"term_weights": {"generator": 0.0, "rtd": 50.0}}, None),
        ("adversarial-tiny", {}, "embeddings"),
        ("two-stage-tiny", {}, None),
    ],
)
def test_only_what_can_be_shared_is_advised(
    recipe: str, fields: dict[str, Any], tie: str | None
) -> None:
    """And nothing where the generator does not train the words."""
    config = override(load_recipe(recipe), {"tie": "none"} | fields)
    check(config)
    advice = [f.advice for f in recipe_traps(config, tokens=None) if f.code == "untied"]
    assert [one.endswith(f"--tie {tie}.") for one in advice] == [True] * (tie is not None)
    if tie:
        check(override(config, {"tie": tie}))


def test_the_width_of_a_generator_is_that_of_its_folder(run: Path) -> None:
    """Whatever the recipe says, which such a run does not read."""

    def other(facts: dict[str, Any]) -> dict[str, Any]:
        facts["shapes"]["generator"]["hidden_size"] = 24
        del facts[SEAL]
        return sealed(facts)

    edit(run / "run.json", other)
    facts = [f.fact for f in examine_run(run, data=[])[0].findings if f.code == "generator-size"]
    assert facts == ["the generator is 24 wide, 0.75 of the encoder's 32"]


def test_more_epochs_than_help() -> None:
    config = load_recipe("electra-tiny")
    slots = config.train.max_steps * 64 * 64
    assert traps_of(config, tokens=slots // (MAX_EPOCHS - 1))["epochs"] == "ok"
    assert traps_of(config, tokens=slots // (MAX_EPOCHS + 1))["epochs"] == "warning"


# ------------------------------------------------------------------ logs

LATE = 10 * GRACE_TOKENS
GOOD = {
    "generator": 3.6,
    "rtd": 0.3,
    "generator_loss_masked": 4.2,
    "rtd_detection_auc": 0.75,
    "rtd_detection_recall": 0.11,
    "rtd_detection_replaced": 0.12,
}


def lines(kind: str, *each: dict[str, Any], **same: Any) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "step": 100 * (i + 1), "tokens": LATE, "epoch": 1.0} | same | more
        for i, more in enumerate(each)
    ]


TRAIN = lines(
    "train",
    *(
        {"generator": 4 - i / 10, "tokens_per_s": 1000.0, "grad_norm": 1.0, "rtd": 0.3}
        for i in range(10)
    ),
)
VALID = lines(
    "valid",
    *({"generator": 4 - i / 10} for i in range(4)),
    **{k: v for k, v in GOOD.items() if k != "generator"},
)


def history(
    folder: Path,
    records: list[dict[str, Any]],
    *,
    entropy: float | None = 6.5,
    recipe: str = "electra-tiny",
    **fields: Any,
) -> dict[str, str]:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    config = override(load_recipe(recipe), fields)
    return levels(list(history_findings(folder, config, unigram_entropy=entropy)))


def test_a_healthy_log(tmp_path: Path) -> None:
    assert set(history(tmp_path, TRAIN + VALID).values()) == {"ok"}
    assert {k for k, v in history(tmp_path, TRAIN + VALID, entropy=None).items() if v != "ok"} == {
        "no-entropy"
    }


def last(records: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return [*records[:-1], records[-1] | more]


@pytest.mark.parametrize(
    ("records", "code", "level"),
    [
        (TRAIN + last(VALID, generator_loss_masked=6.45), "monitor", "warning"),
        (TRAIN + last(VALID, rtd_detection_recall=0.0), "monitor", "warning"),
        (last(TRAIN, epoch=41.0) + VALID, "monitor", "warning"),
        (TRAIN + last(VALID, rtd_detection_auc=0.51), "chance", "warning"),
        (TRAIN + last(VALID, generator=3.9), "overfitting", "warning"),
        (last(TRAIN, generator=4.5) + last(VALID, generator=3.9), "diverging", "warning"),
        (last(TRAIN, grad_norm="nan"), "not-finite", "error"),
        ([*TRAIN[:3], TRAIN[3] | {"rtd": "inf"}, *TRAIN[4:]], "not-finite", "warning"),
        ([*TRAIN[:6], *(r | {"tokens_per_s": 400.0} for r in TRAIN[6:])], "slower", "warning"),
        ([*TRAIN, TRAIN[2]], "log-order", "warning"),
        (
            [
                *TRAIN,
                {
                    "kind": "event",
                    "step": 5,
                    "warning": "the loss or gradient of update 5 is not finite: left out",
                },
            ],
            "event",
            "warning",
        ),
        (
            [
                *TRAIN,
                {
                    "kind": "event",
                    "step": 5,
                    "warning": "the discriminator calls every token original after 5.5 M tokens",
                },
                *VALID,
            ],
            "event",
            "note",
        ),
        (TRAIN, "not-validated", "note"),
        ([], "empty-log", "note"),
    ],
)
def test_findings_of_a_log(
    tmp_path: Path, records: list[dict[str, Any]], code: str, level: str
) -> None:
    assert history(tmp_path, TRAIN + VALID).get(code, "ok") == "ok"
    assert history(tmp_path, records)[code] == level


SAID_BY_MONITORS = Monitor(unigram_entropy=6.5).watch(
    last(VALID, epoch=41.0, generator_loss_masked=6.45, rtd_detection_recall=0.0)[-1]
) + Monitor(unigram_entropy=6.5).watch(
    VALID[-1] | {"rtd_detection_recall": 1.0, "rtd_detection_precision": 0.12}
)


def test_one_trouble_is_one_finding(tmp_path: Path) -> None:
    """Said by the run, by the monitor now, and seen in the area under the curve."""
    text = (
        "the discriminator calls every token original after 5.5 M tokens (it finds 0.0% of the "
        "replaced ones): look elsewhere"
    )
    bad = last(VALID, rtd_detection_recall=0.0, rtd_detection_auc=0.5)
    history(tmp_path, [*TRAIN, {"kind": "event", "step": 7, "warning": text}, *bad])
    found = [
        f
        for f in history_findings(tmp_path, load_recipe("electra-tiny"), unigram_entropy=6.5)
        if f.level != "ok"
    ]
    assert [f.code for f in found] == ["monitor"]
    assert "(first said at step 7)" in found[0].fact


@pytest.mark.parametrize(
    ("text", "over", "level"),
    [
        *((trouble.text, True, "note") for trouble in SAID_BY_MONITORS),
        (f"{spike_text(5, 9.0, 4.0, 0.5)}: trained on; --spike skip leaves it out", True, "note"),
        (f"{spike_text(5, 9.0, 4.0, 0.0)}: left out (1 so far, 9 allowed)", True, "note"),
        (slow_text(20_600, 3_100, device="cpu", threads=2), False, "note"),
        ("checkpoint-5 cannot be written (No space left): the run goes on", False, "note"),
    ],
)
def test_only_what_is_judged_again_is_called_over(
    tmp_path: Path, text: str, over: bool, level: str
) -> None:
    history(tmp_path, [*TRAIN, *VALID, {"kind": "event", "step": 400, "warning": text}])
    config = load_recipe("electra-tiny")
    found = history_findings(tmp_path, config, unigram_entropy=6.5)
    (event,) = [f for f in found if f.code == "event"]
    assert ("It was over" in event.advice) == over
    assert event.level == level


@pytest.mark.parametrize(
    ("topic", "says", "level"),
    [
        *((trouble.topic, "It was over", "note") for trouble in SAID_BY_MONITORS),
        ("spike", "It was over", "note"),
        ("non_finite", "A few may be left out", "warning"),
        ("went_back", "A few may be left out", "warning"),
        ("data", "Look whether it is there again", "warning"),
        ("slow", "Look whether that still holds", "note"),
    ],
)
def test_a_warning_is_known_by_its_topic(tmp_path: Path, topic: str, says: str, level: str) -> None:
    """Whatever its words are."""
    event = {"kind": "event", "step": 400, "warning": "in other words", "topic": topic}
    history(tmp_path, [*TRAIN, *VALID, event])
    config = load_recipe("electra-tiny")
    found = history_findings(tmp_path, config, unigram_entropy=6.5)
    (event,) = [f for f in found if f.code == "event"]
    assert event.advice.startswith(says)
    assert event.level == level


def test_one_trouble_of_two_versions_is_one_finding(tmp_path: Path) -> None:
    """A log whose older lines have no topic."""
    last_words = "generator: no better than word frequencies after 5.5 M tokens (loss 6.4): so"
    old = {"kind": "event", "step": 5, "warning": last_words}
    new = {"kind": "event", "step": 7, "warning": "as bad as counting"}
    new |= {"topic": "frequencies", "subject": "generator"}
    other = new | {"step": 9, "subject": "mlm"}
    history(tmp_path, [*TRAIN, old, new, other, *VALID])
    found = history_findings(tmp_path, load_recipe("electra-tiny"), unigram_entropy=6.5)
    facts = [f.fact for f in found if f.code == "event"]
    assert facts == [
        "the run warned 2 times (step 5 to 7): as bad as counting",
        "the run warned 1 time (step 9): as bad as counting",
    ]


def test_each_file_that_was_lost_is_a_finding(tmp_path: Path) -> None:
    lost = ["D/tokens-train-000.bin was lost", "D/offsets.npy was lost"]
    said = [
        {
            "kind": "event",
            "step": step,
            "warning": f"{text}: it is still open here",
            "topic": "data",
        }
        for step, text in enumerate(lost * 2, 1)
    ]
    history(tmp_path, [*TRAIN, *said, *VALID])
    found = history_findings(tmp_path, load_recipe("electra-tiny"), unigram_entropy=6.5)
    facts = [f.fact for f in found if f.code == "event"]
    assert [text in fact for text, fact in zip(lost, facts, strict=True)] == [True, True]


def test_a_warning_that_nobody_can_judge_stays_one(tmp_path: Path) -> None:
    event = {
        "kind": "event",
        "step": 7,
        "warning": (
            "generator: no better than word frequencies after 5.5 M tokens (loss 6.4): it does not"
        ),
    }
    assert history(tmp_path, [*TRAIN, event, *VALID], entropy=None)["event"] == "warning"
    assert history(tmp_path, [*TRAIN, event, *VALID])["event"] == "note"


def test_no_false_alarm_before_anything_is_expected(tmp_path: Path) -> None:
    early = [
        r | {"tokens": 1000}
        for r in last(VALID, rtd_detection_recall=0.0, generator_loss_masked=9.0)
    ]
    assert set(history(tmp_path, TRAIN + early).values()) == {"ok"}


def test_chance_is_not_called_learning(tmp_path: Path) -> None:
    """Early it is usual, and still nothing that was learnt; late it is a warning, and not beside an
    ok."""
    early = [r | {"tokens": 1000} for r in last(VALID, rtd_detection_auc=0.511)]
    found = history(tmp_path, TRAIN + early)
    assert found["not-learning-yet"] == "note"
    assert "learning" not in found
    assert "warning" not in found.values()
    late = history(tmp_path, TRAIN + last(VALID, rtd_detection_auc=0.511))
    assert (late["chance"], "learning" in late, "not-learning-yet" in late) == (
        "warning",
        False,
        False,
    )


def test_a_detection_that_begins_later_has_its_own_grace(tmp_path: Path) -> None:
    """The run is old, and what is at chance has just begun."""
    how: dict[str, Any] = {"recipe": "corrective-tiny", "mlm_share": 0.5}
    begins = load_recipe("corrective-tiny").train.max_steps // 2 * 64 * 64
    for after, level in ((1000, "note"), (GRACE_TOKENS + 1000, "warning")):
        records = [r | {"tokens": begins + after} for r in last(VALID, rtd_detection_auc=0.511)]
        found = history(tmp_path, TRAIN + records, **how)
        assert [*(found[k] for k in ("not-learning-yet", "chance") if k in found)] == [level]


def test_the_loss_may_rise_with_the_mask_rate(tmp_path: Path) -> None:
    """More hidden tokens are harder to guess."""
    rising = last(TRAIN, generator=4.5) + last(VALID, generator=3.9)
    assert "diverging" in history(tmp_path, rising, mask_rate_end=0.15)
    assert set(history(tmp_path, rising, mask_rate_end=0.3).values()) == {"ok"}
    apart = TRAIN + last(VALID, generator=3.9)  # that of training falls
    assert history(tmp_path, apart, mask_rate_end=0.3)["overfitting"] == "warning"


def test_a_discriminators_loss_may_rise(tmp_path: Path) -> None:
    """Its generator gets better."""
    assert set(history(tmp_path, TRAIN + last(VALID, rtd=0.5)).values()) == {"ok"}


def test_what_no_loss_trains_is_not_judged(tmp_path: Path) -> None:
    """A weight of 0 switches a loss off."""
    blind = last(VALID, rtd_detection_recall=0.0, rtd_detection_auc=0.49)
    how: dict[str, Any] = {"recipe": "corrective-tiny"}
    how["term_weights"] = {"generator": 1.0, "rtd": 0.0, "correct": 1.0}
    assert set(history(tmp_path, TRAIN + blind, **how).values()) == {"ok"}
    early = [r | {"tokens": 1000} for r in blind]
    assert set(history(tmp_path, TRAIN + early, **how).values()) == {"ok"}
    rising = TRAIN + last(VALID, generator=9.0, generator_loss_masked=9.1)
    found = history(tmp_path, rising, term_weights={"generator": 0.0, "rtd": 50.0})
    assert set(found.values()) == {"ok"}


def test_the_loss_that_should_fall() -> None:
    def judged(recipe: str, **weights: float) -> str | None:
        return judged_loss(override(load_recipe(recipe), {"term_weights": weights}))

    assert judged("electra-tiny", generator=1.0, rtd=50.0) == "generator"
    assert judged("electra-tiny", generator=0.0, rtd=50.0) is None
    assert judged("unigram-tiny", rtd=50.0) == "rtd"
    assert judged("bert-tiny", mlm=1.0) == "mlm"


def test_word_frequencies_of_the_corpus_judge_the_generator(run: Path, small_data: Path) -> None:
    """A run that does not say the entropy takes that of its DATA."""
    from electrify.doctor.consistency import entropy_of
    from electrify.doctor.data import examine_data

    facts = json.loads((run / "run.json").read_text())
    written = facts.pop("unigram_entropy")
    _, data = examine_data(small_data)
    assert data is not None
    config = read_config(run / "config.yaml")
    assert entropy_of(facts, [], config) is None
    assert entropy_of(facts, [data], config) == pytest.approx(written)
    rare = override(config, {"mask_choice": "rare"})
    entropy = entropy_of(facts, [data], rare)
    assert entropy is not None
    assert entropy > written + 0.1  # that of the tokens which such a run chooses
    facts["unigram_entropy"] = written  # as earlier versions recorded it of such a run, too
    assert entropy_of(facts, [data], rare) == entropy
    assert entropy_of(facts, [], rare) == entropy_of(facts, [data], config) == written
    towers = override(rare, {"corruptor": "two_tower"})
    assert entropy_of(facts, [data], towers) == pytest.approx(written)
    assert torch.isfinite(
        load_file(run / "checkpoint-8/model.safetensors")["corruptor.lm.head.bias_V"]
    ).all()
