"""The endpoints, the page, and the process that serves them until a signal comes."""

import asyncio
import logging
import math
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from .. import __version__
from ..errors import UserError, need
from ..names import nearest
from ..process import thread_count
from ..progress import harmless, say, show_progress
from ..values import Count, Natural
from . import ServeConfig
from .gate import TEXTS, Gate, Metrics, failure
from .models import ALTERNATIVES, KINDS, Batches, Job, Served

NOT_JSON = "the body is not a JSON object with content-type application/json"


def valid(text: str) -> str:
    """Raises ValueError for half of a pair of surrogates, which JSON can hold and UTF-8 cannot."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(valid)]


# ------------------------------------------------------------------ bodies


class Asked(BaseModel):
    """model: the name of a served model [default: the first that can do it]."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str | None = None


class Texts(Asked):
    """One text or several."""

    text: Text | None = None
    texts: list[Text] | None = None

    def items(self) -> list[Any]:
        need((self.text is None) != (self.texts is None), "give either text or texts")
        return [self.text] if self.texts is None else self.texts


class Examples(Texts):
    """For a tagger a text is a list of words. pairs: the second texts, or contexts."""

    text: Text | list[Text] | None = None  # type: ignore[assignment]
    texts: list[Text | list[Text]] | None = None  # type: ignore[assignment]
    pairs: Text | list[Text] | None = None

    def items(self) -> list[Any]:
        texts = super().items()
        pairs = [self.pairs] if isinstance(self.pairs, str) else self.pairs
        pairs = [None] * len(texts) if pairs is None else pairs
        need(len(pairs) == len(texts), f"{len(texts)} texts have {len(pairs)} pairs")
        return list(zip(texts, pairs, strict=True))


class Place(Asked):
    """A word, text[start:end], in characters."""

    text: Text
    start: Natural
    end: Count

    def items(self) -> list[Any]:
        return [(self.text, self.start, self.end)]


BODIES: dict[str, Any] = dict.fromkeys(KINDS, Texts) | {"predict": Examples, ALTERNATIVES: Place}
PATHS = {*(f"/{kind}" for kind in BODIES), "/", "/health", "/models", "/metrics"}


def characters_of(item: Any) -> int:
    """The characters of the texts in an item. In a list of words, an empty one counts as one."""
    if isinstance(item, tuple):
        return sum(map(characters_of, item))
    if isinstance(item, list):
        return sum(len(word) or 1 for word in item)
    return len(item) if isinstance(item, str) else 0


# ------------------------------------------------------------------ answers


class Service:
    """The models, their queue, and what is counted."""

    def __init__(self, models: list[Served], options: ServeConfig) -> None:
        self.models = {model.name: model for model in models}
        self.able = {kind: [m.name for m in models if kind in m.kinds] for kind in BODIES}
        """The names of the models that can do each kind of request."""
        self.options = options
        self.metrics = Metrics()
        self.batches = Batches(self._compute, options.max_batch, options.max_characters)

    def _compute(self, key: tuple[str, str, bool], items: list[Any]) -> list[Any]:
        kind, name, _ = key
        if number := thread_count(self.options.threads):
            torch.set_num_threads(number)  # of this thread alone
        self.metrics.observe("electrify_batch_texts", len(items), TEXTS, kind=kind)
        return self.models[name].answers(kind, items)

    def model_for(self, kind: str, name: str | None) -> str:
        """Raises UserError if no model, or not the one that is named, can do it."""
        able = self.able[kind]
        if name is not None:
            need(name in self.models, f"there is no model {name!r:.80}{nearest(name, self.models)}")
            if name in able:
                return name
            its = ", ".join(self.models[name].kinds)
            # Another masked language model does as well.
            need(kind == ALTERNATIVES, f"{name} cannot {kind}. It can {its}")
        need(bool(able), f"none of the models can answer /{kind}")
        return able[0]

    async def answer(self, kind: str, asked: Any) -> Response:
        """The answers to all texts of a body, or to the only one."""
        model, items = self.model_for(kind, asked.model), asked.items()
        need(bool(items), "texts is empty")
        characters = sum(map(characters_of, items))
        most = self.options
        if len(items) > most.max_batch:
            return failure(413, f"{len(items):,} texts are more than {most.max_batch:,}")
        if characters > most.max_characters:
            return failure(413, f"{characters:,} characters are more than {most.max_characters:,}")
        paired = kind == "predict" and items[0][1] is not None
        job = Job((kind, model, paired), items, characters)
        found = await asyncio.wrap_future(self.batches.submit(job))
        results = {"results": found} if asked.text is None else {"result": found[0]}
        return JSONResponse({"model": model, **results})


async def complaint(_: Any, error: Any) -> Response:
    """A mistake in a request, as one sentence."""
    match error:
        case RequestValidationError():
            wrong = error.errors()[0]
            field = harmless(".".join(map(str, wrong["loc"][1:])))[:80]
            if wrong["type"] == "json_invalid" or not field:
                return failure(422, NOT_JSON)
            said = wrong["msg"].removeprefix("Input ").removeprefix("Value error, ")
            return failure(422, f"{field}: {said}", field=field)
        case HTTPException(status_code=400):  # what json cannot read, such as deep nesting
            return failure(422, NOT_JSON)
        case HTTPException():
            return failure(error.status_code, error.detail)
    return failure(422, str(error))


def create_app(service: Service) -> FastAPI:
    """The application. The thread of its queue is started apart."""
    options = service.options
    # The library's pages of documentation load scripts from elsewhere.
    app = FastAPI(title="electrify", version=__version__, docs_url=None, redoc_url=None)
    app.add_middleware(Gate, options=options, metrics=service.metrics, paths=PATHS)
    for kind in (UserError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, complaint)

    def add(kind: str, body: Any) -> None:
        @app.post(f"/{kind}")
        async def endpoint(asked: body) -> Response:  # type: ignore
            return await service.answer(kind, asked)

    for kind, body in BODIES.items():
        add(kind, body)

    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/models")
    async def models() -> Response:
        models = service.models.items()
        return JSONResponse({"models": [{"name": n, "endpoints": m.kinds} for n, m in models]})

    @app.get("/metrics")
    async def metrics() -> Response:
        text = service.metrics.text(queue=len(service.batches.waiting))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    app.mount("/", StaticFiles(directory=Path(__file__).with_name("page"), html=True))
    return app


# ------------------------------------------------------------------ process


def serve(options: ServeConfig) -> None:
    """Serves until a signal comes, and answers what was accepted by then. Raises UserError."""
    with listening(options.host, options.port) as listener:  # first, because models take longer
        service = Service([Served(name, options.threads) for name in options.models], options)
        for name, model in service.models.items():
            say(f"{name}: {', '.join(model.kinds)}")
        service.batches.thread.start()
        how: Any = {"access_log": False, "log_config": None, "log_level": "error", "ws": "none"}
        how |= {"lifespan": "off", "server_header": False}
        how["timeout_graceful_shutdown"] = 2 * math.ceil(options.timeout)
        host, port = listener.getsockname()[:2]
        say(f"serving on http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C stops)")
        # Notes on texts belong to whoever sent them, and not into the log of the server.
        show_progress(logging.ERROR)
        Server(uvicorn.Config(create_app(service), **how)).run(sockets=[listener])


def listening(host: str, port: int) -> socket.socket:
    """A socket with this address. Raises UserError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as e:
        raise UserError(f"host {host}, port {port}: {e.strerror}") from e


class Server(uvicorn.Server):
    """Ends with status 0 when a signal stops it, SIGHUP too."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # `nohup` ignores SIGHUP
                signal.signal(number, self.handle_exit)
        yield
