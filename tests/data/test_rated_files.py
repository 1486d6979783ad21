"""What people's own files mean: the project's JSON lines, and tables as other programs and other people write them."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format
from debate_judge.data.files.groups import iter_groups, load
from debate_judge.data.schema import Candidate, Origin, RatedGroup, Scale, group_to_json
from debate_judge.data.splits import split
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from debate_judge.runs.draft import Draft, draft_mapping
from tests.data.files_of_rows import TASK, written


def record(name: str = "g", **changes: Any) -> dict[str, Any]:
    return {"group": name, "source": f"About {name}.", "candidates": [{"id": "a", "text": "x"}], **changes}


def test_all_fields_of_a_line(tmp_path: Path) -> None:
    path = written(
        tmp_path / "f.jsonl",
        {
            "group": 7,
            "task": "dialogue",
            "source": "hi\n",
            "context": "a fact",
            "references": ["hello", "hey"],
            "split": "ignored",
            "candidates": [{"id": 1, "text": " yo ", "ratings": {"overall": [1, 2.5], "coherence": None}, "note": 0}],
        },
    )
    corpus = load(path)
    (group,) = corpus.groups
    assert (group.id, group.source, group.context, group.references) == ("7", "hi\n", "a fact", ("hello", "hey"))
    assert group.candidates == (Candidate("1", " yo ", {"overall": (1.0, 2.5)}),)
    assert group.candidates[0].rating("overall") == 1.75
    assert corpus.task is DIALOGUE
    assert corpus.origin == Origin("f", str(path))


def test_comments_are_one_text_or_several_per_aspect_and_are_written_and_digested(tmp_path: Path) -> None:
    inputs = ({"tone": "curt", "solved": ["partly", "", " "]}, {"tone": None, "solved": []}, None)
    lines = [
        record(name, candidates=[{"id": "a", "text": "x", "comments": comments}])
        for name, comments in zip("ghi", inputs, strict=True)
    ]
    corpus = load(written(tmp_path / "f.jsonl", *lines), TASK)
    comments = [group.candidates[0].comments for group in corpus.groups]
    assert comments == [{"tone": ("curt",), "solved": ("partly",)}, {}, {}]
    reloaded = load(written(tmp_path / "again.jsonl", *(group_to_json(g) for g in corpus.groups)), TASK)
    assert (reloaded.groups, reloaded.digest) == (corpus.groups, corpus.digest)
    plain, commented = (load(written(tmp_path / "one.jsonl", line), TASK) for line in (record("g"), lines[0]))
    assert plain.digest != commented.digest
    assert "comments" not in str(group_to_json(plain.groups[0]))


def test_a_table_has_one_row_per_candidate(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(
        "group,source,context,candidate,text,reference,tone,solved\r\n"
        'g1,"Where, please,\nis it?",policy,a,"Over ""there"".",Here.,4;5;4,yes\r\n'
        'g1,"Where, please,\nis it?",policy,b,No idea.,There.,2.5,\r\n'
        "\r\n"
        "g2,When?,,a,Soon.,,,0\r\n",
        newline="",
    )
    first, second = iter_groups(path, TASK)
    assert first.group == RatedGroup(
        "g1",
        "Where, please,\nis it?",
        (
            Candidate("a", 'Over "there".', {"tone": (4.0, 5.0, 4.0), "solved": (1.0,)}),
            Candidate("b", "No idea.", {"tone": (2.5,)}),
        ),
        "policy",
        ("Here.", "There."),
    )
    assert second.group == RatedGroup("g2", "When?", (Candidate("a", "Soon.", {"solved": (0.0,)}),))
    assert (first.record.line, second.record.line) == (2, 7)


def test_a_chosen_task_keeps_its_lines_and_those_without_a_task_in_the_callers_wording(tmp_path: Path) -> None:
    path = written(tmp_path / "f.jsonl", record("a", task="dialogue"), record("b", task="summarization"), record("c"))
    worded = replace(DIALOGUE, source_label="chat")
    for task, ids, used in (("dialogue", "ac", DIALOGUE), (SUMMARIZATION, "bc", SUMMARIZATION), (worded, "ac", worded)):
        corpus = load(path, task)
        assert ("".join(g.id for g in corpus.groups), corpus.task) == (ids, used)


def test_a_task_file_is_found_beside_the_data(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "tone.toml").write_text(
        'name = "tone"\nsource_label = "message"\ncandidate_label = "reply"\n'
        '[aspects.tone]\ndefinition = "Is it kind?"\nlow = 0\nhigh = 10\n'
    )
    candidate = {"id": "a", "text": "x", "ratings": {"tone": 9}}
    path = written(tmp_path / "f.jsonl", record(task="tasks/tone.toml", candidates=[candidate]))
    corpus = load(path)
    assert corpus.task.aspect("tone").scale == Scale(0, 10)
    worded = replace(corpus.task, source_label="chat")
    assert load(path, worded).task is worded


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_reading_takes_the_memory_of_one_group(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"f{suffix}"
    text = "word " * 2000
    if suffix == ".jsonl":
        written(path, *(record(str(i), source=f"{i} {text}") for i in range(200)))
    else:
        path.write_text("source,text\n" + "".join(f"{i} {text},x\n" for i in range(200)))
    tracemalloc.start()
    count = sum(1 for _ in iter_groups(path, SUMMARIZATION))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200
    assert path.stat().st_size > 2_000_000
    assert peak < 1_000_000


Ratings = dict[str, tuple[float, ...]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


def candidates(file: Path, columns: Sequence[str] = (), task: Any = TASK) -> list[Candidate]:
    return [c for group in load(file, task, ColumnNames.parse(columns)).groups for c in group.candidates]


def drafted(file: Path, text: str, columns: Sequence[str] = ()) -> Draft:
    file.write_text(text)
    return draft_mapping(detect_format(file), ColumnNames.parse(columns), file.stem)


def scales(draft: Draft) -> dict[str, Scale]:
    return {aspect.name: aspect.scale for aspect in draft.aspects}


def table(values: Sequence[str], column: str = "tone") -> str:
    """A table of texts with the ratings of a column."""
    return f"text,{column}\n" + "".join(f'"text {i}","{value}"\n' for i, value in enumerate(values))


# --- what is read ---


def tone(*ratings: float) -> Ratings:
    return {"tone": ratings}


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        # Decimal commas that cannot divide two ratings.
        (table(["3,50", "4,25", "4", ""]), [tone(3.5), tone(4.25), tone(4), {}], []),
        # Words for what is missing.
        (table(["1", "n/a", "-", "None", "2;N/A;4", "2;4;"]), [tone(1), {}, {}, {}, tone(2, 4), tone(2, 4)], []),
        # Names of columns.
        ("Source ,TEXT,Tone\ns,x,4\n", [tone(4)], []),
        (",text,tone,\n0,x,4,\n1,y,2,\n", [tone(4), tone(2)], ["'column 1 (no name)'"]),
        # A column for each rater.
        (
            "text,tone,tone_1,tone_2,tone rater 3,solved_A,solved_B\nx,3.5,4,3,,pass,Fail\n",
            [tone(4, 3) | {"solved": (1.0, 0.0)}],
            ["not read: 'tone'"],
        ),
        ("text,tone (rater 1),tone (rater 2),solved (annotator A)\nx,4,2,y\n", [tone(4, 2) | {"solved": (1.0,)}], []),
        # A row for each candidate and rater.
        (
            "group,source,candidate,text,rater,tone,solved\ng,s,a,x,1,4,yes\ng,s,b,y,1,2,\ng,s,a,x,2,5,no\n",
            [tone(4, 5) | {"solved": (1.0, 0.0)}, tone(2)],
            [],
        ),
        # A row for each rating, in the order in which raters are met, whatever the order of the rows.
        (
            "source,text,aspect,rating,rater\ns,x,tone,4,ann\nt,z,tone,1,bob\ns,y,Tone,2,bob\ns,x,solved,no,ann\n"
            "s,x,tone,3,bob\ns,y,tone,5,ann\n",
            [tone(4, 3) | {"solved": (0.0,)}, tone(5, 2), tone(1)],
            [],
        ),
        # A column with a name of ours that is not read, and what is no misspelt name.
        ("text,tone,ratings\nx,4,3\n", [tone(4)], ["not read: 'ratings'"]),
        ("text,tone,duration\nx,4,1\n", [tone(4)], []),
    ],
)  # fmt: skip
def test_ratings_are_read(
    file: Path, text: str, expected: list[Ratings], words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(text)
    assert [c.ratings for c in candidates(file)] == expected
    assert all(caplog.text.count(word) == 1 for word in words)
    assert "did you mean" not in caplog.text


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("question,answer,score_tone\ns,x,4\n", ["source=question", "text=answer", "tone=score_tone"], tone(4)),
        ("text,Rater 1,Rater 2\nx,4,5\n", ["tone=Rater 1+Rater 2"], tone(4, 5)),
        (table(["4,5;3,5"]).replace("text 0", "x"), ["decimal=comma"], tone(4.5, 3.5)),
    ],
)
def test_names_of_people_are_given_ours(
    file: Path, text: str, columns: list[str], expected: Ratings, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(text)
    named = ColumnNames.parse(columns)
    for names, task in ((columns, TASK), ([], replace(TASK, columns=named.to_table()))):
        (candidate,) = candidates(file, names, task)
        assert (candidate.text, candidate.ratings) == ("x", expected)
    assert data.load(str(file), TASK, columns).groups
    assert not caplog.text


def test_names_are_given_ours_at_every_level_and_by_a_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answer = {"id": 1, "answer": "x", "ratings": {"score_tone": [4, 5]}}
    (tmp_path / "a.jsonl").write_text(json.dumps({"group": "g", "question": "s", "candidates": [answer]}))
    columns = ["source=question", "text=answer", "tone=ratings.score_tone"]
    assert candidates(tmp_path / "a.jsonl", columns) == [Candidate("1", "x", {"tone": (4.0, 5.0)})]
    labels = {"tone": 4, "why": "because", "note": "so"}
    record = {"data": {"question": "s", "answer": {"body": "x"}}, "labels": labels}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n" + json.dumps({**record, "labels": {"tone": 9}}))
    columns = ["source=data.question", "text=data.answer.body", "tone=labels.tone"]
    draft = draft_mapping(detect_format(tmp_path / "a.jsonl"), ColumnNames.parse(columns), "a")
    assert scales(draft) == {"tone": Scale(1, 10)}
    columns += ["comments.tone=labels.why+labels.note"]
    candidate, _ = candidates(tmp_path / "a.jsonl", columns, draft.task())
    assert (candidate.text, candidate.ratings, candidate.comments) == (
        "x",
        {"tone": (4.0,)},
        {"tone": ("because", "so")},
    )


@pytest.mark.parametrize(
    ("text", "columns", "comments"),
    [
        ("text,tone_1,tone_2,comments.tone_1,Comments.Tone_2,why\nx,4,5,kind,warm,so\n", [], ("kind", "warm")),
        ("text,tone,why,note\nx,4,because,so\n", ["comments.tone=why+note"], ("because", "so")),
        ("text,aspect,rating,comment\nx,tone,4,kind\n", [], ("kind",)),
        ('text,tone,comments.tone\nx,4,"curt; but 5 at the end"\n', [], ("curt; but 5 at the end",)),
    ],
)
def test_comments_are_read(file: Path, text: str, columns: list[str], comments: tuple[str, ...]) -> None:
    file.write_text(text)
    assert candidates(file, columns)[0].comments == {"tone": comments}


@pytest.mark.parametrize(
    ("repeated", "values"),
    [("mean", (3, 5)), ("first", (2, 5)), ("last", (4, 5)), ("raters", (2, 4, 5)), ("separate", (2, 5))],
)
def test_further_ratings_of_a_rater_become_what_is_said(file: Path, repeated: str, values: tuple[float, ...]) -> None:
    file.write_text("source,text,rater,tone\ns,x,ann,2\ns,x,ann,4\ns,x,bob,5\n")
    assert candidates(file, [f"repeated={repeated}"])[0].ratings == tone(*values)
    with pytest.raises(InputError, match="'ann' has rated tone of this candidate twice, also in line 2"):
        candidates(file)


def test_rows_with_one_source_are_one_group_and_texts_without_one_are_groups_of_their_own(file: Path) -> None:
    file.write_text("source,text,tone\ns,x,4\nt,z,1\ns ,y,2\n")
    groups = load(file, TASK).groups
    assert [(g.id, [c.text for c in g.candidates]) for g in groups] == [("1", ["x", "y"]), ("2", ["z"])]
    rows = [*(f"Reply number {i}.,{1 + i % 5}" for i in range(60)), "Reply number 0.,2"]
    file.write_text("\n".join(["text,tone", *rows]))
    corpus = load(file, TASK)
    assert (len(corpus.groups), {group.source for group in corpus.groups}, corpus.grouped) == (61, {""}, False)
    assert split(corpus, aspects=["tone"], seed=0).joined == (("1", "61"),), "equal texts stay in one part"


# --- what is guessed ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (table(["Y", "n"]), {"tone": Scale(0, 1)}),
        # A code for what is missing is no end of the scale.
        *((table([*"12345" * 3, code, code]), {"tone": scale})
          for code, scale in (("-99", Scale(1, 5)), ("99", Scale(1, 5)), ("6", Scale(1, 7)))),
        # A scale in the name of a column.
        (table(["3", "4", "5"], "Tone (1-7)"), {"Tone": Scale(1, 7)}),
        (table(["3", "4", "5"], "Tone (1–3)"), {"Tone": Scale(1, 5)}),
        # A word that may mean something else is not taken for a role.
        ("text,quality,score\nx,high,2\ny,low,4\nz,high,1\n", {"score": Scale(1, 4)}),
        (table(["1", "4", "5"], "ratings"), {"ratings": Scale(1, 5)}),
        # Numbered questions are aspects and not raters; spellings of an aspect are one.
        ("text,Question 1,Question 2,tone_1,tone_2\nx,4,5,3,2\ny,2,1,1,3\n",
         {"Question 1": Scale(1, 4), "Question 2": Scale(1, 5), "tone": Scale(1, 3)}),
        ("text,aspect,rating\nx,Tone,4\ny,tone,2\nz,TONE ,1\n", {"Tone": Scale(1, 4)}),
        *((table(values.split()), {"tone": scale}) for values, scale in (
            ("0.25 0.5 1", Scale(0, 1, 0.01)), ("1 2 2.67", Scale(1, 3)), ("10 55 90", Scale(1, 100)),
            ("-0.5 0.25", Scale(-1, 1)), ("150 320.5", Scale(150, 321)))),
        # Names that a task file and a terminal can have.
        ("text,tone?,tone!,???,to\x1b[2Jne\nx,1,3,1,3\ny,2,5,2,5\n",
         {"tone": Scale(1, 3), "tone_2": Scale(1, 5), "aspect": Scale(1, 3), "to_2Jne": Scale(1, 5)}),
        ("text,criterion,score\nx,tone,0\ny,tone,2\nx,length,1\ny,length,2\n",
         {"tone": Scale(0, 2), "length": Scale(1, 3)}),
    ],
)  # fmt: skip
def test_aspects_and_scales_are_guessed(file: Path, text: str, expected: dict[str, Scale]) -> None:
    assert scales(drafted(file, text)) == expected


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("other", ["4/5", "3/5"], "4 and not 4/5"),
        ("other", ["80%", "60%"], "80 and not 80%"),
        ("other", ["4,5", "3,4"], "4;5"),
        *((name, ["4.5", "1.5"], "") for name in ("tone_mean", "avg tone", "Tone SD")),
    ],
)
def test_a_column_that_is_no_rating_is_quoted(file: Path, column: str, values: list[str], words: str) -> None:
    rows = [f'x,{i + 1},{i + 1},"{value}"\n' for i, value in enumerate(values)]
    draft = drafted(file, f"text,tone_1,tone_2,{column}\n" + "".join(rows))
    assert set(scales(draft)) == {"tone"}
    assert words in dict(draft.understood)[column]


def test_decimal_commas_are_drafted_where_not_all_can_be_two_ratings(file: Path) -> None:
    draft = drafted(file, table(["3,5", "4", "2,5", ""]))
    assert (draft.settings, scales(draft)) == ({"decimal": "comma"}, {"tone": Scale(1, 4)})
    assert [c.ratings for c in candidates(file, task=draft.task())] == [tone(3.5), tone(4), tone(2.5), {}]
    assert not drafted(file, table(["4", "5"])).settings


# --- what is said ---


def bad_cells(file: Path, task: Any = TASK) -> list[tuple[int | None, str | None]]:
    with pytest.raises(InputError) as caught:
        load(file, task)
    return [(error.line, error.field) for error in (caught.value, *caught.value.others)]


def test_bad_cells_are_all_named_and_hide_no_aspect(file: Path) -> None:
    draft = drafted(file, table(["1", "4", "5", "2", "3", "3x"] * 5))
    assert scales(draft) == {"tone": Scale(1, 5)}
    assert bad_cells(file, draft.task()) == [(line, "tone") for line in (7, 13, 19, 25, 31)]
    file.write_text("source,text,tone\ns,x,4\nt,y,9\n,z,3\ns,,3\nt,w,often\n")
    assert bad_cells(file) == [(3, "tone"), (4, "source"), (5, "text"), (6, "tone")]
    file.write_text(table(["9"] * 30))
    assert bad_cells(file) == [(line, "tone") for line in range(2, 22)]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("tone_1,tone_2", {"tone": ["tone_1", "tone_2"]}),
        ("Rater 1,Rater 2", {"rating": ["Rater 1", "Rater 2"]}),
        ("rater1_tone,rater1_wit,rater2_tone,rater2_wit", {"tone": ["rater{rater}_tone"], "wit": ["rater{rater}_wit"]}),
        # A shared word is no rater.
        ("Written_AI,Written_Human", {"Written_AI": ["Written_AI"], "Written_Human": ["Written_Human"]}),
        ("Safety (1-5),Accuracy (1-5)", {"Safety": ["Safety (1-5)"], "Accuracy": ["Accuracy (1-5)"]}),
    ],
)
def test_columns_of_raters_are_one_aspect(file: Path, header: str, columns: dict[str, list[str]]) -> None:
    rows = [",".join([text, *values[: header.count(",") + 1]]) for text, values in (("x", "4532"), ("y", "2113"))]
    draft = drafted(file, "\n".join([f"text,{header}", *rows]))
    assert {aspect.name: aspect.columns for aspect in draft.aspects} == columns
    assert all(len(c.ratings) == len(columns) for c in candidates(file, task=draft.task()))


def test_what_is_not_read_is_told_once_at_every_level_and_after_the_first_group_of_a_stream(
    tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rated = [
        {"id": "a", "text": "x", "ratings": {"tonne": 4}},
        {"id": "a", "text": "y", "ratings": {"wit": 2}, "ms": 3},
    ]
    lines = [{"group": f"g{i}", "source": f"s{i}", "lang": "en", "candidates": [c]} for i, c in enumerate(rated)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert load(tmp_path / "a.jsonl", TASK).rated_aspects() == ()
    (message,) = caplog.messages
    assert {"lang", "ratings.tonne", "ms", "ratings.wit"} == set(re.findall(r"'([\w.]+)'", message)) - {"tone"}
    caplog.clear()
    file.write_text("source;text;contxt\ns;x;c\nt;y;c\n")
    stream = iter_groups(file, TASK)
    assert [next(stream).group.source for _ in range(2)] == ["s", "t"]
    assert "'contxt'" in caplog.text
    assert "semicolons" in caplog.text
    assert len(list(stream)) == 0
    assert len(caplog.records) == 1
