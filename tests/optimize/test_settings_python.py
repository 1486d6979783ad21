"""Settings that come from Python, and which of them decide the result."""

from __future__ import annotations

from pathlib import Path

from debate_judge.optimize.settings import Settings
from debate_judge.programs.debate.personas import PERSONAS
from debate_judge.runs.tracking.prompts import prompts_of
from tests.optimize.compiles import prepared


def test_the_identity_is_what_decides_the_result() -> None:
    base = Settings().identity()
    same = [
        Settings(name="x"),
        Settings(store="elsewhere"),
        Settings(json="r.json"),
        Settings(tracking_uri="http://localhost:5000"),
        Settings(concurrency=2),
        Settings(rpm=1.0),
        Settings(budget="calls=1"),
    ]
    assert {s.identity() for s in same} == {base}
    other = [
        Settings(data="summeval"),
        Settings(task="dialogue"),
        Settings(columns=("text=answer",)),
        Settings(sources="20"),
        Settings(aspects=("coherence",)),
        Settings(judge="single"),
        Settings(personas="mine.toml"),
        Settings(lm="openai/m"),
        Settings(api_base="http://localhost:8000/v1"),
        Settings(tuner="none"),
        Settings(effort="heavy"),
        Settings(trials=7),
        Settings(max_rounds=1),
        Settings(metric="kendall"),
        Settings(metric="sample"),
        Settings(shared=True),
        Settings(seed=1),
        Settings(resamples=1000),
    ]
    assert len({base, *(s.identity() for s in other)}) == len(other) + 1


def test_one_name_for_run_export_model_and_prompts(tmp_path: Path) -> None:
    texts = {name: persona.text for name, persona in PERSONAS.items()}
    named, usual = (prepared(Settings(store=str(tmp_path), **given), texts) for given in ({"name": "mine"}, {}))
    assert (named.name, named.family) == ("mine", "mine")
    assert (usual.name.startswith("sample-debate-offline-"), usual.family) == (True, "debate-summarization")
    found = prompts_of(named.family, {"coherence": {"scorer": "Rate.", "critic": ""}})
    assert found == {"mine.coherence.scorer": "Rate."}
