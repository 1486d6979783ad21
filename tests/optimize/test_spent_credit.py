"""No verdict, export or model comes from a compile most of whose calls failed. Once the cause is mended, the same
command gives what a healthy run gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from debate_judge.optimize.compile import main
from tests.config_keys import keys
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus
from tests.pins.recording import answer

pytestmark = pytest.mark.integration


def compiled(folder: Path, server: FaultyServer) -> int:
    """The exit code of a compile against the server, which has an account of its own in `folder`."""
    folder.mkdir(exist_ok=True)
    flags = ["--data", str(small_corpus(folder)), "--aspects", "coherence", "--max-rounds", "1", "--folds", "1"]
    flags += ["--lm", "openai/m", "--api-base", server.url, "--store", str(folder / "store"), "--name", "judge"]
    return main([*flags, *keys(trials=6, report="none", json=folder / "result.json")])


def result(folder: Path) -> dict[str, object]:
    content = json.loads((folder / "result.json").read_text())
    # What is each run's own: its address, and how much of it was left to do.
    for key in ("run_id", "export", "lm_calls"):
        content.pop(key)
    return {name: value for name, value in content.items() if "api_base" not in name}


@pytest.mark.parametrize("fault", ["credit", "400"])
def test_a_compile_whose_calls_fail_ends_without_a_verdict_and_resumes(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    healthy, broken, mended = tmp_path / "healthy", tmp_path / "broken", False

    def script(body: bytes, attempt: int) -> str | None:
        return fault if server.answered.total() >= 60 and not mended else None

    with FaultyServer(answer, script) as server:
        assert compiled(broken, server) == 3
        text = capsys.readouterr()
        assert "run the command again" in text.err
        assert ("no credit left" if fault == "credit" else "have no score") in text.err
        assert "Traceback" not in text.err
        assert not (broken / "store" / "exports").exists()
        assert not text.out
        mended = True
        assert compiled(broken, server) == 0
        assert max(server.answered.values()) == 1
        server.answered.clear()
        assert compiled(healthy, server) == 0
    assert result(broken) == result(healthy)
