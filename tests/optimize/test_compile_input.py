"""Input that a compile refuses before anything is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from debate_judge.optimize import compile as command
from debate_judge.programs.lm.store import FILE
from tests.config_keys import keys
from tests.stores import count

ROOT = Path(__file__).parents[2]
QUICK = ["--max-rounds", "1", *keys(trials=4, resamples=200), "--folds", "1", *keys(report="none")]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


BAD = [
    (["--lm", "oflin"], "'oflin' is not an LM"),
    (["--lm", "opena/gpt-4o"], "did you mean 'openai'?"),
    (["--reflection-lm", "opena/gpt-4o"], "field '--reflection-lm'"),
    (["--tuner", "mirpo"], "did you mean 'mipro'?"),
    (["--judge", "debat"], "did you mean 'debate'?"),
    (["--data", "summevall"], "did you mean 'summeval'"),
    (["--aspects", "coherense"], "coherence"),
    (["--metric", "spearmann"], "did you mean 'spearman'?"),
    (["--metric", "sumary"], "did you mean 'summary'?"),
    (["--judge", "rouge-l", "--metric", "mae"], "not on the raters' scale"),
    (keys(trials=0), "at least 1"),
    (["--data", "missing.jsonl"], "missing.jsonl"),
    (["--config", "missing.toml"], "missing.toml"),
    (keys(personas="missing.toml"), "missing.toml"),
    (["--tracking-uri", "http://127.0.0.1:9"], "127.0.0.1:9"),
]


@pytest.mark.parametrize(
    ("arguments", "expected"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_is_refused_before_anything_is_spent(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*arguments, *keys(json="r.json")]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert "Traceback" not in error
    assert not Path("r.json").exists()
    assert not any(count(file.parent) for file in Path(".").rglob(FILE))


def test_pairs_are_shown_of_sources_with_several_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"Source {n}.,Text {n}.,{1 + n % 5}\n" for n in range(60))
    data = write(tmp_path / "single.csv", f"source,text,coherence\n{rows}")
    assert command.main(["--data", data, "--task", "summarization", "--examples", "pairs:3"]) == 2
    assert "field '--examples': there are no pairs to show" in capsys.readouterr().err


def test_a_key_that_no_header_can_hold_is_refused_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-Sesame-é")
    assert command.main(["--lm", "openai/gpt-4o"]) == 2
    error = capsys.readouterr().err
    assert "field 'OPENAI_API_KEY'" in error
    assert "Sesame" not in error


def test_too_few_ratings_are_refused_with_the_reason_and_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (ROOT / "data" / "sample" / "summarization.jsonl").read_text().splitlines()[:2]
    assert command.main(["--data", write(Path("few.jsonl"), "\n".join(lines))]) == 2
    error = capsys.readouterr().err
    assert "too few ratings of coherence to start" in error
    assert "not even the sign of a correlation of .5 would be certain" in error
    assert "at least 20 rated candidates" in error
    assert "16, in 2 sources" in error
    assert "rate 4 more candidates" in error


def test_too_few_sources_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (ROOT / "data" / "sample" / "summarization.jsonl").read_text().splitlines()[:5]
    data = write(Path("few.jsonl"), "\n".join(lines))
    assert command.main(["--data", data, "--folds", "1"]) == 2
    assert "at least 2 groups whose candidates are rated differently in each part" in capsys.readouterr().err
    assert command.main(["--data", data, "--folds", "6"]) == 2
    error = capsys.readouterr().err
    assert "5 sources cannot be cut into 6 folds" in error
    assert "choose fewer folds, 4 at least" in error


def test_a_judge_that_cannot_score_ends_the_compile_and_leaves_no_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--aspects", "coherence", "--tuner", "none", *keys(score_mode="expected"), "--store", str(tmp_path)]
    assert command.main(flags) == command.EXIT_INPUT
    assert "log-probabilities" in capsys.readouterr().err
    assert not (tmp_path / "exports").exists()


@pytest.mark.parametrize("place", ["a file/r.json", "a folder", "x" * 300 + ".json"])
def test_a_result_that_could_not_be_written_is_refused_before_anything_is_paid(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "a folder").mkdir()
    monkeypatch.setattr("debate_judge.optimize.job.compile_judge", lambda *found: pytest.fail("the compile began"))
    assert command.main([*QUICK, *keys(json=place)]) == 2
    message = capsys.readouterr().err
    assert "field 'json': cannot be written" in message
    assert "Traceback" not in message
