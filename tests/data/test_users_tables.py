"""Tables as other programs and other people write them: what is read, what is guessed, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import ColumnNames
from debate_judge.data.files.formats import detect_format, read_records
from debate_judge.data.files.groups import load
from debate_judge.data.files.task_file import GuessedTask, guess_task
from debate_judge.data.schema import Scale
from tests.data.files_of_rows import TASK, separated


def guessed(path: Path, text: str) -> GuessedTask:
    path.write_text(text)
    return guess_task(read_records(path), ColumnNames(), path.stem)


def scales(guess: GuessedTask) -> dict[str, Scale]:
    return {aspect.name: aspect.scale for aspect in guess.task.aspects}


def table(values: list[str], column: str = "accuracy") -> str:
    """A table of texts with the ratings of a column."""
    return f"text,{column}\n" + "".join(f'"text {i}","{value}"\n' for i, value in enumerate(values))


def test_bad_cells_are_all_named_and_hide_no_aspect(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    guess = guessed(path, table(["1", "4", "5", "2", "3", "3x"] * 5))
    assert scales(guess) == {"accuracy": Scale(1, 5)}
    with pytest.raises(InputError, match=r"line 7, field 'accuracy'(?s:.*)3x") as all5:
        load(path, guess.task)
    assert [error.line for error in all5.value.others] == [13, 19, 25, 31]
    path.write_text(table(["9"] * 30))
    with pytest.raises(InputError, match="line 21, field 'accuracy'") as first20:
        load(path, guess.task)
    assert len(first20.value.others) == 19


def test_all_bad_rows_are_named_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("source,text,tone\ns,x,4\nt,y,9\n,z,3\ns,,3\nt,w,often\n")
    with pytest.raises(InputError) as all4:
        load(path, TASK)
    errors = [all4.value, *all4.value.others]
    assert [(error.line, error.field) for error in errors] == [(3, "tone"), (4, "source"), (5, "text"), (6, "tone")]


def test_missing_ratings_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    guess = guessed(path, table(["1", "n/a", "5", "-", "None", "2;N/A;4", "2;4;"]))
    assert scales(guess) == {"accuracy": Scale(1, 5)}
    ratings = [group.candidates[0].ratings.get("accuracy") for group in load(path, guess.task).groups]
    assert ratings == [(1,), None, (5,), None, None, (2, 4), (2, 4)]
    records = tmp_path / "a.jsonl"
    records.write_text(json.dumps({"text": "x", "accuracy": [4, None, 5]}))
    assert load(records, guess.task).groups[0].candidates[0].ratings == {"accuracy": (4.0, 5.0)}


@pytest.mark.parametrize(("values", "remedy"), [(["4/5", "3/5"], "4 and not 4/5"), (["80%", "60%"], "80 and not 80%")])
def test_a_column_that_is_no_rating_is_quoted(tmp_path: Path, values: list[str], remedy: str) -> None:
    both = guessed(
        tmp_path / "b.csv", "text,tone,accuracy\n" + "".join(f"x,{i + 1},{v}\n" for i, v in enumerate(values))
    )
    assert scales(both) == {"tone": Scale(1, 3)}
    assert remedy in both.doubtful["accuracy"]


@pytest.mark.parametrize("values", [["Y", "n"], ["correct", "Incorrect"]])
def test_further_words_are_ratings_on_two_values(tmp_path: Path, values: list[str]) -> None:
    path = tmp_path / "a.csv"
    guess = guessed(path, table(values))
    assert scales(guess) == {"accuracy": Scale(0, 1)}
    assert [c.ratings["accuracy"] for g in load(path, guess.task).groups for c in g.candidates] == [(1.0,), (0.0,)]


def test_a_column_of_one_word_is_no_aspect(tmp_path: Path) -> None:
    assert scales(guessed(tmp_path / "a.csv", "text,state,tone\nx,Good,1\ny,good,2\n")) == {"tone": Scale(1, 3)}


def test_decimal_commas_are_read_where_the_whole_column_has_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    assert scales(guessed(path, table(["3,5", "4", "2,5", ""], "tone"))) == {"tone": Scale(1, 4)}
    ratings = [c.ratings.get("tone") for g in load(path, TASK).groups for c in g.candidates]
    assert ratings == [(3.5,), (4.0,), (2.5,), None]
    assert caplog.text.count("commas in 'tone'") == 1


def test_two_raters_with_a_comma_are_not_guessed_as_fractions(tmp_path: Path) -> None:
    both = guessed(tmp_path / "b.csv", 'text,tone,accuracy\nx,1,"4,5"\ny,2,"3,4"\n')
    assert scales(both) == {"tone": Scale(1, 3)}
    assert "4;5" in both.doubtful["accuracy"]
    with pytest.raises(InputError, match="line 2, field 'accuracy'"):
        next(read_records(tmp_path / "b.csv")).number("accuracy")


@pytest.mark.parametrize(
    ("values", "ratings"),
    [
        (["3,50", "4,25"], [(3.5,), (4.25,)]),
        (["4,0", "3,5"], [(4.0,), (3.5,)]),
        (["4,5", "3,05"], [(4.5,), (3.05,)]),
        (["4,5;3,5", "2,5"], [(4.5, 3.5), (2.5,)]),
        (["4,5", "3"], [(4.5,), (3.0,)]),
    ],
)
def test_commas_that_divide_no_two_ratings_are_decimal(
    tmp_path: Path, values: list[str], ratings: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(table(values, "tone"))
    assert [c.ratings["tone"] for g in load(path, TASK).groups for c in g.candidates] == ratings
    assert caplog.text.count("commas in 'tone'") == 1


LONG = "question,answer,criterion,score,annotator,rationale\n" + "".join(
    f"q{i},a{i},{criterion},{score},{annotator},because {i}\n"
    for i in range(3)
    for criterion, score in (("tone", i + 2), ("truth", 10 * (i + 3)))
    for annotator in ("ann", "bob")
)


def test_a_table_of_ratings_with_other_names_is_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    guess = guessed(path, LONG)
    assert guess.columns.renamed == {
        "source": "question",
        "text": "answer",
        "aspect": "criterion",
        "rating": "score",
        "rater": "annotator",
        "comment": "rationale",
    }
    assert scales(guess) == {"tone": Scale(1, 4), "truth": Scale(1, 100)}
    groups = load(path, guess.task, guess.columns).groups
    assert [len(group.candidates) for group in groups] == [1, 1, 1]
    assert groups[0].candidates[0].ratings == {"tone": (2.0, 2.0), "truth": (30.0, 30.0)}
    assert groups[0].candidates[0].comments["tone"] == ("because 0", "because 0")


def test_aspects_of_such_a_table_need_names_that_a_task_file_can_have(tmp_path: Path) -> None:
    text = "text,criterion,score\n" + "".join(
        f"x,{aspect},{i}\ny,{aspect},2\n" for i, aspect in enumerate(["tone", "length"])
    )
    assert set(scales(guessed(tmp_path / "a.csv", text))) == {"tone", "length"}


def test_raters_beside_columns_of_aspects_are_taken_where_texts_repeat(tmp_path: Path) -> None:
    text = "text,annotator,tone\n" + "".join(f"x{i},{who},{i % 4 + 1}\n" for i in range(8) for who in (1, 2, 3))
    guess = guessed(tmp_path / "a.csv", text)
    assert (scales(guess), guess.columns.renamed) == ({"tone": Scale(1, 4)}, {"rater": "annotator"})
    assert all(len(g.candidates) == 1 for g in load(tmp_path / "a.csv", guess.task, guess.columns).groups)


@pytest.mark.parametrize(
    ("text", "aspects"),
    [
        # An aspect may be called score or quality; a rater's column may hold ratings, and each text one rater.
        ("text,score,quality\nx,1,2\ny,3,4\n", {"score", "quality"}),
        ("text,quality,score\nx,high,2\ny,low,4\nz,high,1\n", {"score"}),
        ("text,judge,tone\nx,1,2\ny,3,4\n", {"judge", "tone"}),
        ("text,annotator,tone\nx,1,2\ny,2,4\n", {"tone"}),
        ("text,user,tone\nx,u,2\nx,u,4\n", {"tone"}),
    ],
)
def test_a_word_that_may_mean_something_else_is_not_taken(tmp_path: Path, text: str, aspects: set[str]) -> None:
    guess = guessed(tmp_path / "a.csv", text)
    assert (set(scales(guess)), guess.columns.renamed) == (aspects, {})


def test_other_names_are_suggested_where_they_can_help(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    header = ("source", "text", "tone", "solved", "annotator", "score", "rationale", "date")
    load(separated(tmp_path / "a.csv", [header, ("s", "x", 4, "y", "ann", 3, "kind", "May")], ","), TASK)
    assert "--columns rater=annotator" in caplog.text
    assert "--columns comments.ASPECT=rationale" in caplog.text
    assert "'score' (holds numbers), " in caplog.text, "a rating needs a column with its aspect"
    caplog.clear()
    load(separated(tmp_path / "b.csv", [("source", "text", "criterion", "score"), ("s", "x", "tone", 4)], ","), TASK)
    assert "--columns aspect=criterion" in caplog.text
    assert "--columns rating=score" in caplog.text


def test_what_is_no_misspelt_name_is_not_taken_for_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,aspect,rating,duration\nx,tone,4,1\nx,verdict,1,2\nx,solvd,1,2\n")
    load(path, TASK)
    assert "did you mean ratings of 'solved'" in caplog.text
    assert caplog.text.count("did you mean") == 1
    path.write_text("text,tone,duration\nx,4,1\n")
    load(path, TASK)
    assert caplog.text.count("did you mean") == 1


def test_a_column_without_a_name_is_left_out_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.csv"
    guess = guessed(path, ",text,tone,\n0,x,4,\n1,y,2,\n")
    assert scales(guess) == {"tone": Scale(1, 4)}
    assert [c.ratings for g in load(path, TASK).groups for c in g.candidates] == [{"tone": (4.0,)}, {"tone": (2.0,)}]
    assert "'column 1 (no name)'" in caplog.text


@pytest.mark.parametrize("mark", [";", "\t", "|", "^", ","])
def test_the_separator_that_excel_names_is_obeyed(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"SEP={mark}\r\ntext{mark}tone\r\nx y{mark}4\r\n")
    (record,) = read_records(path)
    assert (record.line, record.values) == (3, {"text": "x y", "tone": "4"})


def test_a_vertical_bar_in_a_name_divides_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("source,text,tone,note (a|b|c|d|e)\ns,x,4,b\n")
    assert load(path, TASK).groups[0].candidates[0].ratings == {"tone": (4.0,)}
    assert detect_format(path).is_default


def test_raters_in_parentheses_are_raters(tmp_path: Path) -> None:
    header = ("text", "tone (rater 1)", "tone (Rater 2)", "solved (annotator A)")
    table = [tuple(name.replace("Rater", "rater") for name in header), ("x", 4, 2, "y")]
    (group,) = load(separated(tmp_path / "a.csv", table, ","), TASK).groups
    assert group.candidates[0].ratings == {"tone": (4.0, 2.0), "solved": (1.0,)}


def test_half_points_suggest_their_step(tmp_path: Path) -> None:
    assert "# step = 0.5 " in guessed(tmp_path / "a.csv", table(["1", "1.5", "3"])).toml()
    assert "# step = 1 " in guessed(tmp_path / "a.csv", table(["1", "1.33", "3"])).toml()


@pytest.mark.parametrize(
    ("column", "values", "name", "scale"),
    [
        ("Tone (1-7)", ["3", "4", "5"], "Tone", Scale(1, 7)),
        ("Tone [0 to 10]", ["3", "4", "5"], "Tone", Scale(0, 10)),
        ("Tone (1–3)", ["3", "4", "5"], "Tone", Scale(1, 5)),
    ],
    ids=["parentheses", "brackets", "values beyond it"],
)
def test_a_scale_in_the_name_of_a_column_is_its_scale(
    tmp_path: Path, column: str, values: list[str], name: str, scale: Scale
) -> None:
    guess = guessed(tmp_path / "a.csv", table(values, column))
    assert scales(guess) == {name: scale}
    assert guess.columns.renamed[name] == column


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "around", [{"rows": ...}, {"version": "[1: {", "data": ...}, {"cases": ...}], ids=["rows", "data", "cases"]
)
def test_records_in_a_list_of_one_object(tmp_path: Path, around: dict[str, object], indent: int | None) -> None:
    held = [{"text": "x", "tone": 4}, {"text": "y", "tone": 2}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({name: held if v is ... else v for name, v in around.items()}, indent=indent))
    assert [(g.candidates[0].text, g.candidates[0].ratings) for g in load(path, TASK).groups] == [
        ("x", {"tone": (4.0,)}),
        ("y", {"tone": (2.0,)}),
    ]
    assert f"the list {list(around)[-1]!r} of one JSON object" in detect_format(path).format
    lines = [record.line for record in read_records(path)]
    assert lines == ([1, 2] if indent is None else [len(around) + 2, len(around) + 6])


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_single_group_is_no_list_of_records(tmp_path: Path, name: str) -> None:
    group = {"group": "g", "source": "s", "items": [{"id": "a", "text": "x", "ratings": {"tone": 4}}]}
    (tmp_path / name).write_text(json.dumps(group))
    (found,) = load(tmp_path / name, TASK, ColumnNames.parse(["candidates=items"])).groups
    assert (found.source, len(found.candidates)) == ("s", 1)


def test_raters_in_objects_of_ratings_are_one_aspect(tmp_path: Path) -> None:
    candidates = [{"id": i, "text": f"x{i}", "ms": i, "ratings": {"tone_1": i, "tone_2": 5 - i}} for i in (1, 2)]
    path = tmp_path / "a.jsonl"
    guess = guessed(path, json.dumps({"group": "g", "source": "s", "year": 2024, "candidates": candidates}))
    assert scales(guess) == {"tone": Scale(1, 4)}
    (group,) = load(path, guess.task, guess.columns).groups
    assert [candidate.ratings for candidate in group.candidates] == [{"tone": (1.0, 4.0)}, {"tone": (2.0, 3.0)}]


def test_a_field_without_a_name_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"": "dev", "text": "x", "tone": 4}))
    assert load(path, TASK).groups[0].candidates[0].ratings == {"tone": (4.0,)}


@pytest.mark.parametrize("name", ["text", "Answer"])
def test_a_single_record_is_no_list_of_records(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({name: "x", "tone": 4, "items": [{"sku": 7}]}))
    (group,) = load(path, TASK, ColumnNames.parse([f"text={name}"])).groups
    assert (group.candidates[0].text, group.candidates[0].ratings) == ("x", {"tone": (4.0,)})


@pytest.mark.parametrize(
    "name",
    ["annotator_email", "rated_by", "labeler", "Rater Name", "completed-by", "worker id", "WorkerId", "PROLIFIC_PID"],
)
def test_a_column_with_a_name_of_raters_is_taken_where_texts_repeat(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"text {i},r{j},{(i + j) % 5 + 1}\n" for j in range(3) for i in range(8)]
    path = tmp_path / "a.csv"
    path.write_text(f"text,{name},tone\n" + "".join(lines))
    candidates = [c for group in load(path, TASK).groups for c in group.candidates]
    assert [len(c.ratings["tone"]) for c in candidates] == [3] * 8
    assert f"{name!r} is" in caplog.text
    assert guessed(path, path.read_text()).columns.renamed == {"rater": name}


@pytest.mark.parametrize(
    ("header", "entry"),
    [
        ("tone (Ann),tone (Bob)", "'tone=tone (Ann)+tone (Bob)'"),
        ("tone_ann,tone_bob", "tone=tone_ann+tone_bob"),
        ("R1 tone,R2 tone", "'tone=R1 tone+R2 tone'"),
        ("S1,S2", "ASPECT=S1+S2"),
    ],
)
def test_columns_that_may_be_raters_of_one_aspect_are_told(
    tmp_path: Path, header: str, entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    guess = guessed(path, f"text,{header}\nx,4,5\ny,2,1\n")
    load(path, guess.task, guess.columns)
    assert f"join them: --columns {entry}" in caplog.text
    caplog.clear()
    load(path, TASK, ColumnNames())
    assert ("join them" in caplog.text) == ("tone" in header)


@pytest.mark.parametrize("name", ["tone_mean", "avg tone", "Tone SD"])
def test_a_statistic_of_an_aspect_is_no_aspect(tmp_path: Path, name: str) -> None:
    guess = guessed(tmp_path / "a.csv", f"text,tone_1,tone_2,{name}\nx,4,5,4.5\ny,2,1,1.5\n")
    assert (set(scales(guess)), set(guess.doubtful)) == ({"tone"}, {name})


@pytest.mark.parametrize(("code", "scale"), [("-99", Scale(1, 5)), ("99", Scale(1, 5)), ("6", Scale(1, 7))])
def test_a_code_for_missing_is_no_end_of_the_scale(tmp_path: Path, code: str, scale: Scale) -> None:
    guess = guessed(tmp_path / "a.csv", table(["1", "2", "3", "4", "5"] * 3 + [code, code]))
    assert scales(guess) == {"accuracy": scale}


def test_repeated_texts_are_asked_about(tmp_path: Path) -> None:
    lines = [f"q{i // 2},text {i},p{j},{(i + j) % 5 + 1},{i}{j}\n" for j in range(3) for i in range(8)]
    path = tmp_path / "a.csv"
    path.write_text("source,text,who,tone,id\n" + "".join(lines))
    rated = load(path, TASK, ColumnNames.parse(["rater=who"]))
    assert {len(c.ratings["tone"]) for g in rated.groups for c in g.candidates} == {3}
    written = load(path, TASK, ColumnNames.parse(["candidate=id"]))
    assert {len(group.candidates) for group in written.groups} == {6}


def test_fields_inside_of_objects_are_named_by_their_path(tmp_path: Path) -> None:
    records = [
        {"data": {"question": "s", "answer": {"body": "x"}}, "labels": {"tone": 4}},
        {"data": {"question": "t", "answer": {"body": "y"}}, "labels": {"tone": 9}},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, records[:1])))
    columns = ColumnNames.parse(["source=data.question", "text=data.answer.body", "tone=labels.tone"])
    (group,) = load(path, TASK, columns).groups
    assert (group.source, group.candidates[0].text, group.candidates[0].ratings) == ("s", "x", {"tone": (4.0,)})
    path.write_text("\n".join(map(json.dumps, records)))
    guess = guess_task(read_records(path), columns, "a")
    assert scales(guess) == {"tone": Scale(1, 10)}
    assert len(load(path, guess.task, guess.columns).groups) == 2


def test_columns_of_raters_are_joined_by_a_plus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,Rater 1,Rater 2,solved (Ann),solved (Bob)\nx,4,5,0,1\ny,1,2,1,1\n")
    for tone in ("Rater 1+Rater 2", "Rater"):
        columns = ColumnNames.parse([f"tone={tone}", "solved=solved (Ann)+solved (Bob)"])
        guess = guess_task(read_records(path), columns, "a")
        assert scales(guess) == {"tone": Scale(1, 5), "solved": Scale(0, 1)}
        for task in (TASK, replace(TASK, columns=columns.renamed)):
            first, second = load(path, task, columns if task is TASK else ColumnNames()).groups
            assert first.candidates[0].ratings == {"tone": (4.0, 5.0), "solved": (0.0, 1.0)}
            assert second.candidates[0].ratings == {"tone": (1.0, 2.0), "solved": (1.0, 1.0)}
    assert not caplog.text


def test_paths_of_comments_are_joined_by_a_plus(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x", "labels": {"help": 4, "why": "because", "note": "so"}}))
    columns = ColumnNames.parse(["tone=labels.help", "comments.tone=labels.why+labels.note"])
    (group,) = load(path, TASK, columns).groups
    assert group.candidates[0].comments == {"tone": ("because", "so")}
    assert not caplog.text, "the object of these fields is read"


def test_several_columns_of_comments(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,tone_1,tone_2,comments.tone_1,comments.tone_2,why,note\nx,4,5,kind,warm,because,so\n")
    (group,) = load(path, TASK).groups
    assert group.candidates[0].comments == {"tone": ("kind", "warm")}
    path.write_text("text,tone,why,note\nx,4,because,so\n")
    (group,) = load(path, TASK, ColumnNames.parse(["comments.tone=why+note"])).groups
    assert group.candidates[0].comments == {"tone": ("because", "so")}


@pytest.mark.parametrize(
    ("header", "row", "noted"),
    [
        ("text,tone,ratings", "x,4,3", "'ratings' (holds numbers)"),
        ("text,tone,rating", "x,4,3", "'rating' (holds numbers)"),
        ("text,tone,aspect", "x,4,3", "'aspect' (holds numbers)"),
        ("text,tone,Comments", "x,4,kind", "'Comments' (--columns comments.ASPECT=Comments if it is that)"),
    ],
)
def test_a_column_with_a_name_of_ours_that_is_not_read_is_noted(
    tmp_path: Path, header: str, row: str, noted: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n{row}\n")
    assert load(tmp_path / "a.csv", TASK).groups[0].candidates[0].ratings == {"tone": (4.0,)}
    assert f"not read: {noted}" in caplog.text


def test_ratings_is_a_name_of_an_aspect_in_a_table(tmp_path: Path) -> None:
    assert scales(guessed(tmp_path / "a.csv", table(["1", "4", "5"], "ratings"))) == {"ratings": Scale(1, 5)}


def test_numbered_questions_are_aspects_and_not_raters(tmp_path: Path) -> None:
    text = "text,Question 1,Question 2,tone_1,tone_2\nx,4,5,3,2\ny,2,1,1,3\n"
    assert set(scales(guessed(tmp_path / "a.csv", text))) == {"Question 1", "Question 2", "tone"}


def test_columns_of_numbered_raters_are_joined_by_their_aspects(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    names = ("rater1_tone", "rater1_wit", "rater2_tone", "rater2_wit")
    guess = guessed(path, f"text,{','.join(names)}\nx,4,5,3,2\ny,2,1,1,3\n")
    load(path, guess.task, guess.columns)
    assert "--columns tone=rater1_tone+rater2_tone,wit=rater1_wit+rater2_wit" in caplog.text


def test_spellings_of_an_aspect_are_one_aspect(tmp_path: Path) -> None:
    text = "text,aspect,rating\nx,Tone,4\ny,tone,2\nz,TONE ,1\n"
    assert scales(guessed(tmp_path / "a.csv", text)) == {"Tone": Scale(1, 4)}


def test_what_was_measured_about_the_raters_is_no_rating(tmp_path: Path) -> None:
    text = "request,hypothesis,tone,WorkTimeInSeconds,time_taken,age\nq,x,4,31,30,25\nr,y,—,35,31,26\ns,z,2,31,33,25\n"
    guess = guessed(tmp_path / "a.csv", text)
    assert scales(guess) == {"tone": Scale(1, 4)}
    assert guess.columns.renamed == {"source": "request", "text": "hypothesis"}
