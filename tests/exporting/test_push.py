"""`electrify push`, against a stand-in of the Hub's client with the client's own signatures."""

import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from huggingface_hub import HfApi, RepoUrl
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import filter_repo_objects

from small import mistake, run

SENT = {"config.json", "model.safetensors", "tokenizer.json", "README.md", "electrify.json"}
SENT |= {"modules.json", "1_Pooling/config.json"}
KEPT = {"notes.txt", "training_args.bin", "pytorch_model.bin", ".env", "1_Pooling/private.txt"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = create_autospec(HfApi, instance=True)
    made.create_repo.side_effect = lambda name, **how: RepoUrl(f"https://huggingface.co/{name}")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: made)
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    for name in SENT | KEPT:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(10_240 if name == "model.safetensors" else 10))
    return folder


def test_the_files_of_a_model_are_sent_and_nothing_else(hub, model, capsys):
    """A run stands for its discriminator."""
    run_folder = model.parent / "run"
    shutil.copytree(model, run_folder / "discriminator")
    (run_folder / "config.yaml").touch()
    assert run("push", str(model), "someone/one", "--commit-message", "the first") == 0
    listed = capsys.readouterr().out
    assert "sent to https://huggingface.co/someone/one" in listed
    assert "10.2 kB  model.safetensors" in listed
    words = ["someone/public", "--public", "--revision", "v1"]
    assert run("push", str(run_folder), *words) == 0
    made = [(*call.args, call.kwargs) for call in hub.create_repo.call_args_list]
    private, public = ({"private": is_private, "exist_ok": True} for is_private in (True, False))
    assert made == [("someone/one", private), ("someone/public", public)]
    hub.create_branch.assert_called_once_with("someone/public", branch="v1", exist_ok=True)
    folders = [model, run_folder / "discriminator"]
    for call, folder in zip(hub.upload_folder.call_args_list, folders, strict=True):
        assert call.kwargs["folder_path"] == folder
        names = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
        patterns = call.kwargs["allow_patterns"]
        assert set(filter_repo_objects(names, allow_patterns=patterns)) == SENT
    first, second = (call.kwargs for call in hub.upload_folder.call_args_list)
    assert (first["repo_id"], first["commit_message"]) == ("someone/one", "the first")
    assert (second["repo_id"], second["revision"]) == ("someone/public", "v1")


HTTP = sys.modules[HfHubHTTPError.__mro__[1].__module__.partition(".")[0]]  # of the client
NO = HTTP.Response(403, request=HTTP.Request("POST", "https://huggingface.co"))


@pytest.mark.parametrize(
    "error",
    [HfHubHTTPError("403: You do not\nhave the right", response=NO), HTTP.ConnectError("no net")],
)
def test_a_hub_that_refuses_or_does_not_answer(hub, model, capsys, error):
    hub.create_repo.side_effect = error
    said = mistake(capsys, "push", model, "stranger/model")
    assert "error: the Hugging Face Hub: " in said
    assert " ".join(str(error).split()) in said
    hub.upload_folder.assert_not_called()


def test_a_dry_run_lists_and_sends_nothing(hub, model, capsys):
    assert run("push", str(model), "someone/model", "--dry-run") == 0
    *files, total = (line.split() for line in capsys.readouterr().out.splitlines())
    assert {name for *_, name in files} == SENT
    assert "would be sent" in " ".join(total)
    assert not hub.mock_calls


def test_what_cannot_be_sent(model, capsys):
    assert "a/b/c" in mistake(capsys, "push", model, "a/b/c")
    (model / "model.safetensors").unlink()
    says = "holds no model (config.json with model.safetensors or model.onnx)"
    assert says in mistake(capsys, "push", model, "someone/model")
