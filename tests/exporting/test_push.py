"""`electrify push`, against a stand-in of the Hub's HTTP API on this machine."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from small import mistake, run

WEIGHTS = bytes(range(256)) * 40
SENT = {
    "config.json": b'{"model_type": "electra"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "README.md": b"---\nlicense: mit\n---\n# a model\n",
    "electrify.json": b'{"part": "discriminator"}',
    "modules.json": b"[]",
    "1_Pooling/config.json": b'{"a": 1}',
}
KEPT = ("notes.txt", "training_args.bin", "pytorch_model.bin", ".env", "1_Pooling/private.txt")


class Hub(ThreadingHTTPServer):
    """Records each request, and the bytes of each file by its path in the repository."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.requests: list[tuple[str, str]] = []
        self.created: dict[str, Any] = {}
        self.commit: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.large: dict[str, bytes] = {}
        self.refusal = 0
        self.url = f"http://127.0.0.1:{self.server_port}"


class Requests(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, content: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path))
        return body

    def do_PUT(self) -> None:
        self.server.large[self.path.rpartition("/")[2]] = self.body()
        self.answer({})

    def do_POST(self) -> None:
        hub, body = self.server, self.body()
        assert self.headers["Authorization"] == "Bearer hf_of_a_test"
        if hub.refusal:
            self.answer({"error": "You do not have the right"}, hub.refusal)
        elif self.path == "/api/repos/create":
            hub.created = json.loads(body)
            self.answer({"url": f"{hub.url}/someone/model"})
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
            files = [{"path": n, "uploadMode": m, "shouldIgnore": False} for n, m in modes.items()]
            self.answer({"files": files})
        elif self.path.endswith("/info/lfs/objects/batch"):
            upload = {"href": f"{hub.url}/store/"}
            objects = [
                {**one, "actions": {"upload": {"href": upload["href"] + one["oid"]}}}
                for one in json.loads(body)["objects"]
            ]
            self.answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "header":
                    hub.commit = value
                elif line["key"] == "lfsFile":
                    hub.files[value["path"]] = hub.large[value["oid"]]
                else:
                    hub.files[value["path"]] = base64.b64decode(value["content"])
            self.answer({"commitUrl": f"{hub.url}/someone/model/commit/abc", "commitOid": "abc"})
        else:
            self.answer({})


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    for name, content in SENT.items() | {(name, b"secret") for name in KEPT}:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def push(endpoint: str, *words: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, whose client reads its environment once."""
    own = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_of_a_test", "HF_HUB_DISABLE_XET": "1"}
    own |= {"HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-m", "electrify", "push", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "0"} | own,
    )


def test_the_files_of_a_model_are_sent_and_nothing_else(hub, model):
    done = push(hub.url, model, "someone/model", "--commit-message", "the first")
    assert done.returncode == 0, done.stderr
    assert hub.created["name"] == "model"
    assert hub.created["organization"] == "someone"
    assert hub.created["visibility"] == "private"
    assert hub.commit["summary"] == "the first"
    assert hub.files == SENT
    assert f"sent to {hub.url}/someone/model" in done.stdout
    assert "10.2 kB  model.safetensors" in done.stdout


def test_a_public_branch_of_a_run(hub, model):
    """A run stands for its discriminator."""
    run = model.parent / "run"
    run.mkdir()
    (run / "config.yaml").touch()
    model.rename(run / "discriminator")
    done = push(hub.url, run, "someone/model", "--public", "--revision", "v1")
    assert done.returncode == 0, done.stderr
    assert hub.created["visibility"] == "public"
    assert ("POST", "/api/models/someone/model/branch/v1") in hub.requests
    assert any(path.endswith("/commit/v1") for _, path in hub.requests)
    assert hub.files == SENT


def test_a_dry_run_lists_and_sends_nothing(model, capsys):
    assert run("push", str(model), "someone/model", "--dry-run") == 0
    *files, total = (line.split() for line in capsys.readouterr().out.splitlines())
    assert {name for *_, name in files} == {*SENT}
    assert "would be sent" in " ".join(total)


def test_what_cannot_be_sent(model, capsys):
    assert "a/b/c" in mistake(capsys, "push", model, "a/b/c")
    (model / "model.safetensors").unlink()
    says = "holds no model (config.json with model.safetensors or model.onnx)"
    assert says in mistake(capsys, "push", model, "someone/model")


def test_refusals_are_one_sentence(hub, model):
    hub.refusal = 403
    done = push(hub.url, model, "someone/model")
    assert done.returncode == 2
    assert "error: the Hugging Face Hub: " in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    done = push("http://127.0.0.1:1", model, "someone/model")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
