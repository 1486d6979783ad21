"""After every fault of a server that quotes what it was sent, no key and no password is in anything that is left."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dspy
import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.replies import SqlStore
from debate_judge.programs.lm.settings import LMOptions
from debate_judge.programs.make_lm import make_lm
from tests.faulty_server import FAULTS, FaultyServer
from tests.hostile_server import HostileServer, sized
from tests.programs.engines import QUESTION, ask

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]
KEY, PASSWORD = "own-kEy-9f8e7d6c5b4a3210", "h%75sh-hush-pass"
SECRETS = (KEY, PASSWORD, "hush-hush-pass", "me:h")
IN_USE = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": KEY + "\n",
    "SERPER_API_KEY": KEY[::-1],
    "MLFLOW_TRACKING_PASSWORD": "tracking-" + PASSWORD,
}
ONCE = LMOptions(retries=1, first_wait=0.01, max_wait=0.02, max_outage=0.01)
IMPATIENT = replace(ONCE, attempt_timeout=0.5, deadline=0.6)
"""For servers that never answer; of others a busy machine may be late."""


@pytest.fixture(autouse=True)
def _in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in IN_USE.items():
        monkeypatch.setenv(name, value)


def quoting(status: str, form: str) -> HostileServer:
    """Answers with the whole head of the request, which holds the key, in an error of this form."""

    def send(request: bytes) -> list[bytes]:
        head = request.partition(b"\r\n\r\n")[0].decode("latin-1").replace("\r\n", " ").replace('"', "'")
        quoted = f"denied: {KEY} {head} http://me:{PASSWORD}@host/ {'x' * 150} {KEY}"
        body = {
            "json": f'{{"error": {{"message": "{quoted}", "code": "{KEY}", "type": "x"}}}}',
            "html": f"<html><body>{quoted}</body></html>",
            "broken": f'{{"error": {{"message": "{quoted}',
        }.get(form, quoted)
        if form == "no HTTP":
            return [body.encode()]
        if form == "bad length":
            return [f"HTTP/1.1 {status}\r\nContent-Length: {KEY}\r\nX-{KEY}: 1\r\n\r\n".encode()]
        return [sized(body.encode(), f"X-Echo: {KEY}".encode(), status=status.encode())]

    return HostileServer(send)


def require_clean(*texts: str) -> None:
    for text in texts:
        secrets = [secret for secret in (*SECRETS, *map(str.strip, IN_USE.values())) if secret in text]
        assert secrets == [], text[:3000]


def left_in(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes().decode("latin-1")


def shown_by(url: str, spec: str, folder: Path, options: LMOptions = ONCE) -> str:
    """What a user could see of a call that fails: the error, its traceback with all causes, what repr shows."""
    journal = SqlStore(folder)
    try:
        lm = make_lm(spec, api_base=url, store=journal, options=options)
        ask(lm, QUESTION)
        lm("Propose.")
    except (dspy.LMError, InputError, ValueError) as error:
        logging.getLogger("test").exception("the call failed")
        return "\n".join([str(error), repr(error), *traceback.format_exception(error)])
    finally:
        journal.close()
    return ""


def with_password(url: str, spec: str) -> str:
    return url.replace("//", f"//me:{PASSWORD}@") if spec.startswith("openai") else url


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_faults_of_the_fault_server(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with FaultyServer(lambda body: "fine", lambda body, attempt: fault) as server:
        output = shown_by(with_password(server.url, "openai/m"), "openai/m", tmp_path, IMPATIENT)
    require_clean(output, caplog.text, *capfd.readouterr(), *left_in(tmp_path))


@pytest.mark.parametrize("spec", ["openai/m", "anthropic/m"])
@pytest.mark.parametrize(
    ("status", "form"),
    [
        *((status, "json") for status in ("200 OK", "400 Bad", "401 No", "403 No", "404 No", "429 Slow", "500 Oops")),
        *(("200 OK", form) for form in ("text", "html", "broken", "no HTTP", "bad length")),
        ("500 Oops", "text"),
        (f"307 {KEY}", "text"),
    ],
)  # fmt: skip
def test_a_server_that_quotes_what_it_was_sent(
    status: str,
    form: str,
    spec: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    with quoting(status, form) as server:
        output = shown_by(with_password(server.url, spec), spec, tmp_path)
        assert server.requests
    assert output
    require_clean(output, caplog.text, *capfd.readouterr(), *left_in(tmp_path))


def test_a_compile_leaves_none_on_the_terminal_in_the_store_and_in_mlflow(tmp_path: Path) -> None:
    with quoting("401 No", "json") as server:
        command = [sys.executable, "-m", "debate_judge.optimize.compile", "--lm", "openai/m", "--tuner", "none"]
        command += ["--api-base", with_password(server.url, "openai/m"), "--store", str(tmp_path / "store")]
        inherited = {name: os.environ[name] for name in ("PATH",)}
        environment = {**inherited, **IN_USE, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert server.requests
    assert done.returncode == 3, done.stderr
    assert "OPENAI_API_KEY" in done.stderr
    contents = list(left_in(tmp_path))
    # Not a pass on nothing: the database of the runs is among what was looked through, and holds the run.
    assert any(text.startswith("SQLite format 3") for text in contents)
    assert any(re.search("127.0.0.1", text) for text in (*contents, done.stderr))
    require_clean(done.stdout, done.stderr, *contents)
