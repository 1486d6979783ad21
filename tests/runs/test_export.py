"""An export is the judge: it comes back whole and says nothing it should not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import dspy
import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.judge import Item
from debate_judge.programs.roles.examples import RatedExample, examples_of, with_examples
from debate_judge.runs.export.folder import read
from debate_judge.runs.export.manifest import program_fingerprint
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import scripted_lm
from tests.runs.exports import SCRIPT, TASK, compiled, write


def prompts(judge: CompiledJudge) -> list[tuple[str, str]]:
    """System text and prompt of every call that judging one item per aspect makes, in order."""
    lm = scripted_lm(SCRIPT, concurrency=1)
    with JudgeRunner(lm, progress=False) as runner:
        for aspect in TASK.aspects:
            item = Item("g", "c", TASK, aspect, "My order is late.", "Sorry!", "Be polite.")
            runner.judge(judge.aspects[aspect.name].judge, [item])
    return list(zip(lm.systems, lm.prompts, strict=True))


def content(folder: Path) -> bytes:
    return b"\n".join(f.name.encode() + f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file())


def test_comes_back_with_the_same_parts_and_the_same_prompts(tmp_path: Path) -> None:
    before = compiled()
    after = read(write(tmp_path / "x", before)).judge
    assert after.task == before.task
    personas = {"tone": "tuned", "Überblick v1.0": "devils-advocate", "help": "sophisticated"}
    for name, expected in before.aspects.items():
        loaded = after.aspects[name]
        assert loaded.granularity == expected.granularity
        assert loaded.judge.config() == expected.judge.config() | {"persona": personas[name]}
        assert loaded.judge.instructions() == expected.judge.instructions()
    # Two rounds that stay open (5 calls) and their tie-break, an unreadable score, and one round that stays open.
    assert len(prompts(before)) == 5 + 1 + 2 + 3
    assert prompts(after) == prompts(before)


def test_an_export_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    judge = compiled()
    assert list(judge.aspects["tone"].judge.instructions()) == ["scorer", "critic", "tie_breaker"]
    manifest_file = write(tmp_path / "x", judge) / "manifest.json"
    manifest, states = json.loads(manifest_file.read_text("utf-8")), {}
    for name, entry in manifest["aspects"].items():
        file = manifest_file.parent / entry["state"]
        state = json.loads(file.read_text("utf-8"))
        states[name] = {f"{predictor}.predict": saved for predictor, saved in state.items()}
        file.write_text(json.dumps(states[name]), "utf-8")
        if entry["kind"] == "debate":
            entry["config"] |= {"granularity": "free", "batch_rounds": 0}
    manifest["fingerprint"] = program_fingerprint(manifest["task"], manifest["aspects"], states)
    manifest_file.write_text(json.dumps(manifest), "utf-8")
    assert prompts(read(tmp_path / "x").judge) == prompts(judge)


def test_demonstrations_stay_at_home_unless_asked_for(tmp_path: Path) -> None:
    judge = compiled()
    demo = dspy.Example(candidate="PRIVATE text", rationale="r", score="4")
    dict(judge.aspects["tone"].judge.named_predictors())["scorer"].demos = [demo]
    without, kept = (read(write(tmp_path / str(demos), judge, demos=demos)) for demos in (False, True))
    assert b"PRIVATE" not in content(tmp_path / "False")
    assert [export.manifest["aspects"]["tone"].get("demos_left_out") for export in (without, kept)] == [1, None]
    assert prompts(kept.judge) == prompts(judge)


@pytest.mark.parametrize("nearest", [0, 1])
def test_rated_examples_are_exported_only_with_permission_and_then_declared(tmp_path: Path, nearest: int) -> None:
    example = RatedExample("tone", "7", "A source.", "", "A PRIVATE candidate.", 3.5, (3.0, 4.0))
    judge = compiled()
    tone = replace(judge.aspects["tone"], judge=with_examples(judge.aspects["tone"].judge, [example], nearest))
    judge = replace(judge, aspects={**judge.aspects, "tone": tone})
    # Without them it would be another judge than the one whose evidence it carries.
    with pytest.raises(InputError, match="export-examples"):
        write(tmp_path / "x", judge)
    assert not (tmp_path / "x").exists()
    kept = read(write(tmp_path / "x", judge, demos=True))
    assert examples_of(kept.judge.aspects["tone"].judge) == (example,)
    assert prompts(kept.judge) == prompts(judge)
    assert "PRIVATE" in str(prompts(kept.judge))
    assert kept.manifest["aspects"]["tone"]["holds_texts"] == {"rated_examples": 1}
    assert "1 rated texts" in (tmp_path / "x" / "README.md").read_text(encoding="utf-8")


def test_no_secret_and_no_path_of_this_machine_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment-secret-1")
    judge = compiled()
    for _, predictor in judge.aspects["tone"].judge.named_predictors():
        predictor.lm = dspy.LM(
            "openai/m",
            api_key="sk-predictor-secret-2",
            api_base="http://user:pw-secret-3@host/v1",
            extra_headers={"Authorization": "Bearer header-secret-4"},
        )
    lm = {
        "spec": "openai/m",
        "api_base": "https://user:pw-secret-5@host:8000/v1?api-key=query-secret-6",
        "api_key": "secret-7",
        "extra_headers": {"Authorization": "secret-8"},
        "temperature": 0.0,
    }
    evidence = {
        "data": {"location": str(tmp_path / "ratings.jsonl"), "also": r"C:\Users\me\ratings.csv"},
        "note": "fetched from https://me:pw-secret-9@host/x with sk-environment-secret-1",
        "api_key": "secret-10",
    }
    folder = write(tmp_path / "x", judge, lm=lm, evidence=evidence)
    assert not [text for text in (b"secret", str(tmp_path).encode(), b"Users") if text in content(folder)]
    assert {f.suffix for f in folder.rglob("*") if f.is_file()} == {".json", ".md"}
    manifest = read(folder).manifest
    assert manifest["lm"] == {"spec": "openai/m", "temperature": 0.0, "api_base": "https://host:8000/v1"}
    assert manifest["evidence"]["data"] == {"location": "ratings.jsonl", "also": "ratings.csv"}


def test_addresses_are_kept_without_credentials(tmp_path: Path) -> None:
    for address, kept in {
        "localhost:8000/v1/": "localhost:8000/v1/",
        "https://key@host/a@b?k=1#x": "https://host/a@b",
        "user:p%40ss@host": "host",
        "http://host?api_key=secret": "http://host",
        "https://key@gateway/http://host/v1": "https://gateway/http://host/v1",
        None: None,
    }.items():
        folder = write(tmp_path / "x", lm={"spec": "openai/m", "api_base": address})
        assert read(folder).manifest["lm"].get("api_base") == kept


def test_an_export_replaces_itself_keeps_another_program_and_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path / "x", evidence={"n": 1})
    first = read(write(tmp_path / "x", evidence={"n": 2}))
    assert first.manifest["evidence"] == {"n": 2}
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "x", evidence={"agreement": float("nan")})
    assert read(tmp_path / "x").manifest["evidence"] == {"n": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    other = CompiledJudge(TASK, {"tone": AspectJudge(build("debate", JUDGES["single"].config))})
    write(tmp_path / "x", other)
    assert list(read(tmp_path / "x").judge.aspects) == ["tone"]
    assert read(tmp_path / f"x.{first.fingerprint[:8]}").fingerprint == first.fingerprint
