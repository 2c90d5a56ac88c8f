"""The command line: help at once, nearest names, and every mistake of the user as one sentence with
status 2 and nothing left behind."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from electrify import cli
from electrify.config.pretrain import dump, load_recipe, override, parse, section_of
from small import environment, flags, listing, mistake, one_sentence, write_text

VERBS = ["prepare", "pretrain", "export", "finetune", "detect", "flops", "doctor", "demo"]
HEAVY = [
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "rich",
    "pyarrow",
    "datasets",
    "tensorboard",
    "ray",
]


# ------------------------------------------------------------------ help and flags


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_immediate(verb: str) -> None:
    """Processor time of the whole process, the interpreter's start included."""
    code = (
        "import resource, sys\n"
        "from electrify.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as e:\n    assert e.code == 0\n"
        f"print('LOADED', *[m for m in {HEAVY} if m in sys.modules])\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\nprint('SECONDS', used.ru_utime + "
        "used.ru_stime)\n"
    )
    words = [verb, "--help"] if verb else ["--help"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[-2] == "LOADED"
    assert float(lines[-1].split()[1]) < 0.5
    assert lines[0].startswith(f"usage: electrify {verb}".rstrip())
    assert (
        all(name in done.stdout for name in VERBS)
        if not verb
        else "--output-dir" in done.stdout
        or verb in ("predict", "embed", "detect", "flops", "doctor")
    )


def test_help_of_pretrain_names_every_field() -> None:
    text = subprocess.run(
        [sys.executable, "-m", "electrify", "pretrain", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    missing = [name for name in section_of() if f"--{name.replace('_', '-')} " not in text]
    assert not missing


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["pretrain", "x", "--output-dir", "y", "--max-stepz", "3"],
            "there is no flag --max-stepz; did you mean --max-steps?",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--max_stepz=3"],
            "there is no flag --max_stepz; did you mean --max-steps?",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--max-step", "3"],
            "there is no flag --max-step; did you mean --max-steps?",
        ),
        (["prepare", "x", "--output-dir", "y", "--vocabsize", "3"], "did you mean --vocab-size?"),
        (
            ["pretrain", "x", "--output-dir", "y", "--valid-fraction", "0.1"],
            "--valid-fraction is a flag of `electrify prepare`, not of `electrify pretrain`",
        ),
        (
            ["prepare", "x", "--output-dir", "y", "--frobnicate"],
            "there is no flag --frobnicate; see `electrify prepare --help`",
        ),
        (["pretrian"], "VERB cannot be 'pretrian'; did you mean 'pretrain'?"),
        (["pretrain", "x", "--output-dir", "y", "--resume", "mus"], "did you mean 'must'?"),
        (
            ["pretrain", "x", "--output-dir", "y", "--recipe", "electra-smal"],
            "there is no recipe 'electra-smal'; did you mean 'electra-small'?",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--recipe", "zebra"],
            "there is no recipe 'zebra'; known: bert-base, ",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--tie", "tokenz"],
            "--tie cannot be 'tokenz'; did you mean 'tokens'?",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--max-steps", "many"],
            "--max-steps must be of type int, not 'many'",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--max-steps", "1.5"],
            "--max-steps must be of type int, not 1.5",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--bf16", "perhaps"],
            "--bf16 must be true or false, not 'perhaps'",
        ),
        (["pretrain", "x", "--output-dir", "y", "--max-steps"], "expected one argument"),
        (
            ["pretrain", "x", "--output-dir", "y", "--max-steps", "-3"],
            "--max-steps must be positive, not -3",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--recipe", "a", "--config", "b"],
            "not allowed with argument --recipe",
        ),
        (["pretrain", "x"], "the following arguments are required: --output-dir"),
        (
            ["pretrain", "--bf16", "x", "--output-dir", "y"],
            "--bf16 is true or false, not 'x': put DATA before the flag",
        ),
        (
            ["prepare", "--lowercase", "x.txt", "--output-dir", "y"],
            "--lowercase is true or false, not 'x.txt': put CORPUS before the flag",
        ),
        (
            ["pretrain", "--bf16", "None", "--output-dir", "y"],
            "the following arguments are required: DATA",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--config", "nowhere.yaml"],
            "the recipe nowhere.yaml cannot be read: No such file or directory",
        ),
        (
            ["detect", "model", "two", "words"],
            "there is no place for 'words': text with spaces needs quotes",
        ),
        (
            ["export", "run", "--output-dir", "y", "--part", "encoder"],
            "part cannot be 'encoder'; known: corrector, discriminator, generator, selector",
        ),
        ([], "the following arguments are required: VERB"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_wrong_words(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in mistake(capsys, *words)
    assert not list(tmp_path.iterdir())


def test_wrong_words_are_found_before_anything_is_loaded() -> None:
    """One line in all, at once."""
    code = (
        "import sys\nfrom electrify.cli import main\ntry:\n    status = main(sys.argv[1:])\nexcept "
        "SystemExit as e:\n    status = e.code\n"
    )
    code += "assert 'torch' not in sys.modules\nsys.exit(status)"
    for word in (
        ["--recipe", "electra-smal"],
        ["--max-stepz", "3"],
        ["--max-steps", "0"],
        ["--mask-rate", "2"],
    ):
        words = ["pretrain", "x", "--output-dir", "y", *word]
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        one_sentence(done.stderr)


RECIPE = dump(load_recipe("electra-tiny"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            RECIPE.replace("mask_rate:", "mask_rat:"),
            "section corruption has no field 'mask_rat'; did you mean 'mask_rate'?",
        ),
        (RECIPE.replace("train:\n", "trian:\n"), "has no section 'trian'; did you mean 'train'?"),
        (
            "max_steps: 3\n" + RECIPE,
            "has no section 'max_steps'; max_steps belongs to the section train",
        ),
        (
            RECIPE.replace("hidden_size: 128", "hidden_size: wide"),
            "hidden_size must be of type int, not 'wide'",
        ),
        (RECIPE.replace("  hidden_size: 128\n", ""), "lacks the field hidden_size"),
        ("model: [", "is not valid YAML"),
        ("", "must have the sections model, corruption, objective, data, train"),
        ("just words", "must have the sections"),
    ],
)
def test_wrong_recipe_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    sentence = mistake(capsys, "pretrain", "x", "--output-dir", tmp_path / "run", "--config", file)
    assert says in sentence
    assert "mine.yaml" in sentence
    assert [p.name for p in tmp_path.iterdir()] == ["mine.yaml"]


def test_recipe_file_that_is_no_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"model: \xff\xfe")
    assert "is not UTF-8 text (byte 7)" in mistake(
        capsys, "pretrain", "x", "--output-dir", tmp_path / "run", "--config", file
    )


def test_config_file_flags_and_both_spellings(tmp_path: Path) -> None:
    """What `cli.pretrain` makes of its flags: a file's values, and flags above them, spelt with -
    or _."""
    file = tmp_path / "mine.yaml"
    mine = override(
        load_recipe("electra-tiny"), {"hidden_size": 64, "max_steps": 7, "mask_rate": 0.2}
    )
    file.write_text(dump(mine), encoding="utf-8")
    for spelling in (
        ["--max-steps", "9"],
        ["--max_steps", "9"],
        ["--max_steps=9"],
        ["--max-steps=9"],
    ):
        args = cli.parser().parse_args(
            ["pretrain", "x", "--output-dir", "y", "--config", str(file), "--no-bf16", *spelling]
        )
        got = override(
            parse(file.read_text(encoding="utf-8"), "mine"),
            {k: v for k, v in vars(args).items() if k in section_of()},
        )
        assert got == override(mine, {"max_steps": 9, "bf16": False})
    words = flags(term_weights="generator=2,rtd=10", mask_mix="0.8,0.1,0.1", torch_compile=False)
    args = cli.parser().parse_args(["pretrain", "x", "--output_dir", "y", *words, "--bf16"])
    got = override(mine, {k: v for k, v in vars(args).items() if k in section_of()})
    assert got == override(
        mine,
        {
            "term_weights": {"generator": 2, "rtd": 10},
            "mask_mix": (0.8, 0.1, 0.1),
            "bf16": True,
            "torch_compile": False,
        },
    )


# ------------------------------------------------------------------ bad corpora

LINES = b'{"text": "one two three"}\n{"text": "four five six"}\n'
SENTENCES = b"the quick brown fox jumps over the lazy dog.\n\n" * 400


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


CORPORA: list[tuple[str, bytes | None, str]] = [
    ("nowhere.txt", None, "no such file or folder"),
    ("empty.txt", b"", "empty"),
    ("blank.txt", b"\n \n\t\n\n", "empty"),
    ("bom.txt", b"\xef\xbb\xbf", "empty"),
    ("program.txt", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20, "binary"),
    ("latin.txt", "déjà vu\n".encode("latin-1") * 50, "not UTF-8"),
    ("cut.txt.gz", cut(gzip.compress(os.urandom(20_000).hex().encode(), mtime=0)), "truncated"),
    ("cut.txt.bz2", cut(bz2.compress(os.urandom(20_000).hex().encode())), "truncated"),
    ("cut.txt.xz", cut(lzma.compress(os.urandom(20_000).hex().encode())), "truncated"),
    ("cut.txt.zst", cut(zstandard.compress(os.urandom(20_000).hex().encode())), "truncated"),
    ("no.txt.gz", b"this is not an archive", "gz"),
    ("nothing.txt.gz", b"", "truncated"),
    ("torn.jsonl", LINES + b'{"text": "sev\n' + LINES, "line 3"),
    ("keyless.jsonl", LINES + b'{"body": "seven"}\n', "line 3"),
    ("number.jsonl", LINES + b'{"text": 7}\n', "line 3"),
    ("list.jsonl", LINES + b"[1, 2]\n", "line 3"),
    ("latin.jsonl", LINES + b'{"text": "\xe9t\xe9"}\n', "line 3"),
    ("keyless.csv", b"a,b\n1,2\n", "'text'"),
    ("ragged.csv", b"text,b\none,2\ntwo\n", "line 3"),
    ("cut.parquet", b"PAR1" + bytes(100), "parquet"),
    ("picture.png", b"\x89PNG\r\n\x1a\n", "not of a known kind"),
]


@pytest.mark.parametrize(("name", "data", "says"), CORPORA, ids=[row[0] for row in CORPORA])
@pytest.mark.parametrize("verb", ["prepare", "pretrain"])
def test_bad_corpora(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    verb: str,
    name: str,
    data: bytes | None,
    says: str,
) -> None:
    """Named alone, to `prepare` and to `pretrain`, which would prepare it first: nothing is left of
    the attempt."""
    file = tmp_path / name
    if data is not None:
        file.write_bytes(data)
    before = sorted(tmp_path.iterdir())
    sentence = mistake(
        capsys,
        verb,
        file,
        "--output-dir",
        tmp_path / "out",
        *(["--recipe", "electra-tiny"] if verb == "pretrain" else []),
    )
    assert says in sentence
    assert name in sentence
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--vocab-size", "3"], "--vocab-size must be at least 32, not 3"),
        (["--valid-fraction", "1"], "--valid-fraction must be at least 0 and below 1"),
        (["--document-boundary", "page"], "cannot be 'page'"),
        (["--tokenizer", "bpe", "--vocab-size", "100"], "at least 261"),
        (["--tokenizer", "./nowhere"], "nowhere"),
        (["--document-boundary", "record"], "--document-boundary must be blank-line, line or file"),
    ],
)
def test_bad_options_of_prepare(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], says: str
) -> None:
    (tmp_path / "a.txt").write_bytes(SENTENCES)
    assert says in mistake(
        capsys, "prepare", tmp_path / "a.txt", "--output-dir", tmp_path / "out", *words
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def write_tokenizer(folder: Path, words: list[str], **roles: str) -> Path:
    """A Hugging Face folder with a word-level tokenizer and the given roles only."""
    folder.mkdir()
    vocab = {w: i for i, w in enumerate(words)}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": words[0]}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
    }
    whole |= {
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | roles), encoding="utf-8"
    )
    return folder


ROLES = {
    "unk_token": "<u>",
    "pad_token": "<p>",
    "cls_token": "<c>",
    "sep_token": "<s>",
    "mask_token": "<m>",
}


@pytest.mark.parametrize(
    ("role", "shown"),
    [
        ("pad_token", "[PAD]"),
        ("mask_token", "[MASK]"),
        ("cls_token", "[CLS]"),
        ("sep_token", "[SEP]"),
    ],
)
def test_tokenizer_without_a_role(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, role: str, shown: str
) -> None:
    (tmp_path / "a.txt").write_bytes(SENTENCES)
    given = {k: v for k, v in ROLES.items() if k != role}
    folder = write_tokenizer(tmp_path / "tokenizer", [*ROLES.values(), "the", "fox"], **given)
    before = listing(tmp_path)
    sentence = mistake(
        capsys,
        "prepare",
        tmp_path / "a.txt",
        "--output-dir",
        tmp_path / "out",
        "--tokenizer",
        folder,
    )
    assert f"has no {shown} token" in sentence
    assert listing(tmp_path) == before


def test_damaged_tokenizer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(SENTENCES)
    folder = write_tokenizer(tmp_path / "tokenizer", [*ROLES.values(), "the"], **ROLES)
    (folder / "tokenizer.json").write_bytes(cut((folder / "tokenizer.json").read_bytes()))
    assert "damaged" in mistake(
        capsys,
        "prepare",
        tmp_path / "a.txt",
        "--output-dir",
        tmp_path / "out",
        "--tokenizer",
        folder,
    )
    assert not (tmp_path / "out").exists()


# ----------------------------------------------------------------- folders that hold something else


def foreign(folder: Path) -> Path:
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work", encoding="utf-8")
    return folder


def test_output_folder_that_holds_other_files(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path
) -> None:
    folder = foreign(tmp_path / "out")
    source = write_text(tmp_path / "a.txt", size=2000)
    for words in (["prepare", source], ["pretrain", small_data, "--recipe", "electra-tiny"]):
        sentence = mistake(capsys, *words, "--output-dir", folder)
        assert str(folder) in sentence
        assert list(listing(folder)) == ["thesis.tex"]


def test_output_folder_that_is_a_file(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path
) -> None:
    file = write_text(tmp_path / "a.txt", size=2000)
    before = file.read_bytes()
    for words in (["prepare", file], ["pretrain", small_data, "--recipe", "electra-tiny"]):
        assert str(file) in mistake(capsys, *words, "--output-dir", file)
    assert file.read_bytes() == before


def test_prepare_into_another_corpus(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path
) -> None:
    before = listing(small_data)
    other = write_text(tmp_path / "other.txt", size=2000)
    assert "holds another run" in mistake(capsys, "prepare", other, "--output-dir", small_data)
    source = small_data.with_name("data.txt")
    options = flags(vocab_size=512, valid_fraction=0.05)
    assert "vocab_size" in mistake(
        capsys, "prepare", source, "--output-dir", small_data, *options, "--vocab-size", "400"
    )
    assert listing(small_data) == before


# ------------------------------------------------------------------ the other verbs


def missing_run(tmp: Path, data: Path) -> tuple[list[str | Path], str]:
    return ["export", tmp / "run", "--output-dir", tmp / "out"], "is not a run folder"


def data_as_run(tmp: Path, data: Path) -> tuple[list[str | Path], str]:
    return ["export", data, "--output-dir", tmp / "out"], "is not a run folder"


def detect_nothing(tmp: Path, data: Path) -> tuple[list[str | Path], str]:
    return ["detect", tmp / "nowhere", "text"], "no such folder"


def detect_missing_file(tmp: Path, data: Path) -> tuple[list[str | Path], str]:
    return ["detect", tmp / "nowhere", "--file", tmp / "none.txt"], "no such f"


def finetune_nothing(tmp: Path, data: Path) -> tuple[list[str | Path], str]:
    return ["finetune", tmp / "nowhere", "--output-dir", tmp / "out"], "nothing to fine-tune on"


def finetune_missing_file(tmp: Path, data: Path) -> tuple[list[str | Path], str]:
    files = ["--train-file", tmp / "a.csv", "--validation-file", tmp / "b.csv"]
    return ["finetune", tmp / "nowhere", *files, "--output-dir", tmp / "out"], "no such f"


def finetune_unknown_task(tmp: Path, data: Path) -> tuple[list[str | Path], str]:
    return [
        "finetune",
        tmp / "nowhere",
        "--task",
        "colo",
        "--data-dir",
        tmp,
        "--output-dir",
        tmp / "out",
    ], "did you mean 'cola'?"


OTHERS = [
    missing_run,
    data_as_run,
    detect_nothing,
    detect_missing_file,
    finetune_nothing,
    finetune_missing_file,
    finetune_unknown_task,
]


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.__name__)
def test_other_verbs(
    capsys: pytest.CaptureFixture[str],
    small_data: Path,
    tmp_path: Path,
    case: Callable[[Path, Path], tuple[list[str | Path], str]],
) -> None:
    words, says = case(tmp_path, small_data)
    assert says in mistake(capsys, *words)
    assert not list(tmp_path.iterdir())


def test_a_real_process_ends_the_same_way(tmp_path: Path) -> None:
    """Once through `python -m electrify`: status, one sentence, nothing else."""
    file = tmp_path / "torn.jsonl"
    file.write_bytes(LINES + b"{")
    words = ["prepare", str(file), "--output-dir", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "electrify", *words],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "line 3" in one_sentence(done.stderr)
    assert [p.name for p in tmp_path.iterdir()] == ["torn.jsonl"]
