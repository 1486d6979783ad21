"""The main job through its command line: output, JSON, calibration, sources that were chosen, and its plan."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from debate_judge.optimize import compile as command
from debate_judge.optimize.estimation.estimate import estimate_compile
from debate_judge.optimize.settings import Settings
from debate_judge.runs.export.folder import read
from debate_judge.runs.export.recorded import recorded_scores_in
from debate_judge.runs.flags import invocation
from debate_judge.runs.flags.judge import personas
from debate_judge.runs.runner.progress import ItemPass, RunProgress
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus
from tests.printed_output import unwrapped

pytestmark = pytest.mark.integration

SAMPLE = Path(__file__).parents[2] / "data" / "sample" / "summarization.jsonl"
QUICK = ["--max-rounds", "1", *keys(trials=4, resamples=200), "--folds", "1", *keys(report="none")]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    return [value] if isinstance(value, float) else []


def test_the_sample_compiles_to_evidence_and_an_export(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main([*QUICK, "--aspects", "coherence,consistency", *keys(json="r.json")])
    assert code == 0
    result = json.loads(Path("r.json").read_text())
    assert set(result) == {
        *("chosen", "held_out", "gain", "gain_of_knowledge", "gain_over_informed_single", "guides", "lm_calls"),
        *("export", "run_id", "seed", "closeness"),
        *("note", "held_out_uses", "calibration", "exported", "decisions", "raters", "objective", "lm_calls_per_item"),
        *("splits", "data", "near_duplicates", "gains"),
    }
    parts = [result[name] for name in ("gain_of_knowledge", "gain_over_informed_single", "gain")]
    assert parts[0]["value"] + parts[1]["value"] == pytest.approx(parts[2]["value"])
    assert "stand-in" in result["note"]
    assert "stand-in" in (Path(result["export"]) / "README.md").read_text()
    assert set(result["chosen"]) == set(result["gains"]) == {"coherence", "consistency"}
    assert set(result["chosen"]["coherence"]) == {
        *("knowledge", "persona", "rounds", "tie_breaker", "granularity", "reading"),
    }
    assert set(result["held_out"]) == {"single", "informed_single", "uncompiled", "compiled"}
    for table in result["held_out"].values():
        assert set(table) == {"aspects", "average"}
        cell = table["aspects"]["coherence"]["summary"]["spearman"]
        assert set(cell) == {
            *("value", "low", "high", "method", "groups", "constant", "undefined", "unscored"),
            *("value_without_constant", "value_undefined_as_zero"),
        }
        assert cell["low"] <= cell["value"] <= cell["high"]
    assert set(result["gain"]) == {"value", "low", "high", "p_value", "groups", "method", "deviation", "power"}
    assert all(math.isfinite(n) for n in numbers(result))
    manifest = json.loads((Path(result["export"]) / "manifest.json").read_text())
    # The offline LM scores alike in every reading, so that the price decides; the single call is asked alone.
    for aspect, chosen in result["chosen"].items():
        assert chosen["reading"] == "joint"
        config = manifest["aspects"][aspect]["config"]
        assert (config["together"], config["joint"]) == (16, True)
    for aspect, found in result["calibration"].items():
        held_out = result["held_out"]["compiled"]["aspects"][aspect]["summary"]["spearman"]
        assert found["spearman_after"] == found["spearman"] == held_out["value"]
        assert found["fitted_on"] == {"groups": 14, "candidates": 112}
        assert found["error_after"]["low"] < found["error_after"]["value"]
        kept = manifest["aspects"][aspect]["calibration"]["knots"]
        assert [[knot["score"], knot["raters"]] for knot in kept] == found["knots"]
        assert manifest["evidence"]["calibration"][aspect] == found
    calls = manifest["evidence"]["lm_calls_per_item"]
    assert calls["informed_single"] == 1 / 16
    assert calls["informed_single"] <= calls["compiled"] < calls["single"] == 1
    printed = unwrapped(capsys.readouterr().out)
    assert "difference come from" in printed
    assert "debate check YOUR.csv" in printed
    assert "stand-in" in printed
    assert "not a language model" in printed
    assert f"{invocation.command('score')} {result['export']} --in" in printed
    assert "mlflow ui" in printed
    assert "No order changes" in printed


def test_ungrouped_data_is_judged_at_sample_level(capsys: pytest.CaptureFixture[str]) -> None:
    with open("flat.jsonl", "w") as out:
        for line in SAMPLE.read_text().splitlines():
            group = json.loads(line)
            group["candidates"] = group["candidates"][:1]
            out.write(json.dumps(group) + "\n")
        for number, line in enumerate(SAMPLE.read_text().splitlines()):
            group = json.loads(line)
            group["candidates"] = group["candidates"][1:2]
            group["group"] = f"again-{number}"
            group["source"] += " The editors added a line later."
            out.write(json.dumps(group) + "\n")
    code = command.main(["--data", "flat.jsonl", *QUICK, "--aspects", "relevance", *keys(json="r.json")])
    assert code == 0
    result = json.loads(Path("r.json").read_text())
    assert result["held_out"]["compiled"]["aspects"]["relevance"]["summary"]["spearman"]["value"] is None
    assert result["held_out"]["compiled"]["aspects"]["relevance"]["sample"]["spearman"]["value"] is not None
    assert result["chosen"]["relevance"]["reading"] == "alone"
    assert "sample-level" in capsys.readouterr().out


def test_near_duplicates_and_several_raters_reach_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with open("rated.jsonl", "w") as out:
        for number, line in enumerate(SAMPLE.read_text().splitlines()):
            group = json.loads(line)
            for candidate in group["candidates"]:
                relevance = candidate["ratings"]["relevance"]
                candidate["ratings"] = {"relevance": [relevance, max(1, relevance - 1)]}
            copies = [group]
            if number < 2:
                copies.append({**group, "group": f"again-{number}", "source": group["source"] + " More to come."})
            out.write("".join(json.dumps(copy) + "\n" for copy in copies))
    code = command.main(["--data", "rated.jsonl", *QUICK, "--tuner", "none", *keys(json="r.json")])
    assert code == 0
    result = json.loads(Path("r.json").read_text())
    found = result["raters"]["compiled"]["relevance"]
    assert found["raters"] == 2
    assert found["ceiling"]["value"] > 0.9
    assert found["error"]["value"] >= 0
    evidence = json.loads((Path(result["export"]) / "manifest.json").read_text())["evidence"]
    assert sorted(map(len, evidence["near_duplicates"])) == [2, 2]
    printed = unwrapped(capsys.readouterr().out)
    joined = "4 of 26 sources are near-duplicates of others"
    assert joined in printed
    assert joined in caplog.text
    assert "the human ceiling" in printed


def test_a_judge_that_does_not_agree_is_told_and_not_registered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    with open("turned.jsonl", "w") as out:
        for line in SAMPLE.read_text().splitlines():
            group = json.loads(line)
            for candidate in group["candidates"]:
                candidate["ratings"] = {"relevance": 6 - candidate["ratings"]["relevance"]}
            out.write(json.dumps(group) + "\n")
    flags = ["--tuner", "none", "--max-rounds", "0", *keys(resamples=100), "--folds", "1"]
    flags += ["--store", "store", *keys(json="r.json")]
    warning = "the model is not registered"
    client = MlflowClient(f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}")

    assert command.main(["--data", "turned.jsonl", "--aspects", "relevance", *flags]) == 0
    assert warning in unwrapped(capsys.readouterr().out)
    result = json.loads(Path("r.json").read_text())
    assert result["held_out"]["compiled"]["aspects"]["relevance"]["summary"]["spearman"]["low"] <= 0
    assert (Path(result["export"]) / "manifest.json").exists()
    run = client.get_run(result["run_id"])
    assert len(run.outputs.model_outputs) == 1
    assert not client.search_registered_models()
    told = run.data.tags["mlflow.note.content"]
    assert told.startswith("**Is the judge good?** summary-level Spearman")
    assert "| relevance |" in told
    assert "no language model" in told
    assert len(run.data.metrics) <= 25
    assert run.data.metrics["agreement"] == result["held_out"]["compiled"]["average"]["summary"]["spearman"]["value"]
    artifacts = tmp_path / "store" / "artifacts" / result["run_id"] / "artifacts"
    table = json.loads((artifacts / "debates.json").read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["error"] for row in rows] == sorted((row["error"] for row in rows), reverse=True)
    assert all(row["error"] == abs(row["score"] - row["rating"]) for row in rows)
    assert {"single call", "debate", "stop"} < set(rows[0])

    assert command.main(["--aspects", "relevance", *flags]) == 0
    assert warning not in unwrapped(capsys.readouterr().out)
    assert len(client.search_registered_models()) == 1


def test_sources_of_equal_ratings_count_and_are_part_of_the_estimate() -> None:
    """They rank nothing, so that no judge is tuned or chosen by them, but they tell how high the raters go."""
    with open("rated.jsonl", "w") as out:
        for number, line in enumerate(SAMPLE.read_text().splitlines()):
            group = json.loads(line)
            for candidate in group["candidates"]:
                relevance = candidate["ratings"]["relevance"]
                candidate["ratings"] = {"relevance": relevance if number % 3 else 5}
            out.write(json.dumps(group) + "\n")
    found = estimate_compile(Settings(data="rated.jsonl", max_rounds=0, folds=1), personas(None))
    given = ["--data", "rated.jsonl", "--max-rounds", "0", *keys(resamples=100, preflight=False)]
    given += ["--folds", "1"]
    assert command.main([*given, *keys(json="r.json")]) == 0
    result = json.loads(Path("r.json").read_text())
    # 14 of the 24 sources are train and dev, 112 texts.
    assert result["calibration"]["relevance"]["fitted_on"] == {"groups": 14, "candidates": 112}
    assert "relevance: calibration" in found.rows
    low, _, high = (used.calls for used in found.total)
    assert low - 1e-6 <= result["lm_calls"]["executed"] <= high + 1e-6
    calibrated, own = result["calibration"]["relevance"], result["held_out"]["compiled"]["aspects"]["relevance"]
    assert calibrated["spearman"] == calibrated["spearman_after"] == own["summary"]["spearman"]["value"]
    # The judge thinks less of these texts than their raters do.
    assert calibrated["bias"]["value"] < calibrated["bias_after"]["value"]
    assert calibrated["change"]["value"] < 0


CHOSEN = 3
GROUPS = 12


def test_folds_measure_on_those_that_were_not_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = small_corpus(tmp_path, GROUPS)
    groups = [json.loads(line) for line in file.read_text().splitlines()]
    for group in groups[:CHOSEN]:
        group["drawn"] = 0.5
    file.write_text("".join(json.dumps(group) + "\n" for group in groups))
    flags = ["--data", "small.jsonl", "--aspects", "coherence,fluency", "--folds", "4", "--name", "mine"]
    settings = keys(trials=2, resamples=100, preflight=False)
    assert command.main([*flags, "--max-rounds", "0", "--tuner", "none", *settings]) == 0
    assert f"on {GROUPS - CHOSEN} sources" in unwrapped(capsys.readouterr().out)
    evidence = read("runs/store/exports/mine").manifest["evidence"]
    recorded = recorded_scores_in({"evidence": evidence})
    assert (len(recorded.sources), len(recorded.seen)) == (GROUPS - CHOSEN, GROUPS)
    assert {gain["groups"] for gain in evidence["gains"].values()} <= set(range(GROUPS - CHOSEN + 1))
    assert set(evidence["gains"]) == {"coherence", "fluency"}


@pytest.mark.parametrize(
    "more",
    [
        ["--aspects", "coherence"],
        pytest.param(["--aspects", "coherence,fluency", "--effort", "medium"], marks=pytest.mark.soak),
    ],
)
def test_a_search_makes_about_as_many_passes_as_were_planned(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, int] = {}
    planned: dict[str, int] = {}
    over = RunProgress.track

    @contextmanager
    def counted(self: RunProgress, what: str, total: int | None) -> Iterator[ItemPass]:
        with over(self, what, total) as one:
            if self.phases:
                phase = self.phases[self._step]
                planned[phase.name] = phase.passes
                made[phase.name] = made.get(phase.name, 0) + 1
            yield one

    monkeypatch.setattr(RunProgress, "track", counted)
    data = ["--data", str(small_corpus(tmp_path, groups=24, candidates=4)), "--folds", "1", *keys(preflight=False)]
    assert command.main([*data, *more, *keys(resamples=100, report="none"), "--store", str(tmp_path / "s")]) == 0
    assert 0.5 < made["search"] / planned["search"] < 2
