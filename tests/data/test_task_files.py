"""Task files: what they become, and how the ones that cannot be used are refused."""

from __future__ import annotations

from pathlib import Path

from debate_judge.data.files.task_file import RESERVED, read_task
from debate_judge.data.schema import Scale
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION, TASKS

HEAD = 'name = "support"\nsource_label = "customer message"\ncandidate_label = "reply"\n'
TONE = '[aspects.tone]\ndefinition = """\nHow it treats the customer.\n"""\nlow = 1\nhigh = 5\n'
GOOD = HEAD + TONE


def test_a_task_file_becomes_a_task(tmp_path: Path) -> None:
    path = tmp_path / "support.toml"
    path.write_text(GOOD + '[aspects."well solved"]\ndefinition = "Solved?"\nlow = -1\nhigh = 1.5\nstep = 0.5\n')
    task = read_task(path)
    assert (task.name, task.source_label, task.candidate_label) == ("support", "customer message", "reply")
    assert task.context_label == "background"
    # Scores keep to a step that is stated.
    assert [(a.name, a.scale) for a in task.aspects] == [
        ("tone", Scale(1, 5, 1)),
        ("well solved", Scale(-1, 1.5, 0.5, on_steps=True)),
    ]
    assert task.aspect("tone").definition == "How it treats the customer."


def test_an_aspect_may_be_judged_without_the_source(tmp_path: Path) -> None:
    path = tmp_path / "support.toml"
    path.write_text(GOOD + 'source = false\n[aspects.help]\ndefinition = "Solved?"\nlow = 1\nhigh = 5\nsource = true\n')
    assert [aspect.source for aspect in read_task(path).aspects] == [False, True]
    assert [aspect.name for aspect in TASKS["summarization"].aspects if not aspect.source] == ["fluency"]


def test_the_context_has_its_label(tmp_path: Path) -> None:
    path = tmp_path / "support.toml"
    path.write_text('context_label = "policy"\n' + GOOD)
    assert read_task(path).context_label == "policy"


def test_built_in_tasks_have_the_aspects_and_scales_of_the_public_sets() -> None:
    assert {name: {a.name: str(a.scale) for a in task.aspects} for name, task in TASKS.items()} == {
        "summarization": dict.fromkeys(("coherence", "consistency", "fluency", "relevance"), "1 to 5"),
        "dialogue": {
            "naturalness": "1 to 3",
            "coherence": "1 to 3",
            "engagingness": "1 to 3",
            "groundedness": "0 to 1",
            "understandability": "0 to 1",
            "overall": "1 to 5",
        },
        "pairs": {"preference": "0 to 1"},
    }


def test_built_in_rubrics_name_both_ends_of_their_scale_and_clash_with_no_column() -> None:
    # Texts that were compared are graded on more than one scale, so its ends have no numbers.
    for task in (SUMMARIZATION, DIALOGUE):
        for aspect in task.aspects:
            sentences = aspect.definition.replace("?", ".").count(". ") + 1
            assert 2 <= sentences <= 7, aspect.name
            for end in (aspect.scale.low, aspect.scale.high):
                assert f" {end:g} " in aspect.definition, aspect.name
            assert aspect.name not in RESERVED


def test_a_scale_of_decimal_fractions_has_its_two_values() -> None:
    scale = Scale(0.1, 0.3, 0.2)
    assert scale.binary
    assert [scale.rounded(value, "whole") for value in (0.1, 0.15, 0.25, 0.3)] == [0.1, 0.1, 0.3, 0.3]


def test_a_scale_is_told_to_the_last_digit() -> None:
    assert str(Scale(0, 1234567)) == "0 to 1234567"
