"""The command line from outside: mistakes that people make, spellings of flags, help, statuses."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from electrify import cli as cli
from electrify.errors import Unfinished, UserError
from electrify.recipe import override
from electrify.train.options import Pretrain
from small import environment

RUN = ["--output-dir", "run"]

# More of them are in contract/mistakes.yaml.
MISTAKES = [
    ("pretrian data", "pretrain"),
    ("pretrain", "DATA"),
    ("pretrain data --output-dir run --lr 1e-4", "--learning-rate"),
    ("pretrain data --output-dir run --epochs 3", "--max-steps"),
    ("pretrain data --output-dir run --vocab-size 100", "prepare"),
    ("pretrain data --output-dir run --max-steps", "--max-steps"),
    ("pretrain data --output-dir run --objective rdt", "'rtd'"),
    ("pretrain data --output-dir run --mlm-share 0.4", "corrective"),
    ("prepare text --output-dir data --preset cod", "'code'"),
    ("finetune model --output-dir out", "--task"),
    ("finetune model --output-dir out --task cola --train-file a.csv", "--task"),
    ("predict model texts.txt --overwrite", "--output-file"),
    ("compare data --output-dir out --recipes a --budgets 0 --tasks cola", "--budgets"),
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
    return override(options.base, options.changes)


@pytest.mark.parametrize(
    ("words", "section", "field", "value"),
    [
        ("--max_steps=7", "train", "max_steps", 7),
        ("--mask-mix 1,0,0", "corruption", "mask_mix", (1.0, 0.0, 0.0)),
        ("--seq-length-schedule 32=0.9", "data", "seq_length_schedule", {32: 0.9}),
        ("--save-total-limit none", "train", "save_total_limit", None),
        ("--bf16", "train", "bf16", True),
        ("--no-bf16", "train", "bf16", False),
        ("--objective all_tokens --copy-gate false", "objective", "copy_gate", False),
        (
            "--term-weights generator=1,rtd=20",
            "objective",
            "term_weights",
            {"generator": 1, "rtd": 20},
        ),
        ("--max-steps 5 --max-steps 1e5", "train", "max_steps", 100_000),
        (f"--seed {2**63 - 1}", "train", "seed", 2**63 - 1),
    ],
)
def test_spellings_of_flags(words: str, section: str, field: str, value: Any) -> None:
    assert getattr(getattr(resolved(*words.split()), section), field) == value


def test_a_text_may_begin_with_a_hyphen() -> None:
    given = cli.given_by("detect", ["run", "-ed is a suffix", "--unit=word"])
    assert given == {"model": "run", "text": "-ed is a suffix", "unit": "word"}
    assert cli.read("detect", ["run", "none"]).text == "none"


def test_lists_and_switches() -> None:
    words = ["run", "--task", "cola, sst2", "--task", "rte", "--no-save-model"]
    asked = cli.read("finetune", words)
    assert asked.task == ("cola", "sst2", "rte")
    assert asked.save_model is False
    for wrong in ("--no-output-dir", "--no-save-model=true"):
        with pytest.raises(UserError, match="there is no flag --no-"):
            cli.read("finetune", ["run", "--task", "cola", wrong])


def test_nearly_a_flag_comes_before_a_flag_of_another_command() -> None:
    for word, meant in (("--recipe", "mean --recipes"), ("--text-column", "is a flag of prepare")):
        with pytest.raises(UserError, match=meant):
            cli.read("compare", ["data", word, "1"])


def test_help_of_a_command_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "detect"]) == cli.main(["--help-all"]) == 0
    out = capsys.readouterr().out
    assert "usage: electrify detect MODEL [TEXT]" in out
    assert "usage: electrify COMMAND" in out
    assert cli.main(["--print-completion"]) == 0


def test_a_recipe_file_is_printed_with_all_its_values(tmp_path, capsys) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("like: electra-tiny\ntrain: {max_steps: 7}\n")
    assert cli.main(["recipes", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("model:")
    assert "max_steps: 7\n" in out


def test_a_recipe_file_keeps_its_field_names() -> None:
    said = "error: out holds no study.yaml. Choose another output_dir"
    assert cli.as_flag(said, "compare") == said.replace("output_dir", "--output-dir")
    for said in ("error: my.yaml: max_steps is odd", "error: a/b.yml has no section 'max_steps'"):
        assert cli.as_flag(said, "pretrain") == said


HEAVY = "torch transformers datasets sklearn scipy matplotlib pyarrow pandas rich ray"
OVERVIEW = f"""
import sys
from electrify import cli
status = cli.main(["--help"])
assert not {{"pydantic", "numpy"}} & sys.modules.keys()
for command in cli.COMMANDS if sys.argv[1:] else ():
    cli.class_of(command)  # with its options
assert not {{*{HEAVY.split()}}} & sys.modules.keys()
sys.exit(status)
"""


def python(*words: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", *words]
    return subprocess.run(
        command, input=given, capture_output=True, text=True, cwd=folder, env=environment()
    )


def test_the_overview_is_fast_and_no_help_imports_anything_heavy(tmp_path: Path) -> None:
    """At most 1 s of CPU, less where nothing else runs."""
    began = os.times()
    done = python(OVERVIEW, folder=tmp_path)
    ended = os.times()
    assert done.returncode == 0, done.stderr
    assert set(cli.COMMANDS) <= set(done.stdout.split())
    spent = ended.children_user + ended.children_system
    assert spent - began.children_user - began.children_system < 1.0
    done = python(OVERVIEW, "all", folder=tmp_path)
    assert done.returncode == 0, done.stderr


EARLY = f"""
import json, sys
from electrify.cli import main
for words in json.load(sys.stdin):
    print(json.dumps([main(words), [n for n in {HEAVY.split()[:7]} if n in sys.modules]]))
"""
FILES = {
    "good.csv": "text,label\none,a\ntwo,b\n",
    "model/config.json": "{}",
    "tuned/config.json": '{"architectures": ["BertForSequenceClassification"]}',
    "pairs/one.jsonl": '{"sentence_good": "a"}\n',
}
CASES = {
    "finetune model --train-file good.csv --validation-file good.csv --output-dir out "
    "--text-column txet": "no column 'txet'; did you mean 'text'?",
    "detect ./nowhere text": "./nowhere: no such folder",
    "predict tuned missing.csv": "no such file: missing.csv",
    "evaluate model --data-dir pairs": "one.jsonl, line 1: no column 'sentence_bad' among",
    "prepare nowhere.txt --output-dir data": "no such file or folder: nowhere.txt",
    "export nowhere --output-dir out": "nowhere is not a run folder: it has no config.yaml",
}


@pytest.mark.slow
def test_what_files_and_folders_show_is_said_before_anything_heavy(tmp_path: Path) -> None:
    """A typo is answered at once, and not after ten seconds."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    done = python(EARLY, folder=tmp_path, given=json.dumps([line.split() for line in CASES]))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[2, []]] * len(CASES)
    for said, line in zip(CASES.values(), done.stderr.splitlines(), strict=True):
        assert said in line
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("from electrify.__main__ import start; os.name = 'nt'; start()", 2),
        ("import electrify; os.name = 'nt'; electrify.pretrain", 1),
    ],
)
def test_a_system_without_what_it_needs(code: str, status: int, tmp_path: Path) -> None:
    """On Windows it says where it runs, before a module asks for a signal that is not there."""
    done = python(f"import os; {code}", folder=tmp_path)
    assert done.returncode == status
    said = "electrify cannot be used here: it runs on Linux (macOS is untested)"
    assert done.stderr.splitlines()[-1].removeprefix("ImportError: ").startswith(said)


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
    def fails(options: Pretrain) -> int:
        raise error

    monkeypatch.setitem(cli.COMMANDS, "pretrain", fails)
    assert cli.main(["pretrain", "data", *RUN]) == status
    err = capsys.readouterr().err
    assert named in err
    assert err.count("\n") == 1


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
    assert "Traceback" in capsys.readouterr().err


def test_completion_in_bash() -> None:
    """Commands first, then the flags of the command."""
    for words, at, completed in (
        ("pre", 1, ["prepare", "pretrain", "predict"]),
        ("pretrain data --max-st", 3, ["--max-steps"]),
    ):
        code = f"{cli.completion()}\nCOMP_WORDS=(electrify {words}); COMP_CWORD={at}; _electrify"
        code += '; printf "%s " "${COMPREPLY[@]}"'
        assert subprocess.check_output(["bash", "-c", code], text=True).split() == completed
