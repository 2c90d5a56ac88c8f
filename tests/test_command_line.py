"""The command line from outside: mistakes that people make, spellings of flags, help, statuses."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from electrify import cli as cli
from electrify.errors import Unfinished, UserError
from electrify.train.options import Pretrain

RUN = ["--output-dir", "run"]

MISTAKES = [
    ("pretrian data", "pretrain"),
    ("pretrain", "DATA"),
    ("pretrain data", "--output-dir"),
    ("pretrain data --output-dir run --max-stepz 5", "--max-steps"),
    ("pretrain data --output-dir run --lr 1e-4", "--learning-rate"),
    ("pretrain data --output-dir run --epochs 3", "--max-steps"),
    ("pretrain data --output-dir run --vocab-size 100", "prepare"),
    ("pretrain data --output-dir run --max-steps", "--max-steps"),
    ("pretrain data --output-dir run --max-steps five", "--max-steps"),
    ("pretrain data --output-dir run --mask-rate 1.5", "--mask-rate"),
    ("pretrain data --output-dir run --objective rdt", "'rtd'"),
    ("pretrain data --output-dir run --recipe electra-tinny", "'electra-tiny'"),
    ("pretrain data --output-dir run --mlm-share 0.4", "corrective"),
    ("pretrain data --output-dir run --num-attention-heads 3", "--hidden-size"),
    ("pretrain data --output-dir run --train-minutes 5 --max-steps 5", "--train-minutes"),
    ("prepare text --output-dir data --vocab-size 3", "--vocab-size"),
    ("prepare text --output-dir data --preset cod", "'code'"),
    ("finetune model --output-dir out", "--task"),
    ("finetune model --output-dir out --task cola --train-file a.csv", "--task"),
    ("embed model texts.txt --output-file out.txt", ".npy"),
    ("predict model texts.txt --overwrite", "--output-file"),
    ("compare data --output-dir out --recipes a --budgets 0 --tasks cola", "--budgets"),
    ("flops electra-tiny:max_stepz=4", "'max_steps'"),
    ("detect model text --file a.txt", "--file"),
    ("recipes electra-tinny", "'electra-tiny'"),
]


@pytest.mark.parametrize(("line", "named"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_status_2(line, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("electrify")
    assert ": error: " in err
    assert err.count("\n") == 1
    fields = err.replace("_", "-")  # a sentence may name the field of a flag
    assert named in err or named.removeprefix("--") in fields
    assert list(tmp_path.iterdir()) == []


def resolved(*words: str) -> Any:
    options = cli.read("pretrain", ["data", *RUN, "--recipe", "electra-tiny", *words])
    assert isinstance(options, Pretrain)
    return options.resolved()


@pytest.mark.parametrize(
    ("words", "section", "field", "value"),
    [
        ("--max-steps 7", "train", "max_steps", 7),
        ("--max_steps=7", "train", "max_steps", 7),
        ("--mask-mix 1,0,0", "corruption", "mask_mix", (1.0, 0.0, 0.0)),
        ("--seq-length-schedule 32=0.9", "data", "seq_length_schedule", {32: 0.9}),
        ("--seq-length-schedule none", "data", "seq_length_schedule", {}),
        ("--save-total-limit none", "train", "save_total_limit", None),
        ("--bf16 true", "train", "bf16", True),
        ("--bf16", "train", "bf16", True),
        ("--no-bf16", "train", "bf16", False),
        ("--torch-compile --seed 3", "train", "seed", 3),
        ("--objective all_tokens --copy-gate false", "objective", "copy_gate", False),
        ("--objective corrective --mlm-share .4", "objective", "mlm_share", 0.4),
        (
            "--term-weights generator=1,rtd=20",
            "objective",
            "term_weights",
            {"generator": 1, "rtd": 20},
        ),
        ("--max-steps 5 --max-steps 1e5", "train", "max_steps", 100_000),
        (f"--seed {2**63 - 1}", "train", "seed", 2**63 - 1),
        ("--tie none --report-to none", "train", "report_to", ("none",)),
        ("--threads 2 --init-generator none", "train", "threads", "2"),
    ],
)
def test_spellings_of_flags(words: str, section: str, field: str, value: Any) -> None:
    assert getattr(getattr(resolved(*words.split()), section), field) == value


def test_flags_override_a_recipe_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("like: corrective-tiny\ntrain: {max_steps: 7, seed: 3}\n")
    recipe = cli.read("pretrain", ["d", *RUN, "--recipe", str(path), "--seed", "4"]).resolved()
    assert (recipe.train.max_steps, recipe.train.seed) == (7, 4)
    assert recipe.objective.objective == "corrective"


def test_a_preset_sets_what_is_not_given() -> None:
    options = cli.read(
        "prepare", ["a", "b", "--output-dir", "d", "--preset", "dna", "--lowercase", "false"]
    )
    assert (options.inputs, options.tokenizer, options.lowercase) == (
        ("a", "b"),
        "character",
        False,
    )
    assert (options.chunk_length, options.vocab_size) == (6, 4224)
    other = cli.read("prepare", ["a", "--output-dir", "d", "--preset", "dna", "--tokenizer", "bpe"])
    assert (other.chunk_length, other.pre_tokenizer) == (None, "auto")


def help_of(*words: str, columns: int = 80) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        return cli.help_of(words[0], list(words[1:])).splitlines()


@pytest.mark.parametrize(
    ("command", "most", "flags"), [("pretrain", 60, 100), ("finetune", 75, 35)]
)
def test_help_of_every_day_is_short(command: str, most: int, flags: int) -> None:
    short, whole = help_of(command, "--help"), help_of(command, "--help-all")
    assert len(short) <= most
    shown = [line.split()[0] for line in short if line.startswith("  --")]
    assert sorted(shown) == sorted(cli.EVERYDAY[command])
    assert len([line for line in whole if line.startswith("  --")]) > flags


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_fits_and_shows_each_flag_once(command: str) -> None:
    lines = help_of(command, "--help-all")
    flags = [line.split()[0] for line in lines if line.startswith("  --")]
    assert len(flags) == len(set(flags))
    texts = [line for line in lines if not line.startswith("  --")]
    assert max(map(len, texts)) <= 80
    assert all(cli.options_of(cli.class_of(command)))


def test_the_overview_is_fast_and_imports_nothing_heavy(tmp_path: Path) -> None:
    """At most 1 s of CPU, less where nothing else runs."""
    code = (
        "import sys, time; from electrify.cli import main; status = main(['--help']);"
        "heavy = {'torch', 'transformers', 'pydantic', 'numpy'} & sys.modules.keys();"
        "sys.exit(str(heavy) if heavy else status)"
    )
    began = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    ended = os.times()
    assert done.returncode == 0, done.stderr
    assert set(cli.COMMANDS) <= set(done.stdout.split())
    spent = ended.children_user + ended.children_system
    assert spent - began.children_user - began.children_system < 1.0


@pytest.mark.parametrize(
    ("error", "status", "named"),
    [
        (UserError("max_steps is odd"), 2, "--max-steps is odd"),
        (Unfinished("a process was lost"), 75, "lost"),
        (KeyboardInterrupt("SIGTERM"), 75, "SIGTERM"),
        (OSError(errno.ENOSPC, "No space left on device", "run/x"), 2, "run/x"),
        (MemoryError(), 2, "memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), 2, "memory"),
    ],
)
def test_an_error_becomes_a_status(error, status, named, monkeypatch, capsys):
    def fails(self: Any) -> int:
        raise error

    monkeypatch.setattr(Pretrain, "__call__", fails)
    assert cli.main(["pretrain", "data", *RUN]) == status
    err = capsys.readouterr().err
    assert named in err
    assert err.count("\n") == 1


def test_a_closed_pipe_is_quiet() -> None:
    code = "import sys; from electrify.cli import main; sys.exit(main(['recipes']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_quiet_and_verbose(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """-q leaves warnings, errors and results; -v adds the traceback and keeps the status."""
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join(f"word{i} and more words" for i in range(60)))
    words = ["prepare", str(text), "--vocab-size", "100", "--workers", "1", "--output-dir"]
    assert cli.main([*words, str(tmp_path / "loud")]) == 0
    assert "training a wordpiece vocabulary" in capsys.readouterr().err
    assert cli.main(["-q", *words, str(tmp_path / "quiet")]) == 0
    out, err = capsys.readouterr()
    assert "training" not in err
    assert "documents" in out
    assert cli.main(["prepare", "absent.txt", "--output-dir", "x", "-v"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "error: no such file" in err.splitlines()[-1]
    assert cli.main(["prepare", "absent.txt", "--output-dir", "x"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_completion_in_bash():
    """Commands first, then the flags of the command."""
    script = cli.completion()

    def completed(words: str, at: int) -> list[str]:
        code = f"{script}\nCOMP_WORDS=(electrify {words}); COMP_CWORD={at}; _electrify"
        code += '; printf "%s " "${COMPREPLY[@]}"'
        return subprocess.run(["bash", "-c", code], capture_output=True, text=True).stdout.split()

    assert completed("pre", 1) == ["prepare", "pretrain", "predict"]
    assert completed("pretrain --learning", 2) == ["--learning-rate"]
    assert completed("pretrain data --max-st", 3) == ["--max-steps"]


def test_recipes_by_a_part_of_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipes", "coco-lm"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("recipe")
    assert rows
    assert all(row.startswith("coco-lm") for row in rows)
    assert cli.main(["recipes", "coco-lm-tiny"]) == 0
    assert "mask_rate" in capsys.readouterr().out
