"""Task files: what they become, and how the ones that cannot be used are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files.task_file import RESERVED, find_task, read_task
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


BAD: list[tuple[str, str, str | None, int | None, list[str]]] = [
    ("not TOML", HEAD + "low 1\n", None, 4, ["not valid TOML", "column 5"]),
    ("key twice", GOOD + "high = 6\n", None, 10, ["not valid TOML"]),
    ("no name", GOOD.replace('name = "support"\n', ""), "name", None, ["add name at the top"]),
    ("blank label", GOOD.replace("customer message", " "), "source_label", None, ["not empty"]),
    ("label is a number", GOOD.replace('"reply"', "3"), "candidate_label", None, ["a text in quotes", "a number: 3"]),
    ("unknown key", "lables = 1\n" + GOOD, "lables", None, ["unknown field", "one of name, source_label"]),
    ("misspelt key", 'candidat_label = "x"\n' + GOOD, "candidat_label", None, ["did you mean 'candidate_label'?"]),
    (
        "unknown aspect key",
        GOOD + "max = 5\n",
        "aspects.tone.max",
        None,
        ["one of definition, low, high, step"],
    ),
    ("misspelt aspect key", GOOD + 'defnition = ""\n', "aspects.tone.defnition", None, ["did you mean 'definition'?"]),
    ("no aspects", HEAD, "aspects", None, ["'aspects' is missing"]),
    ("empty aspects", HEAD + "[aspects]\n", "aspects", None, ["at least one aspect", "[aspects.NAME]"]),
    ("aspect is a text", HEAD + '[aspects]\ntone = "kind"\n', "aspects.tone", None, ["a table [aspects.tone]"]),
    ("no high", GOOD.replace("high = 5\n", ""), "aspects.tone.high", None, ["add high to [aspects.tone]"]),
    (
        "low is a text",
        GOOD.replace("low = 1", 'low = "1"'),
        "aspects.tone.low",
        None,
        ["number without quotes"],
    ),
    ("source is a text", GOOD + 'source = "no"\n', "aspects.tone.source", None, ["true or false"]),
    ("high is true", GOOD.replace("high = 5", "high = true"), "aspects.tone.high", None, ["found:    true"]),
    ("upside down", GOOD.replace("low = 1", "low = 9"), "aspects.tone", None, ["low < high", "low=9, high=5"]),
    ("step too wide", GOOD + "step = 5\n", "aspects.tone", None, ["0 < step <= high - low"]),
    (
        "infinite",
        GOOD.replace("high = 5", "high = inf"),
        "aspects.tone.high",
        None,
        ["a finite number"],
    ),
    ("reserved name", GOOD.replace("aspects.tone", "aspects.text"), "aspects", None, ["'text' cannot be the name"]),
    ("odd name", GOOD.replace("aspects.tone", 'aspects."a/b"'), "aspects", None, ["'a/b'", "letters, digits"]),
]


@pytest.mark.parametrize(("name", "text", "field", "line", "words"), BAD, ids=[row[0] for row in BAD])
def test_bad_task_files_are_refused_with_their_place(
    tmp_path: Path, name: str, text: str, field: str | None, line: int | None, words: list[str]
) -> None:
    path = tmp_path / "support.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_task(path)
    assert caught.value.file == str(path)
    assert caught.value.field == field
    if line is not None:
        assert caught.value.line == line
    for word in words:
        assert word in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "support.toml"
    path.write_bytes(GOOD.replace("reply", "r\xe9ply").encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_task(path)


def test_a_missing_task_file_is_answered_with_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "support.toml").write_text(GOOD)
    with pytest.raises(InputError, match=r"(?s)no such task file.*did you mean 'support\.toml'"):
        find_task("suport.toml", tmp_path)


def test_built_in_names_come_before_files() -> None:
    assert find_task("summarization") is TASKS["summarization"]
    with pytest.raises(InputError, match=r"(?s)unknown task 'dialog'.*did you mean 'dialogue'"):
        find_task("dialog")


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
    assert [scale.at(value, "whole") for value in (0.1, 0.15, 0.25, 0.3)] == [0.1, 0.1, 0.3, 0.3]


def test_a_scale_is_told_to_the_last_digit() -> None:
    assert str(Scale(0, 1234567)) == "0 to 1234567"
