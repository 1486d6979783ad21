"""The loaders of public sets: on made-up copies, from their homes, and, where they are present, on the real ones; and
sets in the layout of JUDGE-BENCH."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.data.sets import published
from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.data.testing import check_corpus

ASPECT = Aspect("laughs", "0 is silence, 3 is roaring laughter.", Scale(0, 3))
QUIPS = Corpus(
    Task("quips", "topic", "quip", (ASPECT,)),
    (
        RatedGroup("1", "rain", (Candidate("a", "It rained.", {"laughs": (0.0, 1.0, 0.0)}),)),
        RatedGroup("2", "snow", (Candidate("a", "Snow way.", {"laughs": (2.0, 2.0, 1.0)}),)),
    ),
    Origin("toy", "quips.jsonl"),
)


def changed(change: Callable[[RatedGroup], RatedGroup]) -> Callable[[Corpus], Corpus]:
    return lambda corpus: replace(corpus, groups=(change(corpus.groups[0]), *corpus.groups[1:]))


def with_candidate(text: str = "x", **ratings: tuple[float, ...]) -> Callable[[Corpus], Corpus]:
    return changed(lambda group: replace(group, candidates=(Candidate("new", text, ratings),)))


def averaged(corpus: Corpus) -> Corpus:
    def means(group: RatedGroup) -> RatedGroup:
        rated = [replace(c, ratings={"laughs": (c.rating("laughs") or 0.0,)}) for c in group.candidates]
        return replace(group, candidates=tuple(rated))

    return replace(corpus, groups=tuple(means(group) for group in corpus.groups))


BROKEN: list[tuple[str, Callable[[Corpus], Corpus], str]] = [
    ("no groups", lambda c: replace(c, groups=()), "no groups"),
    ("an id twice", changed(lambda g: replace(g, id="2")), "group id occurs twice"),
    ("a blank candidate", with_candidate(" "), "candidate 'new': an id or a text is empty"),
    ("half a character", with_candidate("\ud83d"), "UTF-8"),
    ("an unknown aspect", with_candidate(tears=(1.0,)), "no aspect 'tears'"),
    ("outside the scale", with_candidate(laughs=(4.0,)), "4.0 is not a float on the scale"),
    ("raters averaged", averaged, "there are 3 raters"),
    ("no origin", lambda c: replace(c, origin=Origin("", "")), "origin is incomplete"),
]


@pytest.mark.parametrize(("change", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_check_corpus_names_the_violation(change: Callable[[Corpus], Corpus], words: str) -> None:
    check_corpus(QUIPS, QUIPS, raters=3)
    with pytest.raises(AssertionError, match=words):
        check_corpus(change(QUIPS), raters=3)


def test_a_second_load_must_be_equal() -> None:
    with pytest.raises(AssertionError, match="another digest"):
        check_corpus(QUIPS, replace(QUIPS, groups=QUIPS.groups[::-1]))
    with pytest.raises(AssertionError, match="differs in task, origin"):
        check_corpus(QUIPS, replace(QUIPS, origin=Origin("toy", "elsewhere")))


Row = dict[str, Any]

ARTICLE: Row = {"id": "dm-1", "text": "The town of Elm has bought a plough ."}
ARTICLE |= {"machine_summaries": ["Elm buys a plough .\n", "A plough ."], "consistency": [5.0, 5.0]}
ARTICLE |= {"human_summaries": ["Elm has a plough .", "Snow beware ."], "coherence": [14 / 3, 1]}
ARTICLE |= {"fluency": [5.0, 2.0], "relevance": [4.0, 2.0]}
REPLY: Row = {"source": "do you like chess ? \n i do . \n\n", "system_id": "A", "system_output": "wow . \n"}
REPLY |= {"context": "the longest game took 269 moves .\n"}
REPLY |= {"scores": {"naturalness": 2.6666666667, "groundedness": 0.3333333333, "overall": 3}}
KNOWN = {"knowledge": "Elm lies on the Ash."}
QA: Row = {**KNOWN, "question": "Which river?", "right_answer": "Ash", "hallucinated_answer": "Oak"}
CHAT: Row = {**KNOWN, "dialogue_history": "[Human]: Elm?"}
CHAT |= {"right_response": "On the Ash.", "hallucinated_response": "On the Oak."}
NEWS: Row = {"document": "Elm buys a plough.", "right_summary": "Elm buys.", "hallucinated_summary": "Elm sells."}
CLAIMS: Row = {"prompt": "Which river?", "response": "Elm is a town on the Oak.", "label": False, "entry_point": None}
CLAIMS |= {"claims": [{"claim": "Elm is a town", "label": True}, {"claim": "Elm is on the Oak", "label": False}]}
QAGS: Row = {"doc_id": 7, "system_id": 0, "source": "Elm has bought a plough .", "scores": {"consistency": 0.3333}}
QAGS |= {"reference": "Elm has bought a plough .", "system_output": "Elm has sold a plough ."}
QUESTIONS = [{"question_id": n, "text": f"Question {n}?", "category": "generic"} for n in (1, 3, 5)]


def answers(system: str, ids: tuple[int, ...] = (1, 3, 5)) -> list[Row]:
    return [{"question_id": n, "text": f"{system} {n}", "answer_id": "x"} for n in ids]


def faireval_folder(path: Path, *, nested: bool = False, **files: Any) -> Path:
    rows = {
        "question.jsonl": files.get("questions", QUESTIONS),
        published.SYSTEMS["gpt35"]: files.get("gpt", answers("gpt")),
        published.SYSTEMS["vicuna-13b"]: files.get("vicuna", answers("vicuna")),
    }
    texts = {name: "\n".join(json.dumps(row) for row in records) for name, records in rows.items()}
    texts[published.REVIEW] = files.get("labels", "CHATGPT\nTIE\nVICUNA13B\n")
    for name, text in texts.items():
        file = path / (name if nested else Path(name).name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return path


def loaded(folder: Path, name: str, *rows: Row) -> Corpus:
    """What `--data` reads of a set's copy with these records, which meets the contract."""
    path = folder / "set.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    corpus = data.load(f"{name}={path}")
    check_corpus(corpus, data.load(f"{name}={path}"))
    return corpus


def rated(aspect: str = "factuality", **texts: tuple[str, float]) -> tuple[Candidate, ...]:
    return tuple(Candidate(name.strip("_"), text, {aspect: (value,)}) for name, (text, value) in texts.items())


# --- records become groups ---

SUMMARIES = tuple(
    Candidate(name, text, {"coherence": (c,), "consistency": (5.0,), "fluency": (f,), "relevance": (r,)})
    for name, text, c, f, r in (("M0", "Elm buys a plough .", 14 / 3, 5.0, 4.0), ("M1", "A plough .", 1.0, 2.0, 2.0))
)
QUESTION = ("1", "Which river?")
REFERENCES = ("Elm has a plough .", "Snow beware .")
REPLIED = RatedGroup(
    "1",
    "do you like chess ? \n i do . ",
    (Candidate("A", "wow . ", {"naturalness": (2.6666666667,), "groundedness": (0.3333333333,), "overall": (3.0,)}),),
    "the longest game took 269 moves .",
)


@pytest.mark.parametrize(
    ("name", "row", "task", "group"),
    [
        ("summeval", {**ARTICLE, "model_ids": ["M0", "M1"]}, "summarization",
         RatedGroup("dm-1", ARTICLE["text"], SUMMARIES, references=REFERENCES)),
        ("topical_chat", REPLY, "dialogue", REPLIED),
        ("halueval", QA, "question-answering",
         RatedGroup(*QUESTION, rated(right=("Ash", 1), hallucinated=("Oak", 0)), KNOWN["knowledge"])),
        ("halueval", CHAT, "dialogue-factuality",
         RatedGroup("1", "[Human]: Elm?", rated(right=("On the Ash.", 1), hallucinated=("On the Oak.", 0)),
                    KNOWN["knowledge"])),
        ("halueval", NEWS, "summary-factuality",
         RatedGroup("1", "Elm buys a plough.", rated(right=("Elm buys.", 1), hallucinated=("Elm sells.", 0)))),
        ("factool", CLAIMS, "question-answering", RatedGroup(*QUESTION, rated(response=(CLAIMS["response"], 0)))),
        ("factool_claims", CLAIMS, "claim-factuality",
         RatedGroup(*QUESTION, rated(_1=("Elm is a town", 1), _2=("Elm is on the Oak", 0)))),
        # The article under `reference` is no reference.
        ("qags", QAGS, "summary-consistency",
         RatedGroup("7", QAGS["source"], rated("consistency", _0=(QAGS["system_output"], 0.3333)))),
    ],
)  # fmt: skip
def test_a_record_becomes_a_group(tmp_path: Path, name: str, row: Row, task: str, group: RatedGroup) -> None:
    corpus = loaded(tmp_path, name, row)
    assert (corpus.task.name, corpus.groups) == (task, (group,))


PACKED: Row = {"doc_id": "d1", "system_id": "M8", "source": "It rained .", "reference": "Rain ."}
PACKED |= {"system_output": "Wet .", "scores": {"coherence": 2.0, "consistency": 5.0, "fluency": 5.0, "relevance": 3.0}}
OTHER_KNOWLEDGE = {**CHAT, "knowledge": "The Ash is long.", "right_response": "It is long."}
BLANKS = {**QAGS, "doc_id": 8, "source": "Elm  has bought a plough .", "system_output": "No ."}
NO_FACT = {**REPLY, "source": "hi \n", "context": "_nofact\n"}
SAMPLED = [
    {"knowledge": "k", "question": "Which river?", "answer": "Oak", "hallucination": "yes"},
    {"knowledge": "k", "question": "Which town?", "answer": "Elm", "hallucination": "no"},
]


@pytest.mark.parametrize(
    ("name", "rows", "groups"),
    [
        # Summaries without names of models are numbered; so are answers that differ, and equal ones are there once.
        ("summeval", [ARTICLE], {(ARTICLE["text"], ""): ["1", "2"]}),
        ("summeval", [PACKED, {**PACKED, "system_id": "M9"}], {("It rained .", ""): ["M8", "M9"]}),
        (
            "topical_chat",
            [REPLY, NO_FACT, {**REPLY, "system_id": "B"}],
            {(REPLIED.source, REPLIED.context): ["A", "B"], ("hi ", ""): ["A"]},
        ),
        (
            "halueval",
            [CHAT, OTHER_KNOWLEDGE],
            {("[Human]: Elm?", "Elm lies on the Ash.\nThe Ash is long."): ["right", "hallucinated", "right-2"]},
        ),
        ("qags", [QAGS, BLANKS, QAGS], {(QAGS["source"], ""): ["0", "0-2"]}),
        ("halueval", SAMPLED, {("Which river?", "k"): ["hallucinated"], ("Which town?", "k"): ["right"]}),
    ],
    ids=["numbered", "packed", "chat", "shared reply", "articles", "sampled"],
)
def test_records_of_one_source_are_one_group(
    tmp_path: Path, name: str, rows: list[Row], groups: dict[tuple[str, str], list[str]]
) -> None:
    corpus = loaded(tmp_path, name, *rows)
    assert {(g.source, g.context): [c.id for c in g.candidates] for g in corpus.groups} == groups


@pytest.mark.parametrize("change", [{}, {"context": "another", "system_id": "B"}], ids=["system", "context"])
def test_outputs_that_contradict_each_other_are_refused(tmp_path: Path, change: Row) -> None:
    with pytest.raises(InputError, match="line 2: a record contradicts an earlier one of its source"):
        loaded(tmp_path, "topical_chat", REPLY, {**REPLY, **change})


@pytest.mark.parametrize("nested", [False, True])
def test_a_question_of_faireval_is_a_group_of_two_with_a_winner_or_none(tmp_path: Path, nested: bool) -> None:
    # Answers are found by their question, not by their line.
    corpus = published.load(faireval_folder(tmp_path, nested=nested, vicuna=answers("vicuna", (5, 1, 3))), "faireval")
    check_corpus(corpus)
    texts = [(c.id, c.text) for c in corpus.groups[0].candidates]
    assert (corpus.groups[0].source, texts) == ("Question 1?", [("gpt35", "gpt 1"), ("vicuna-13b", "vicuna 1")])
    assert [g.ratings("preference") for g in corpus.groups] == [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    assert {g.category for g in corpus.groups} == {"generic"}


# --- from their homes ---


class Rows(list[Row]):
    """What `datasets` gives back, as far as it is used."""

    @property
    def column_names(self) -> list[str]:
        return list(self[0])


def home(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The calls of `datasets.load_dataset`, which answers so or as a function of its arguments says."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def load_dataset(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        if isinstance(answer, Exception):
            raise answer
        return answer(**kwargs) if callable(answer) else answer

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return calls


RAW = "https://raw.githubusercontent.com/"


@pytest.mark.parametrize(
    ("name", "row", "file"),
    [
        ("topical_chat", REPLY, "maszhongming/UniEval/{}/reproduce/data/dialogue/topical_chat.json"),
        ("halueval", QA, "RUCAIBox/HaluEval/{}/data/qa_data.json"),
        ("halueval_dialogue_drawn", CHAT, "RUCAIBox/HaluEval/{}/data/dialogue_data.json"),
        ("factool", CLAIMS, "GAIR-NLP/factool/{}/datasets/knowledge_qa/knowledge_qa.jsonl"),
        ("qags_xsum", QAGS, "maszhongming/UniEval/{}/reproduce/data/fact/qags_xsum.json"),
    ],
)
def test_each_part_is_fetched_from_its_pinned_home(
    monkeypatch: pytest.MonkeyPatch, name: str, row: Row, file: str
) -> None:
    calls = home(monkeypatch, Rows([row]))
    origin = data.load(name).origin
    address = RAW + file.format(origin.revision)
    assert calls == [(("json",), {"data_files": address, "split": "train"})]
    assert (origin.name, origin.location) == (name, address)


def test_the_real_library_reads_the_file_and_fails_as_expected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    # The copy on disk is read by the builder that reads the URL; only the transport differs.
    (tmp_path / "t.json").write_text(json.dumps([REPLY]))
    local = published.REMOTES["topical_chat"]._replace(address=str(tmp_path / "t.json"))
    monkeypatch.setitem(published.REMOTES, "topical_chat", local)
    real = datasets.load_dataset
    monkeypatch.setattr(
        datasets, "load_dataset", lambda path, **kw: real("json", data_files=path, split="train", cache_dir=tmp_path)
    )
    assert published.load(None, "topical_chat").groups[0].candidates[0].ratings["overall"] == (3.0,)
    gone = local._replace(address=str(tmp_path / "gone.json"))
    monkeypatch.setitem(published.REMOTES, "topical_chat", gone)
    with pytest.raises(InputError, match="--data topical_chat=PATH"):
        published.load(None, "topical_chat")


# --- the real ones ---

COPIES = {
    "summeval": ("summeval.jsonl", 50, 800),
    "topical_chat": ("topical_chat.json", 30, 180),
    "qags": ("qags_cnndm.json", 118, None),
    "qags_xsum": ("qags_xsum.json", 120, None),
    "halueval": ("halueval_qa.json", 200, 400),
    "halueval_drawn": ("halueval_qa.json", 150, 150),
    "factool": ("factool_knowledge_qa.jsonl", 25, 25),
    "factool_claims": ("factool_knowledge_qa.jsonl", 25, None),
    "faireval": ("faireval", 40, 80),
}


@pytest.mark.parametrize("name", [name for name in data.LOADERS if name != "sample"])
def test_every_loader_meets_the_contract(name: str, request: pytest.FixtureRequest) -> None:
    if name not in COPIES:
        pytest.skip(f"there is no copy of {name}")
    file, groups, candidates = COPIES[name]
    spec = f"{name}={request.getfixturevalue('shared_data') / file}"
    corpus = data.load(spec)
    check_corpus(corpus, data.load(spec))
    assert groups in (None, len(corpus.groups))
    assert candidates in (None, sum(len(group.candidates) for group in corpus.groups))


def test_the_real_summeval_has_the_ratings_and_texts_of_its_file(shared_data: Path) -> None:
    spec = f"summeval={shared_data / 'summeval.jsonl'}"
    corpus = data.load(spec)
    raw = [json.loads(line) for line in (shared_data / "summeval.jsonl").read_text().splitlines()]
    for aspect in corpus.rated_aspects():
        assert [r[aspect] for r in raw] == [g.ratings(aspect) for g in corpus.groups]
    assert [r["machine_summaries"] for r in raw] == [[c.text for c in g.candidates] for g in corpus.groups]
    # Another wording of its task is taken.
    worded = replace(SUMMARIZATION, aspects=tuple(replace(a, definition="My words.") for a in SUMMARIZATION.aspects))
    stepped = replace(worded, aspects=tuple(replace(a, scale=Scale(1, 5, on_steps=True)) for a in worded.aspects))
    for task in (worded, stepped):
        assert data.load(spec, task).task is task


# --- the layout of JUDGE-BENCH ---

GRADED = {"metric": "fluency", "category": "graded", "prompt": "Rate it. {{ instance }}", "worst": 1, "best": 5}
RANK = {"metric": "errors", "category": "graded", "prompt": "Count them.", "worst": 10, "best": 0}
YES = {"metric": "Missing Steps", "category": "categorical", "prompt": "Steps missing?", "labels_list": ["yes", "no"]}
TOXIC = {"metric": "toxicity", "category": "categorical", "prompt": "?", "labels_list": ["0", "1"], "best": "0"}
SAFE = {"metric": "safety", "category": "categorical", "prompt": "Safe?", "labels_list": ["No", "Yes", "Unsure"]}
KIND = {"metric": "type", "category": "categorical", "prompt": "?", "labels_list": ["a", "b", "c"]}
SECTIONS = "### Generated Summary\n\nA plough.\n\n### Source Article\n\nThe town of Elm has bought a plough."


def written(path: Path, metrics: list[dict[str, Any]], *instances: tuple[Any, dict[str, Any]]) -> str:
    rows = [
        {"id": n, "instance": text, "annotations": {name: individual(value) for name, value in given.items()}}
        for n, (text, given) in enumerate(instances)
    ]
    path.write_text(json.dumps({"dataset": "made up", "annotations": metrics, "instances": rows}))
    return f"judgebench={path}"


def individual(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"individual_human_scores": value}


@pytest.mark.parametrize(
    ("metrics", "instances", "ratings"),
    [
        # Sentences, rated by several people (recipes, CoLA, Switchboard).
        ([GRADED], [("Salt it.", {"fluency": [2, 5]}), ("Boil it.", {"fluency": [1, 1]})], [(2.0, 5.0), (1.0, 1.0)]),
        # The best is the lower end (WMT's errors), and a mean alone.
        ([RANK], [("A.", {"errors": [0, 10]}), ("B.", {"errors": {"mean_human": 2.5}})], [(10.0, 0.0), (7.5,)]),
        # Two labels, as words and as numbers; the best one is 1 where it is said (ROSCOE, ToxicChat).
        ([YES], [("A.", {"Missing Steps": ["yes", "no"]}), ("B.", {"Missing Steps": ["no"]})], [(1.0, 0.0), (0.0,)]),
        ([TOXIC], [("A.", {"toxicity": {"majority_human": "1", "individual_human_scores": []}}),
                   ("B.", {"toxicity": ["0"]})], [(0.0,), (1.0,)]),
        # Who is unsure says nothing (DICES).
        ([SAFE], [({"user_prompt": "Hi?", "response": "Hello."}, {"safety": ["Yes", "Unsure", "No"]}),
                  ({"user_prompt": "Oh?", "response": "No."}, {"safety": ["No"]})], [(1.0, 0.0), (0.0,)]),
        # A metric of three labels is left out alone; names differ in case (medical safety, Topical-Chat).
        ([KIND, GRADED], [("A.", {"type": ["a"], "Fluency": [2]}), ("B.", {"type": ["c"], "Fluency": [5]})],
         [(2.0,), (5.0,)]),
    ],
)  # fmt: skip
def test_a_metric_is_an_aspect(
    tmp_path: Path, metrics: Any, instances: Any, ratings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spec = written(tmp_path / "set.json", metrics, *instances)
    corpus = data.load(spec)
    check_corpus(corpus, data.load(spec))
    (aspect,) = corpus.task.aspects
    candidates = [candidate for group in corpus.groups for candidate in group.candidates]
    assert [candidate.ratings[aspect.name] for candidate in candidates] == ratings
    assert "{{" not in aspect.definition
    assert ("'type' is left out: 3 labels" in caplog.text) == (KIND in metrics)


def test_an_instance_is_a_text_beside_its_source(tmp_path: Path) -> None:
    summaries = [(SECTIONS, {"fluency": [2]}), (SECTIONS.replace("A plough", "Elm"), {"fluency": [5]})]
    (group,) = data.load(written(tmp_path / "set.json", [GRADED], *summaries)).groups
    assert (group.source, [c.text for c in group.candidates]) == (
        "The town of Elm has bought a plough.",
        ["A plough.", "Elm."],
    )
    replies = [({"facts": "Elm.", "dialogue": "Hi?", "response": "Hello."}, {"fluency": [2]})]
    (group,) = data.load(written(tmp_path / "set.json", [GRADED], *replies)).groups
    assert (group.source, group.candidates[0].text) == ("facts: Elm.\n\ndialogue: Hi?", "Hello.")


def test_two_outputs_and_a_verdict_are_a_pair(tmp_path: Path) -> None:
    pair = {"input": "Name a river.", "output_a": "The Ash.", "output_b": "Water."}
    metric = {"metric": "quality_single_turn", "category": "categorical", "labels_list": ["model_a", "model_b"]}
    spec = written(tmp_path / "set.json", [metric], (pair, {"quality": ["model_a"]}), (pair, {"quality": ["model_b"]}))
    groups = data.load(spec).groups
    assert [group.ratings("preference") for group in groups] == [[1.0, 0.0], [0.0, 1.0]]
    for given in ([], [None], {"majority_human": None}):
        with pytest.raises(InputError, match="not a verdict on the pair"):
            data.load(written(tmp_path / "set.json", [metric], (pair, {"quality": given})))
