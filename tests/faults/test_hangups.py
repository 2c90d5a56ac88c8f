"""Every verb under SIGHUP and SIGTERM, in the middle of its work: the right status, one sentence,
nothing half-written."""

import signal

import pytest
from breaking import SAVED, forked, run

from small import listing, write_text

# A verb, and the call at which the signal comes; and the verbs that resume.
STAGES = [
    ("prepare", "electrify.text.prepare:Preparation.join@1"),
    ("finetune", "electrify.finetuning.loop:train@2"),
    ("evaluate", "electrify.scoring.blimp:judge@1"),
    ("detect", "electrify.scoring.detect:show_detection@1"),
    ("export", "electrify.exporting.folder:_write@1"),
]
CONTINUE = ("prepare", "finetune")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize(("verb", "where"), STAGES)
def test_every_verb(finished, tmp_path, verb, where, number):
    write_text(tmp_path / "a.txt", size=5000)
    (tmp_path / "a.csv").write_text("text,label\n" + "one,0\ntwo,1\n" * 4, encoding="utf-8")
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "one.jsonl").write_text(
        '{"sentence_good": "the one", "sentence_bad": "one the"}\n', encoding="utf-8"
    )
    files = ["--train-file", str(tmp_path / "a.csv"), "--validation-file", str(tmp_path / "a.csv")]
    quick = ["--seeds", "2", "--num-train-epochs", "1", "--max-seq-length", "16", "--device", "cpu"]
    sizes = ["--vocab-size", "300", "--workers", "1", "--valid-fraction", "0.05"]
    model, out = str(finished / "discriminator"), tmp_path / "out"
    words = {
        "prepare": [str(tmp_path / "a.txt"), *sizes, "--output-dir", str(out)],
        "finetune": [model, *files, *quick, "--output-dir", str(out)],
        "evaluate": [model, "--data-dir", str(tmp_path / "pairs"), "--output-dir", str(out)],
        "detect": [model, "the one"],
        "export": [str(finished), "--output-dir", str(out)],
    }
    before = listing(finished)
    words = [verb, *words[verb]]
    name = number.name.removeprefix("SIG").lower()
    status, said = forked(words, tmp_path, f"{name}@{where}")
    again = ". Run the same command again to resume" if verb in CONTINUE else ""
    assert said.splitlines()[-1] == f"electrify {verb}: stopped by {number.name}{again}"
    assert status == (SAVED if verb in CONTINUE else 128 + number)
    left = {n for n in (listing(out) if out.exists() else ()) if not n.startswith("unfinished/")}
    assert not [name for name in left if name.endswith((".part", ".old")) or "/.tmp" in name], left
    assert not {"model.safetensors", "report.md", "blimp.json", "manifest.json"} & left
    assert listing(finished) == before
    run(words, tmp_path)
