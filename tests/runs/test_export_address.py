"""An export from a stranger: no text and no key goes to an address that only the export names."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from debate_judge import load
from debate_judge.data.errors import InputError
from debate_judge.runs import score
from tests.config_keys import keys
from tests.faulty_server import FaultyServer
from tests.runs.exports import number_of_note, single_call

pytestmark = pytest.mark.integration

PROVIDERS = ("openai", "anthropic", "groq", "gemini", "hosted_vllm", "ollama_chat", "mistral")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    for provider in PROVIDERS:
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", f"sk-of-{provider}-0123456789")
        monkeypatch.delenv(f"{provider.upper()}_API_BASE", raising=False)
    with FaultyServer(number_of_note) as server:
        yield server


def run(folder: Path, address: str | None, *more: str, spec: str = "openai/m") -> int:
    """Score one text by an export with this address."""
    text = {"group": "g", "source": "A letter.", "candidates": [{"id": "c", "text": "A note."}]}
    (folder / "in.jsonl").write_text(json.dumps(text) + "\n")
    files = ("--in", str(folder / "in.jsonl"), "--out", str(folder / "out.jsonl"), "--store", str(folder / "store"))
    export = single_call(folder / "export", spec, address)
    return score.main([str(export), *files, *keys(preflight=False), *more])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_address_of_the_export_gets_nothing(
    provider: str, server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = f"{provider}/m"
    for lm in (None, spec):
        with pytest.raises(InputError, match="names the server"):
            load(single_call(tmp_path / "export", spec, server.url), lm=lm)
    assert run(tmp_path, server.url, spec=spec) == 2
    message = capsys.readouterr().err
    assert server.url in message
    assert "--api-base" in message
    assert not (tmp_path / "out.jsonl").exists()
    # An estimate sends nothing, so it needs no address.
    assert run(tmp_path, server.url, "--estimate", spec=spec) == 0
    assert "calls" in capsys.readouterr().out
    assert server.requests == 0


def test_an_address_of_the_users_is_used_and_named(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = "http://elsewhere.example/v1"
    assert run(tmp_path, elsewhere, "--api-base", server.url) == 0
    assert f"texts go to {server.url}, with the key in OPENAI_API_KEY" in capsys.readouterr().err
    with load(tmp_path / "export", api_base=server.url) as judge:
        assert judge.score(text="Another note.", source="A letter.")["clarity"].score == 4
    assert server.requests == 2
    # So is one that the environment names as the export does.
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("OPENAI_API_BASE", server.url + "/")
    assert run(tmp_path / "other", server.url) == 0
    assert server.requests == 3


class Input(io.StringIO):
    def __init__(self, text: str, terminal: bool) -> None:
        super().__init__(text)
        self.isatty = lambda: terminal  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("reply", "terminal", "code"),
    [("yes\n", True, 0), ("y\n", True, 2), ("\n", True, 2), ("", True, 2), ("yes\n", False, 2)],
)
def test_an_export_is_trusted_once_the_user_has_said_so_at_a_terminal(
    reply: str,
    terminal: bool,
    code: int,
    server: FaultyServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", Input(reply, terminal))
    assert run(tmp_path, server.url, *keys(trust_export=True)) == code
    assert server.requests == (code == 0)
    question = capsys.readouterr().err
    assert ("OPENAI_API_KEY" in question) or not terminal
    assert server.url in question


def test_two_servers_named_by_the_environment_do_not_share_replies(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FaultyServer(number_of_note) as other:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        assert run(tmp_path, None) == 0
        monkeypatch.setenv("OPENAI_API_BASE", other.url)
        # The rows that are there are of the other server, and must not be mixed with this one's.
        assert run(tmp_path, None) == 2
        assert "api_base" in capsys.readouterr().err
        (tmp_path / "out.jsonl").unlink()
        assert run(tmp_path, None) == 0
        assert (server.requests, other.requests) == (1, 1)
