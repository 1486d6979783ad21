"""An export from a stranger: no text and no key goes to an address that only the export names."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from debate_judge import load
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs import score
from debate_judge.runs.export.folder import save
from tests.config_keys import keys
from tests.faulty_server import FaultyServer

pytestmark = pytest.mark.integration

TASK = Task("notes", "letter", "note", (Aspect("clarity", "Is it clear?", Scale(1, 5)),))
PROVIDERS = ("openai", "anthropic", "groq", "gemini", "hosted_vllm", "ollama_chat", "mistral")


class Listener(FaultyServer):
    """Writes down what is sent to it."""

    def __init__(self) -> None:
        super().__init__(self._heard)
        self.bodies: list[bytes] = []

    def _heard(self, body: bytes) -> str:
        self.bodies.append(body)
        return "[[ ## rationale ## ]]\nBecause.\n\n[[ ## score ## ]]\n4"


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    for provider in PROVIDERS:
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", f"sk-of-{provider}-0123456789")
        monkeypatch.delenv(f"{provider.upper()}_API_BASE", raising=False)
    with Listener() as server:
        yield server


def export(folder: Path, spec: str, address: str | None) -> Path:
    judge = CompiledJudge(TASK, {"clarity": AspectJudge(build("debate", JUDGES["single"].config))})
    return save(folder / "export", judge, lm={"spec": spec, "api_base": address}, evidence={}, name="x")


def run(folder: Path, program: Path, *more: str) -> int:
    text = {"group": "g", "source": "A letter.", "candidates": [{"id": "c", "text": "A note."}]}
    (folder / "in.jsonl").write_text(json.dumps(text) + "\n")
    files = ("--in", str(folder / "in.jsonl"), "--out", str(folder / "out.jsonl"), "--store", str(folder / "store"))
    return score.main([str(program), *files, *keys(preflight=False), *more])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_address_of_the_export_gets_nothing(
    provider: str, listener: Listener, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{provider}/m"
    folder = export(tmp_path, spec, listener.url)
    for given in (None, spec):
        with pytest.raises(InputError, match="names the server"):
            load(folder, lm=given)
    assert run(tmp_path, folder) == 2
    message = capsys.readouterr().err
    assert listener.url in message
    assert "--api-base" in message
    assert not (tmp_path / "out.jsonl").exists()
    assert listener.requests == 0


def test_an_address_that_the_user_names_is_used_and_told(
    listener: Listener, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = export(tmp_path, "openai/m", "http://elsewhere.example/v1")
    assert run(tmp_path, folder, "--api-base", listener.url) == 0
    message = capsys.readouterr().err
    assert f"texts go to {listener.url}" in message
    assert "OPENAI_API_KEY" in message
    assert listener.requests == 1
    with load(folder, api_base=listener.url) as judge:
        assert judge.score(text="Another note.", source="A letter.")["clarity"].score == 4


def test_an_address_that_the_environment_names_as_well_is_the_users(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", listener.url + "/")
    assert run(tmp_path, export(tmp_path, "openai/m", listener.url)) == 0
    assert listener.requests == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("said", "code", "requests"), [("yes\n", 0, 1), ("y\n", 2, 0), ("\n", 2, 0), ("", 2, 0)])
def test_an_export_is_trusted_once_the_user_has_said_so(
    said: str,
    code: int,
    requests: int,
    listener: Listener,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(said))
    assert run(tmp_path, export(tmp_path, "openai/m", listener.url), *keys(trust_export=True)) == code
    asked = capsys.readouterr().err
    assert "OPENAI_API_KEY" in asked
    assert listener.url in asked
    assert listener.requests == requests


def test_without_a_terminal_no_export_is_trusted(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert run(tmp_path, export(tmp_path, "openai/m", listener.url), *keys(trust_export=True)) == 2
    assert listener.requests == 0


def test_an_estimate_sends_nothing_and_needs_no_yes(
    listener: Listener, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, export(tmp_path, "openai/m", listener.url), "--estimate") == 0
    assert "calls" in capsys.readouterr().out
    assert listener.requests == 0


def test_two_servers_named_by_the_environment_do_not_share_replies(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = export(tmp_path, "openai/m", None)
    with Listener() as other:
        monkeypatch.setenv("OPENAI_API_BASE", listener.url)
        assert run(tmp_path, folder) == 0
        monkeypatch.setenv("OPENAI_API_BASE", other.url)
        # The rows that are there are of the other server, and must not be mixed with this one's.
        assert run(tmp_path, folder) == 2
        assert "api_base" in capsys.readouterr().err
        (tmp_path / "out.jsonl").unlink()
        assert run(tmp_path, folder) == 0
        assert (listener.requests, other.requests) == (1, 1)
