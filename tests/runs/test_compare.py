"""The compare command: what it scores by default, and what it prints and writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge import data
from debate_judge.data.splits import split
from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig
from debate_judge.programs.lm.store import FILE
from debate_judge.runs import compare
from debate_judge.runs.comparison.flags import CompareFlags
from debate_judge.runs.export import folder as export
from tests.printed_output import unwrapped
from tests.runs.quick_compare import ASPECTS, run, table
from tests.stores import count


@pytest.mark.integration
def test_all_judges_of_the_family_stand_in_one_table(
    rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "single,geval,multiagent,debate,debate+tiebreak,chateval"
    found = table(rated, tmp_path, "--judges", names, "--lm", "offline")
    assert list(found["judges"]) == names.split(",")
    for judge in found["judges"].values():
        assert judge["agreement"]["average"]["summary"]["spearman"]["groups"] > 0
        assert judge["lm_calls_per_item"] >= 1
    calls = {name: judge["lm_calls_per_item"] for name, judge in found["judges"].items()}
    assert calls["single"] == 1
    assert calls["debate"] <= calls["debate+tiebreak"]
    assert set(found["differences"]) == set(names.split(",")[1:])
    printed = capsys.readouterr().out
    assert "coherence ρ/τ-b" in printed
    assert "offline LM" in printed


def test_where_raters_are_several_judges_stand_beside_them(
    rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several = tmp_path / "several.jsonl"
    records = [json.loads(line) for line in rated.read_text().splitlines()]
    for record in records:
        for candidate in record["candidates"]:
            candidate["ratings"] = {a: [r, max(1, r - 1), r] for a, (r,) in candidate["ratings"].items()}
    several.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = table(several, tmp_path, "--judges", "rouge-l,single", "--part", "all")["raters"]
    assert set(found) == {"rouge-l", "single"}
    one = found["single"]["coherence"]
    assert one["raters"] == 3
    assert one["ceiling"] == found["rouge-l"]["coherence"]["ceiling"]
    assert 0 < one["alpha"] < 1
    # ROUGE-L has a scale of its own: its distance from ratings means nothing.
    assert found["rouge-l"]["coherence"]["error"] is None
    assert one["error"]["value"] >= abs(one["bias"]["value"])
    assert "the human ceiling" in capsys.readouterr().out
    assert "raters" not in table(rated, tmp_path, "--judges", "rouge-l", "--part", "all")


def test_intervals_p_values_and_power_are_explained_under_the_table(
    rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table(rated, tmp_path, "--judges", "rouge-l,single", "--part", "all")["differences"]["single"]["power"]
    printed = unwrapped(capsys.readouterr().out)
    assert "t on the group values" in printed
    assert "signs of groups" in printed
    assert "single against rouge-l" in printed
    few = table(rated, tmp_path, "--judges", "rouge-l,single")["differences"]["single"]
    assert (few["groups"], few["p_value"], few["p_corrected"]) == (3, None, None)
    assert "fewer than 6 groups" in unwrapped(capsys.readouterr().out)


def test_held_out_groups_of_compiles_split_are_scored_unless_all_are_wanted(
    rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = data.load(str(rated))
    for seed in (0, 3):
        held_out = split(corpus, aspects=ASPECTS, seed=seed).held_out
        found = table(rated, tmp_path, "--judges", "rouge-l", "--seed", str(seed))["data"]
        assert (found["part"], found["groups"], found["digest"]) == ("held-out", 3, held_out.digest)
        assert f"with seed {seed})" in unwrapped(capsys.readouterr().out)
    assert table(rated, tmp_path, "--judges", "rouge-l", "--part", "all")["data"]["digest"] == corpus.digest
    assert "all 8 groups" in capsys.readouterr().out
    first = table(rated, tmp_path, "--judges", "rouge-l", "--part", "all", "--config", "sources=0.5")["data"]
    last = table(rated, tmp_path, "--judges", "rouge-l", "--part", "all", "--config", "sources=5-8")["data"]
    halves = [replace(corpus, groups=corpus.groups[:4]), replace(corpus, groups=corpus.groups[4:])]
    assert [first["digest"], last["digest"]] == [half.digest for half in halves]


@pytest.mark.integration
def test_the_same_command_goes_on_from_the_store_with_the_same_result(
    rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def replies() -> int:
        return sum(count(file.parent) for file in (tmp_path / "store").rglob(FILE))

    table(rated, tmp_path, "--judges", "single")
    assert replies() == 3 * 4 * 2
    capsys.readouterr()
    first = table(rated, tmp_path, "--judges", "single,debate")
    printed, known = capsys.readouterr().out, replies()
    assert table(rated, tmp_path, "--judges", "single,debate") == first
    assert capsys.readouterr().out == printed
    assert replies() == known
    # What a judge needs is not less because it was answered before.
    fresh = table(rated, tmp_path / "elsewhere", "--judges", "single,debate")
    assert fresh == first


@pytest.fixture
def tuned(rated: Path, tmp_path: Path) -> Path:
    judge = CompiledJudge(
        SUMMARIZATION, {name: AspectJudge(Debate(debate_config=DebateConfig(1)), "half") for name in ASPECTS}
    )
    held_out = split(data.load(str(rated)), aspects=ASPECTS, seed=0).fingerprints["held_out"]
    evidence = {"splits": {"held_out": held_out}}
    return export.save(tmp_path / "tuned", judge, lm={"spec": "offline"}, evidence=evidence, name="tuned")


def test_an_export_takes_part_and_is_warned_of_where_its_split_was_another(
    rated: Path, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = table(rated, tmp_path, "--judges", f"single,{tuned}")
    assert list(found["judges"]) == ["single", "tuned"]
    assert found["judges"]["tuned"]["note"] is None
    other = table(rated, tmp_path, "--judges", f"single,{tuned}", "--seed", "3")
    assert "another split" in other["judges"]["tuned"]["note"]
    assert "tuned: compiled on" in unwrapped(capsys.readouterr().out)
    whole = table(rated, tmp_path, "--judges", f"single,{tuned}", "--part", "all")
    assert "some of these groups" in whole["judges"]["tuned"]["note"]


def test_an_export_scores_with_its_own_lm_in_its_own_aspects_and_may_be_varied(
    rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = CompiledJudge(SUMMARIZATION, {"fluency": AspectJudge(Debate(rounds=2), "half")})
    lm = {"spec": "openai/m", "api_base": "http://127.0.0.1:9/v1"}
    made = export.save(tmp_path / "tuned", judge, lm=lm, evidence={}, name="tuned")
    more = ["--data", str(rated), "--store", str(tmp_path / "store"), "--config", "report=none", "--part", "all"]
    judges = f"single,{made}[rounds=0|1]"
    # Its address is in the export alone, and nobody has said that texts may go there.
    assert compare.main([*more, "--judges", judges]) == 2
    assert "api_base" in capsys.readouterr().err
    assert compare.main([*more, "--judges", judges, "--lm", "offline", "--json", str(tmp_path / "t.json")]) == 0
    found = json.loads((tmp_path / "t.json").read_text())
    assert list(found["judges"]) == ["single", "tuned[rounds=0]", "tuned[rounds=1]"]
    assert found["data"]["aspects"] == ["fluency"]
    assert "compiled on some" not in capsys.readouterr().out


def test_tables_in_markdown(rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rated, tmp_path, "--judges", "rouge-l,single", "--config", "style=markdown") == 0
    assert "| judge |" in capsys.readouterr().out


def test_level_and_correlations_are_a_metric(rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = table(rated, tmp_path, "--judges", "rouge-l", "--metric", "system/kendall,pearson")
    assert (found["level"], found["statistics"]) == ("system", ["kendall", "pearson"])
    assert "coherence τ-b/r" in capsys.readouterr().out
    assert table(rated, tmp_path, "--judges", "rouge-l", "--metric", "sample")["statistics"] == ["spearman", "kendall"]


@pytest.mark.integration
def test_the_report_has_what_the_table_has(rated: Path, tmp_path: Path) -> None:
    judges = "rouge-l,debate[rounds=0|1],debate[rounds=0,sample=1|2]"
    more = ["--judges", judges, "--probes", "longer", "--config", "report=plain"]
    found = table(rated, tmp_path, *more)
    sections = {one["title"]: one["blocks"] for one in json.loads((tmp_path / "t-report.json").read_text())["sections"]}
    assert [block["kind"] for block in sections["Agreement by rounds"]] == ["rounds"]
    assert [block["kind"] for block in sections["Bias probes"]] == ["table"]
    (varied,) = sections["Runs of one judge"]
    assert varied["rows"][0][:3] == ["debate[rounds=0]", "samples", "2"]
    assert len(sections["Bias probes"][0]["rows"]) == len(found["probes"]["judges"]) == 5


def test_a_screen_of_flags() -> None:
    assert len(CompareFlags.FLAGS) + 1 <= 22, "--config is the last"


@pytest.mark.integration
def test_ablations_are_judges_with_settings(rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('grumpy = "You never like a score. Say NO ISSUE only when you must."\n')
    judges = "single,debate[rounds=0|1|2],debate[rounds=1,persona=plain|grumpy],debate[rounds=1,sample=1|2]"
    found = table(rated, tmp_path, "--judges", judges, "--config", f"personas={mine}")
    assert len(found["judges"]) == 8
    calls = {name: judge["lm_calls_per_item"] for name, judge in found["judges"].items()}
    assert calls["single"] == calls["debate[rounds=0]"] == 1
    assert calls["debate[rounds=0]"] < calls["debate[rounds=1]"] <= calls["debate[rounds=2]"]
    scores = [judge["agreement"] for judge in found["judges"].values()]
    assert scores[0] == scores[1]
    (varied,) = found["variability"]
    assert (varied["judge"], varied["share_of_items_changed"]) == ("debate[rounds=1]", 0)
    assert "deterministic" in capsys.readouterr().out
    assert run(rated, tmp_path, "--judges", judges, "--config", f"personas={mine}", "--estimate") == 0
    estimate = capsys.readouterr().out
    assert all(name in estimate for name in calls)


def test_scores_from_a_file_take_part(rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = data.load(str(rated))
    rows = [
        {"group": g.id, "candidate": c.id, "aspect": a, "score": c.rating(a)}
        for g in corpus.groups
        for c in g.candidates
        for a in ASPECTS
    ]
    held_out = split(corpus, aspects=ASPECTS, seed=0).held_out
    rows.remove(next(r for r in rows if r["group"] == held_out.groups[0].id))
    file = tmp_path / "scores.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = table(rated, tmp_path, "--judges", "single", "--external", f"oracle={file}", "--config", "baseline=oracle")
    oracle = found["judges"]["oracle"]
    assert list(found["judges"]) == ["single", "oracle"]
    assert oracle["agreement"]["average"]["summary"]["spearman"]["value"] == pytest.approx(1)
    assert (oracle["lm_calls_per_item"], oracle["usd_per_1000_items"]) == (None, None)
    assert oracle["unscored"] == {"not in the file": 1}
    assert set(found["differences"]) == {"single"}
    printed = capsys.readouterr().out
    assert "23 of 24 items" in printed
    assert run(rated, tmp_path, "--judges", ",", "--external", f"oracle={file}") == 0


def test_decisions_are_shown_where_ratings_are_categories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = tmp_path / "support.toml"
    task.write_text(
        'name = "support"\nsource_label = "question"\ncandidate_label = "answer"\n\n[aspects.grounded]\n'
        'definition = "Whether every statement is supported."\nlow = 0\nhigh = 1\nstep = 1\n'
    )
    rows = [
        {
            "group": f"g{i}",
            "source": f"Which town number {i} has a bridge?",
            "candidates": [
                {"id": "a", "text": f"Town number {i} has a bridge.", "ratings": {"grounded": 1}},
                {"id": "b", "text": "Nobody has ever seen any such thing anywhere.", "ratings": {"grounded": 0}},
            ],
        }
        for i in range(8)
    ]
    file = tmp_path / "rated.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = ["--judges", "single,rouge-l", "--json", str(tmp_path / "t.json"), "--config", "resamples=100"]
    more += ["--store", str(tmp_path / "store")]
    assert compare.main(["--data", str(file), "--task", str(task), *more]) == 0
    assert "balanced acc." in capsys.readouterr().out
    decisions = json.loads((tmp_path / "t.json").read_text())["decisions"]
    assert set(decisions) == {"single", "rouge-l"}
    assert decisions["single"]["grounded"]["measures"]["accuracy"]["value"] is not None


@pytest.mark.integration
def test_published_figures_of_a_public_set(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared_data / "summeval.jsonl"
    found = [
        "--data",
        f"summeval={path}",
        "--judges",
        "rouge-l",
        "--config",
        "published=true",
        "--config",
        "resamples=100",
    ]
    assert compare.main([*found, "--store", str(tmp_path), "--json", str(tmp_path / "t.json")]) == 0
    assert "published" in capsys.readouterr().out
    assert json.loads((tmp_path / "t.json").read_text())["published"][0]["source"].startswith("DEBATE")
