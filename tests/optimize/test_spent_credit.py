"""No verdict, export or model comes from a compile most of whose calls failed. Once the cause is mended, the same
command gives what a healthy run gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from debate_judge.optimize.compile import main
from debate_judge.runs.compare import main as compare
from tests.config_keys import keys
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus
from tests.pins.recording import answer

pytestmark = pytest.mark.integration


def compiled(folder: Path, server: FaultyServer) -> int:
    """The exit code of a compile against the server, which has an account of its own in `folder`."""
    folder.mkdir(exist_ok=True)
    flags = ["--data", str(small_corpus(folder, 8, 3)), "--aspects", "coherence", "--max-rounds", "1", "--folds", "1"]
    flags += ["--lm", "openai/m", "--api-base", server.url, "--store", str(folder / "store"), "--name", "judge"]
    return main([*flags, *keys(trials=4, report="none", json=folder / "result.json")])


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
        # Refusals of a judge's prompts leave texts unscored; one of the author's prompt would end the run by itself.
        refused = fault == "credit" or b"You are the " in body
        return fault if server.answered.total() >= 40 and refused and not mended else None

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


def test_a_compared_judge_that_scores_too_few_texts_has_no_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    data, broken = small_corpus(tmp_path), True
    with FaultyServer(answer, lambda body, attempt: "400" if broken and b"the Critic" in body else None) as server:
        flags = ["--data", str(data), "--aspects", "coherence", "--part", "all", "--judges", "single,debate[rounds=1]"]
        flags += ["--lm", "openai/m", "--api-base", server.url, "--store", str(tmp_path / "store")]
        arguments = [*flags, *keys(report="none", preflight=False)]
        assert compare(arguments) == 3
        text = capsys.readouterr()
        assert "48 of 48 texts have no score" in text.err
        assert "run the command again" in text.err
        assert "debate[rounds=1]" not in text.out.split("single")[-1].splitlines()[0]
        broken = False
        assert compare(arguments) == 0
        assert max(server.answered.values()) == 1
