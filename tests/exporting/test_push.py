"""`electrify push`, against a stand-in of the Hub's HTTP API on this machine."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from small import mistake, run

SENT = {
    "config.json": b'{"model_type": "electra"}',
    "model.safetensors": bytes(range(256)) * 40,
    "tokenizer.json": b"{}",
    "README.md": b"---\nlicense: mit\n---\n# a model\n",
    "electrify.json": b'{"part": "discriminator"}',
    "modules.json": b"[]",
    "1_Pooling/config.json": b'{"a": 1}',
}
KEPT = ("notes.txt", "training_args.bin", "pytorch_model.bin", ".env", "1_Pooling/private.txt")


class Hub(ThreadingHTTPServer):
    """Keeps the paths of all requests, and of each repository how it was created, its commit, and
    the bytes of each file by its path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.paths: list[str] = []
        self.created: dict[str, Any] = {}
        self.commits: dict[str, Any] = {}
        self.files: dict[str, dict[str, bytes]] = defaultdict(dict)


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

    def do_POST(self) -> None:
        hub, path = self.server, self.path
        hub.paths.append(path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        lines = [json.loads(line) for line in body.splitlines()]
        assert self.headers["Authorization"] == "Bearer hf_of_a_test"
        if path == "/api/repos/create" and lines[0]["organization"] == "stranger":
            self.answer({"error": "You do not have the right"}, 403)
        elif path == "/api/repos/create":
            name = lines[0]["name"]
            hub.created[name] = lines[0]
            self.answer({"url": f"{hub.url}/someone/{name}"})
        elif "/preupload/" in path:
            how = {"uploadMode": "regular", "shouldIgnore": False}
            self.answer({"files": [{"path": f["path"]} | how for f in lines[0]["files"]]})
        elif "/commit/" in path:
            name = path.split("/")[4]
            for key, value in ((line["key"], line["value"]) for line in lines):
                if key == "header":
                    hub.commits[name] = value
                else:
                    hub.files[name][value["path"]] = base64.b64decode(value["content"])
            self.answer({"commitUrl": f"{hub.url}/someone/{name}/commit/abc", "commitOid": "abc"})
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


CODE = """
import json, sys
from electrify.cli import main
for words in json.load(sys.stdin):
    print("status", main(["push", *words]), flush=True)
    print("---", file=sys.stderr, flush=True)
"""


def pushed(endpoint: str, *lines: list[Any]) -> tuple[list[str], list[str]]:
    """What the commands print and say, one after the other, in a process of their own: the client
    reads its environment once."""
    own = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_of_a_test", "HF_HUB_DISABLE_XET": "1"}
    own |= {"HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        input=json.dumps([list(map(str, words)) for words in lines]),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | own,
    )
    return re.split(r"(?<=status \d)\n", done.stdout)[:-1], done.stderr.split("---\n")[:-1]


def test_the_files_of_a_model_are_sent_and_nothing_else(hub, model):
    """A run stands for its discriminator."""
    run = model.parent / "run"
    run.mkdir()
    (run / "config.yaml").touch()
    shutil.copytree(model, run / "discriminator")
    (one, public, refused), errors = pushed(
        hub.url,
        [model, "someone/one", "--commit-message", "the first"],
        [run, "someone/public", "--no-private", "--revision", "v1"],
        [model, "stranger/model"],
    )
    assert one.endswith("status 0"), errors
    assert public.endswith("status 0"), errors
    asked = [hub.created[name] for name in ("one", "public")]
    assert [a["visibility"] for a in asked] == ["private", "public"]
    assert [a["organization"] for a in asked] == ["someone"] * 2
    assert hub.commits["one"]["summary"] == "the first"
    assert hub.files == {"one": SENT, "public": SENT}
    assert errors[0] == f"the model is at {hub.url}/someone/one\n"
    assert "/api/models/someone/public/branch/v1" in hub.paths
    assert any(path.endswith("public/commit/v1") for path in hub.paths)
    assert refused == "status 2"
    assert "error: the Hugging Face Hub: " in errors[2]
    assert len(errors[2].strip().splitlines()) == 1


def test_a_hub_that_does_not_answer(model):
    assert pushed("http://127.0.0.1:1", [model, "someone/model"])[0] == ["status 2"]


def test_a_dry_run_and_what_cannot_be_sent(model, capsys):
    assert run("push", str(model), "someone/model", "--dry-run") == 0
    *files, total = (line.split() for line in capsys.readouterr().out.splitlines())
    assert {name for *_, name in files} == {*SENT}
    assert "would be sent" in " ".join(total)
    assert "a/b/c" in mistake(capsys, "push", model, "a/b/c")
    (model / "model.safetensors").unlink()
    assert "holds no model" in mistake(capsys, "push", model, "someone/model")
