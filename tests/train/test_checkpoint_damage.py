"""No damage to a checkpoint passes silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoints import FILES, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
from electrify.oldfiles.run_folder import Found
from electrify.train import checkpoint


@pytest.mark.parametrize("name", FILES)
def test_a_cut_file_is_named_and_passed_over(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2) / name
    whole = path.read_bytes()
    for size in sorted({len(whole) * k // 10 for k in range(10)} | {len(whole) - 2}):
        path.write_bytes(whole[:size])
        assert checkpoint.newest(tmp_path) == Found(tmp_path / "checkpoint-1", 1)
        warning = capsys.readouterr().err
        assert "passing over checkpoint-2" in warning
        assert name in warning
        with pytest.raises(UserError, match=name):
            checkpoint.load(tmp_path / "checkpoint-2")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 2)
    (path / name).unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        checkpoint.load(path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255)
)
def test_a_flipped_byte_never_passes_silently(
    tmp_path: Path, name: str, where: float, bits: int
) -> None:
    path = tmp_path / "checkpoint-2"
    if not path.exists():
        save(tmp_path, 2)
    whole = (path / name).read_bytes()
    data = bytearray(whole)
    data[int(where * len(data))] ^= bits
    (path / name).write_bytes(data)
    try:
        checkpoint.load(path)
        complaint = ""
    except UserError as e:
        complaint = str(e)
    finally:
        (path / name).write_bytes(whole)
    if name != "manifest.json":
        assert name in complaint
    elif not complaint:  # white space of the manifest is all that may differ
        assert json.loads(data) == json.loads(whole)


@pytest.mark.parametrize("hostile", ["../outside", "/etc/hostname", "a/../../b"])
def test_a_manifest_cannot_point_out_of_its_folder(tmp_path: Path, hostile: str) -> None:
    path = save(tmp_path, 2)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][hostile] = {"bytes": 1, "sha256": "0"}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="not a file of this folder"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "3",
        "{}",
        '{"format": 1, "step": 2, "files": []}',
        '{"format": 1, "step": 2, "files": {"state.json": 3}}',
    ],
)
def test_a_foreign_manifest_is_damage(tmp_path: Path, text: str) -> None:
    path = save(tmp_path, 2)
    (path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json"):
        checkpoint.load(path)


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    path = save(tmp_path, 2)
    (path / "manifest.json").write_text('{"format": 9}')
    with pytest.raises(UserError, match="format 9, this version reads 1"):
        checkpoint.load(path)


def test_a_renamed_checkpoint_is_not_believed(tmp_path: Path) -> None:
    save(tmp_path, 2).rename(tmp_path / "checkpoint-3")
    assert checkpoint.newest(tmp_path) is None
