"""A small judge, its texts and a server that answers about them, for tests of distributed scoring."""

from __future__ import annotations

import csv
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export.folder import save
from tests.fakes import debater
from tests.runs.score_command import TASK, digit


def program(folder: Path, spec: str = "openai/m") -> Path:
    """An export: a single call for one aspect, a debate for the other."""
    judges = {
        "tone": AspectJudge(build("debate", JUDGES["single"].config)),
        "help": AspectJudge(build("debate", {"persona": "plain", "rounds": 1, "tie_breaker": False})),
    }
    return save(folder / "program", CompiledJudge(TASK, judges), lm={"spec": spec}, evidence={}, name="x")


def group(number: int, candidates: int = 2) -> dict[str, Any]:
    texts = [{"id": f"c{i}", "text": f"reply {number * 10 + i}"} for i in range(candidates)]
    return {"group": f"g{number}", "source": f"message {number}", "candidates": texts}


def write_jsonl(path: Path, numbers: range) -> Path:
    path.write_text("".join(json.dumps(group(n)) + "\n" for n in numbers), encoding="utf-8")
    return path


def write_csv(path: Path, numbers: range) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "candidate", "source", "text"])
        writer.writerows(_rows(numbers))
    return path


def write_parquet(path: Path, numbers: range) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = zip(*_rows(numbers), strict=True)
    pq.write_table(pa.table(dict(zip(["group", "candidate", "source", "text"], map(list, columns), strict=True))), path)
    return path


def _rows(numbers: range) -> list[list[str]]:
    groups = [group(number) for number in numbers]
    return [[g["group"], c["id"], g["source"], c["text"]] for g in groups for c in g["candidates"]]


class AnsweringServer:
    """A chat server that notes what it was asked.

    Args:
        latency: Seconds until an answer.
    """

    def __init__(self, latency: float = 0.0) -> None:
        self.latency = latency
        self.asked: Counter[str] = Counter()
        """Prompt -> times it was answered."""
        self.refuse = 0
        """Further requests that are refused with 429."""
        self.refused = 0
        self.lock = threading.Lock()
        self._answer = debater(score=digit)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                status, body = outer.reply(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def reply(self, body: bytes) -> tuple[int, bytes]:
        prompt = "\n\n".join(message["content"] for message in json.loads(body)["messages"])
        with self.lock:
            if self.refuse:
                self.refuse -= 1
                self.refused += 1
                return 429, b'{"error": {"message": "slow down"}}'
        time.sleep(self.latency)
        text = self._answer(prompt)
        with self.lock:
            self.asked[prompt] += 1
            number = self.asked.total()
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(text) // 4}
        return 200, json.dumps({"id": f"x{number}", "choices": [choice], "usage": usage}).encode()

    def __enter__(self) -> AnsweringServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
