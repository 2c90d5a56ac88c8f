"""No damage to a checkpoint passes silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoints import FILES, newest_step, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electrify.errors import UserError
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
        assert newest_step(tmp_path) == 1
        warning = capsys.readouterr().err
        assert "checkpoint-2 is damaged" in warning
        assert "it is passed over" in warning
        with pytest.raises(UserError, match="checkpoint-2 is damaged"):
            checkpoint.load(tmp_path / "checkpoint-2")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 2)
    (path / name).unlink()
    with pytest.raises(UserError, match=f"{name} No such file"):
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
        noticed = False
    except UserError:
        noticed = True
    finally:
        (path / name).write_bytes(whole)
    # White space of state.json is all that may differ.
    assert noticed or (name == "state.json" and json.loads(data) == json.loads(whole))


@pytest.mark.parametrize("text", ["[]", "3", "{}", '{"sha256": "0", "files": []}', "\0"])
def test_a_foreign_state_is_damage(tmp_path: Path, text: str) -> None:
    path = save(tmp_path, 2)
    (path / "state.json").write_text(text)
    with pytest.raises(UserError, match="is damaged"):
        checkpoint.load(path)
