"""`electrify serve`: answers, batches, limits, headers, counts, and the end of the process."""

import json
import logging
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import electrify
from small import Process, mistake

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from electrify.errors import UserError
from electrify.scoring.detect import load_detector
from electrify.serving import ServeConfig
from electrify.serving.app import Service, create_app
from electrify.serving.models import Batches, Job, Served

TEXTS = ["the chef ate the meal", "a b c", "<img src=x onerror=alert(1)>", "the meal!"]
NAMES = ("run/discriminator", "bert", "tuned")


def client_of(models: list[Served], **options: Any) -> tuple[TestClient, Service]:
    service = Service(models, ServeConfig(models=("a",), **options))
    service.batches.thread.start()
    return TestClient(create_app(service)), service


@pytest.fixture(scope="module")
def models(root: Path) -> list[Served]:
    return [Served(str(root / name)) for name in NAMES]


@pytest.fixture(scope="module")
def served(models: list[Served]) -> TestClient:
    return client_of(models)[0]


def near(found: Any, expected: Any) -> bool:
    """Equal but for the rounding of sums in other batches."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(near(found[k], expected[k]) for k in found)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(near, found, expected))
    if isinstance(expected, float):
        return found == pytest.approx(expected, abs=1e-5, rel=1e-5)
    return found == expected


@pytest.fixture(scope="module")
def expected(root: Path) -> dict[str, list[Any]]:
    """What `electrify.load` answers to each text alone."""
    loaded = electrify.load(root / "run/discriminator")
    tuned = electrify.load(root / "tuned")
    given = ("label", "probability", "probabilities")
    return {
        "detect": [loaded.detect(text).plain() for text in TEXTS],
        "score": [loaded.score(text) for text in TEXTS],
        "embed": [loaded.embed(text).tolist() for text in TEXTS],
        "predict": [{k: getattr(tuned.predict(text), k) for k in given} for text in TEXTS],
    }


@pytest.mark.parametrize("kind", ["detect", "score", "embed", "predict"])
def test_answers_are_those_of_a_loaded_model(kind, served, expected, root):
    one = served.post(f"/{kind}", json={"text": TEXTS[0]})
    several = served.post(f"/{kind}", json={"texts": TEXTS})
    assert (one.status_code, several.status_code) == (200, 200)
    able = root / ("tuned" if kind == "predict" else "run/discriminator")
    assert one.json()["model"] == str(able)
    assert near(one.json()["result"], expected[kind][0])
    assert near(several.json()["results"], expected[kind])


def test_a_discriminator_is_loaded_once(root, monkeypatch):
    calls = []

    @wraps(load_detector)
    def counting(*given: Any, **how: Any) -> Any:
        calls.append(how)
        return load_detector(*given, **how)

    monkeypatch.setattr("electrify.scoring.detect.load_detector", counting)
    served = Served(str(root / "run/discriminator"), "2")
    assert len(served.answers("detect", TEXTS)) == len(TEXTS)
    assert calls == [{"architecture": None, "threads": "2"}]


def test_pairs_and_the_model_that_is_named(served, root):
    tuned, name = electrify.load(root / "tuned"), str(root / "bert")
    found = served.post("/predict", json={"text": "the chef", "pairs": "ate"}).json()["result"]
    assert found["probability"] == tuned.predict("the chef", pairs="ate").probability
    found = served.post("/score", json={"text": "the chef", "model": name}).json()
    assert found["model"] == name
    assert near(found["result"], electrify.load(name).score("the chef"))


def test_a_tagger_takes_words_and_a_model_for_questions_contexts(root):
    client = client_of([Served(str(root / "tagger"))])[0]
    given = [["the", "chef"], ["ate"]]
    found = client.post("/predict", json={"texts": given}).json()["results"]
    tags = [[*one.tags] for one in electrify.load(root / "tagger").predict(given)]
    assert found == [{"tags": its, "words": w} for its, w in zip(tags, given, strict=True)]
    sentences = electrify.load(root / "tagger").predict(["the chef", "ate a meal"])
    assert [one.words for one in sentences] == [["the", "chef"], ["ate", "a", "meal"]]
    must_refuse(client, "predict", {"text": "the chef"}, "lists of words")
    client = client_of([Served(str(root / "reader"))])[0]
    asked = {"text": "the chef", "pairs": "the chef ate the meal"}
    found = client.post("/predict", json=asked).json()["result"]
    assert found["answer"] in asked["pairs"]
    must_refuse(client, "predict", {"text": "the chef"}, "contexts")


def test_alternatives_are_the_generators(served, root):
    import torch
    from transformers import AutoTokenizer, ElectraForMaskedLM

    text = "the chef ate the meal"
    found = served.post("/alternatives", json={"text": text, "start": 4, "end": 8}).json()
    tokenizer = AutoTokenizer.from_pretrained(root / "run/generator")
    model = ElectraForMaskedLM.from_pretrained(root / "run/generator").eval()
    frame = f"[CLS] {text.replace('chef', '[MASK]')} [SEP]"
    ids = tokenizer(frame, return_tensors="pt", add_special_tokens=False).input_ids
    with torch.no_grad():
        p_V = model(ids).logits[0, 2].softmax(-1)
    names = tokenizer.convert_ids_to_tokens(range(len(p_V)))
    words = {i for i, name in enumerate(names) if not name.startswith("##") and i >= 5}
    best = [i for i in p_V.argsort(descending=True).tolist() if i in words][:5]
    assert [row["word"] for row in found["result"]] == [names[i] for i in best]
    assert near([row["probability"] for row in found["result"]], p_V[best].tolist())
    long = {"text": "a " * 500 + "chef" + " b" * 500, "start": 1000, "end": 1004}
    assert len(served.post("/alternatives", json=long).json()["result"]) == 5


def test_waiting_jobs_are_joined_and_answers_not_mixed_up():
    calls, began, go = [], threading.Event(), threading.Event()

    def work(key: str, items: list[int]) -> list[str]:
        calls.append((key, list(items)))
        began.set()
        go.wait(60)
        if 13 in items:
            raise UserError("13 is wrong")
        return [f"{key}{item}" for item in items]

    batches = Batches(work, max_items=5, max_characters=100)
    batches.thread.start()
    first = batches.submit(Job("x", [0], 1))
    assert began.wait(60)
    given = [("a", [1, 2]), ("b", [3]), ("a", [4]), ("a", [5, 6]), ("a", [7, 8, 9]), ("b", [13])]
    answers = [batches.submit(Job(key, items, 1)) for key, items in given]
    dropped = batches.submit(Job("a", [10], 1))
    dropped.cancel()
    go.set()
    assert first.result(60) == ["x0"]
    for (key, items), answer in zip(given[:-1], answers[:-1], strict=True):
        assert answer.result(60) == [f"{key}{item}" for item in items]
    with pytest.raises(UserError, match="13 is wrong"):
        answers[-1].result(60)
    together = [("x", [0]), ("a", [1, 2, 4, 5, 6]), ("b", [3, 13])]
    assert calls == [*together, ("b", [3]), ("b", [13]), ("a", [7, 8, 9])]


def test_many_clients_get_their_own_answers(models, expected):
    client, service = client_of(models, max_waiting=1000)
    asked = [(kind, k) for kind in expected for k in range(len(TEXTS))] * 6

    def post(kind: str, k: int) -> bool:
        found = client.post(f"/{kind}", json={"text": TEXTS[k]})
        return found.status_code == 200 and near(found.json()["result"], expected[kind][k])

    with ThreadPoolExecutor(24) as pool:
        assert all(pool.map(post, *zip(*asked, strict=True)))
    values = service.metrics.values
    sums = [value for name, value in values.items() if name.startswith("electrify_batch_texts_sum")]
    counts = [v for name, v in values.items() if name.startswith("electrify_batch_texts_count")]
    assert sum(sums) == len(asked) > sum(counts)


def must_refuse(client: TestClient, path: str, body: Any, says: str) -> None:
    found = client.post(f"/{path}", json=body)
    assert found.status_code == 422
    assert says in found.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("detect", {"texts": ["a", 3]}, "texts.1: should be a valid string"),
        ("detect", {"text": "a", "texts": ["a"]}, "either text or texts"),
        ("detect", {"text": "a", "txt": 1}, "txt: Extra inputs"),
        ("detect", {"text": " "}, "there is no token"),
        ("detect", {"text": "a", "model": "absent"}, "no model 'absent'"),
        ("detect", {"text": "a", "model": "TUNED"}, "cannot detect. It can predict, embed"),
        ("detect", ["a"], "not a JSON object"),
        ("predict", {"texts": ["a", "b"], "pairs": ["c"]}, "2 texts have 1 pairs"),
        ("alternatives", {"text": "a b", "start": 1, "end": 2}, "no word between 1 and 2"),
    ],
)
def test_wrong_bodies(served, root, path, body, says):
    if "TUNED" in str(body):
        body = body | {"model": str(root / "tuned")}
    must_refuse(served, path, body, says)


def test_what_is_too_large(models):
    client, _ = client_of(models, max_characters=100, max_batch=3)

    def body() -> Iterator[bytes]:
        yield b'{"text": "'
        for _ in range(100):
            yield b"a" * 1000

    chunked = client.post("/detect", content=body(), headers={"content-type": "application/json"})
    texts = client.post("/detect", json={"texts": ["a"] * 4})
    characters = client.post("/detect", json={"texts": ["a" * 60, "b" * 41]})
    assert [answer.status_code for answer in (chunked, texts, characters)] == [413] * 3
    long = client.post("/detect", json={"text": "a" * 100_000})
    assert (long.status_code, "bytes" in long.json()["detail"]) == (413, True)
    assert client.post("/detect", json={"texts": ["a b " * 15, "b " * 20]}).status_code == 200
    longest = {"text": "a b " * 25}
    place = longest | {"start": 0, "end": 1}
    for path, given in (("detect", longest), ("predict", longest), ("alternatives", place)):
        assert client.post(f"/{path}", json=given).status_code == 200


class Stuck:
    """A model that answers when it is told to."""

    name = "stuck"
    kinds = ("score",)

    def __init__(self, error: Exception | None = None) -> None:
        self.go = threading.Event()
        self.error = error

    def answers(self, kind: str, items: list[Any]) -> list[Any]:
        self.go.wait(60)
        if self.error:
            raise self.error
        return [0.0] * len(items)


def eventually(happened: Callable[[], bool]) -> None:
    for _ in range(2000):
        if happened():
            return
        threading.Event().wait(0.01)
    raise AssertionError("nothing happened in 20 s")


def test_too_many_requests():
    """At most half of the places for one address, and no more than there are."""
    stuck: Any = Stuck()
    _, service = client_of([stuck], max_waiting=2, timeout=60)
    app = create_app(service)
    posted = {"url": "/score", "json": {"text": "a"}}
    clients = [TestClient(app, client=(f"10.0.0.{k}", 1)) for k in range(3)]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(clients[0].post, **posted)
        eventually(lambda: service.metrics.values.total() > 0)  # it is computed
        again = clients[0].post(**posted)
        second = pool.submit(clients[1].post, **posted)
        eventually(lambda: len(service.batches.waiting) == 1)
        assert "electrify_queue_length 1" in clients[2].get("/metrics").text
        other = clients[2].post(**posted)
        stuck.go.set()
        assert (first.result(60).status_code, second.result(60).status_code) == (200, 200)
    assert (again.status_code, other.status_code) == (429, 503)
    assert again.headers["retry-after"] == other.headers["retry-after"] == "1"
    assert clients[0].post(**posted).status_code == 200


def test_a_request_that_waits_too_long():
    stuck: Any = Stuck()
    client, service = client_of([stuck], timeout=0.2)
    for text in ("a", "b"):  # the second one waits, and is never computed
        found = client.post("/score", json={"text": text})
        assert found.status_code == 503
    stuck.go.set()
    assert client.post("/score", json={"text": "c"}).status_code == 200
    assert service.metrics.values['electrify_batch_texts_sum{kind="score"}'] == 2


def test_an_error_of_ours_is_told_to_the_log_alone(caplog, monkeypatch):
    stuck: Any = Stuck(RuntimeError("the inside"))
    stuck.go.set()
    client, _ = client_of([stuck])
    monkeypatch.setattr(logging.getLogger("electrify"), "propagate", True)
    found = client.post("/score", json={"text": "a"})
    assert (found.status_code, found.json()) == (500, {"detail": "internal error"})
    assert "RuntimeError: the inside" in caplog.text


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/nothing"])
def test_the_page_needs_no_other_place_and_inserts_no_markup(served, path):
    found = served.get(path)
    assert (found.status_code == 404) == (path == "/nothing")
    policy = found.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert not re.search(r"https?:|//[a-z]+\.|style=|onclick|<script>|<style", found.text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", found.text)


def test_metrics(models):
    client, _ = client_of(models)
    for body in ({"texts": ["a", "b", "the"]}, {"text": "a"}, {"txt": "a"}):
        client.post("/score", json=body)
    client.get("/a/path/of/somebody")
    found = client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(line.rsplit(" ", 1) for line in found.text.splitlines())
    wanted = {
        'requests_total{path="/score",status="200"}': "2",
        'requests_total{path="/score",status="422"}': "1",
        'requests_total{path="other",status="404"}': "1",
        'request_seconds_bucket{path="/score",le="+Inf"}': "3",
        'batch_texts_sum{kind="score"}': "4",
        'batch_texts_bucket{kind="score",le="2"}': "1",
        "queue_length": "0",
    }
    assert lines.items() >= {f"electrify_{name}": n for name, n in wanted.items()}.items()
    assert float(lines['electrify_request_seconds_sum{path="/score"}']) > 0
    assert client.get("/health").json() == {"status": "ok"}


def test_a_signal_ends_the_process_when_requests_have_their_answers(root, tmp_path):
    words = ["serve", str(root / "bert"), "--port", "0", "--timeout", "60"]
    with Process(words, tmp_path / "stderr.txt") as process:

        def port() -> int:
            found = re.search(r"serving on http://127.0.0.1:(\d+)", process.errors.read_text())
            return int(found[1]) if found else 0

        assert process.wait_for(lambda: port() > 0)
        body = json.dumps({"text": "the chef"}).encode()
        head = b"POST /score HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        with (
            socket.create_connection(("127.0.0.1", port()), timeout=60) as begun,
            socket.create_connection(("127.0.0.1", port()), timeout=60) as idle,
        ):
            begun.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
            idle.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert idle.recv(9).startswith(b"HTTP/1.1")  # both were accepted
            process.signal(signal.SIGTERM)
            eventually(lambda: not is_open(port()))
            begun.sendall(body[5:])
            answer = b""
            while part := begun.recv(4096):
                answer += part
        done = process.end(seconds=60)
    assert answer.startswith(b"HTTP/1.1 200")
    assert "result" in json.loads(answer.split(b"\r\n\r\n", 1)[1])
    assert done.status == 0
    assert "Traceback" not in done.err


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except OSError:
        return False
    return True


def test_mistakes_on_the_command_line(root, tmp_path, capsys, monkeypatch):
    assert "no such folder" in mistake(capsys, "serve", "./absent")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        says = mistake(capsys, "serve", root / "bert", "--port", port)
    assert f"port {port}: Address already in use" in says
    monkeypatch.setattr("electrify.errors.find_spec", lambda name: None)
    says = mistake(capsys, "serve", root / "bert")
    assert "pip install 'electrify[serve]'" in says
