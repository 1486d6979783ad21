"""The layout of JUDGE-BENCH (Bavaresco et al. 2024), in which twenty rated sets are distributed.

Location: data/*/*.json in the GitHub repository dmg-illc/JUDGE-BENCH; each set has a licence of its own. A file looks
like this (made up):

    {"dataset": "Recipes (Ash 2024)", "annotations": [
       {"metric": "fluency", "category": "graded", "prompt": "Rate its fluency. {{ instance }}", "worst": 1, "best": 7},
       {"metric": "safe", "category": "categorical", "prompt": "Is it safe?", "labels_list": ["No", "Yes", "Unsure"]}],
     "instances": [
       {"id": 1, "instance": {"query": "Salt?", "response": "Salt water lightly."}, "annotations": {
          "fluency": {"mean_human": 4.5, "individual_human_scores": [3, 6]},
          "safe": {"majority_human": "Yes", "individual_human_scores": ["Yes", "Unsure"]}}}]}

A metric is an aspect, its prompt the definition. Where the best value is the lower one, ratings are turned round. Two
labels are 1 and 0, the best, or else yes, being 1; a metric of more labels has no order and is left out, with a note.
An instance is the text, an object the text beside its source, or two texts and a verdict.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from debate_judge.data.errors import InputError
from debate_judge.data.files.columns import PREFERENCE, code_of, families, role_of_name
from debate_judge.data.files.formats import read_text
from debate_judge.data.files.groups import clear_verdict
from debate_judge.data.files.records import YES_NO_WORDS, Record, looks_like_a_number, rating_of
from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task, fingerprint
from debate_judge.data.tasks import PAIRS

logger = logging.getLogger(__name__)

_UNSURE = {"unsure", "not sure", "maybe", "unclear"}
_SECTION = re.compile(r"^#{2,4} +(.+?) *$", re.MULTILINE)


class _Metric(NamedTuple):
    """A metric as an aspect."""

    aspect: Aspect
    labels: Mapping[str, float]
    """Code of a label -> rating; empty for numbers."""
    upside_down: bool = False

    def ratings(self, instance: Record) -> tuple[float, ...]:
        """The ratings of an instance on the aspect's scale."""
        annotations = instance.child("annotations")
        key = {_name(key).casefold(): key for key in annotations.values}.get(self.aspect.name.casefold(), "")
        if not isinstance(annotations.values.get(key), dict):
            return ()
        values = _of_raters(annotations.child(key), "mean_human", "majority_human")
        ratings = (self._rating(value, annotations) for value in values)
        return tuple(rating for rating in ratings if rating is not None)

    def _rating(self, value: Any, record: Record) -> float | None:
        """A rater's value; None for one that says nothing."""
        name, code = self.aspect.name, code_of(value)
        if value is None or code in _UNSURE or code == "nan":
            return None
        if self.labels:
            if code not in self.labels:
                raise record.error(f"no label of {name}", name, expected=", ".join(self.labels), found=value)
            return self.labels[code]
        number = float(value) if isinstance(value, str) and looks_like_a_number(value) else value
        rating = rating_of(number, self.aspect, record, name)
        return self.aspect.scale.low + self.aspect.scale.high - rating if self.upside_down else rating


def load(path: str | Path | None = None) -> Corpus:
    """Load a set from a file in this layout.

    Raises:
        InputError: No file is given, or it has another layout, or none of its metrics can be judged.
    """
    if path is None:
        remedy = "download one of data/*/*.json of dmg-illc/JUDGE-BENCH, and name it: --data judgebench=FILE"
        raise InputError("no file in the layout of JUDGE-BENCH", field="--data", found="judgebench", remedy=remedy)
    text = read_text(Path(path))
    try:
        # Means of no ratings are NaN in some sets.
        values = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {error}", file=path) from None
    root = Record({"": values}, str(path)).child("")
    name, origin = re.sub(r"[^\w-]+", "-", Path(path).stem), str(path)
    instances = root.children("instances")
    if pairs := _pair_fields(instances[0].value("instance")):
        return Corpus(PAIRS, tuple(_pair(i, n, pairs) for n, i in enumerate(instances, 1)), Origin(name, origin))
    metrics = _metrics(root, instances)
    groups: dict[str, tuple[str, list[Candidate]]] = {}
    for number, instance in enumerate(instances, start=1):
        source, text = _source_and_text(instance)
        ratings = {metric.aspect.name: values for metric in metrics if (values := metric.ratings(instance))}
        _, candidates = groups.setdefault(" ".join(source.split()) or f"\n{number}", (source, []))
        candidates.append(Candidate(str(number), text, ratings))
    task = Task(name, "source", "text", tuple(metric.aspect for metric in metrics))
    rated = (RatedGroup(str(n), source, tuple(of)) for n, (source, of) in enumerate(groups.values(), start=1))
    return Corpus(task, tuple(rated), Origin(name, origin))


def _metrics(root: Record, instances: Sequence[Record]) -> list[_Metric]:
    """The metrics that can be judged and that an instance has ratings of; the others are noted."""
    found = []
    for entry in root.children("annotations"):
        try:
            metric = _metric(entry)
            if any(map(metric.ratings, instances)):
                found.append(metric)
        except InputError as error:
            logger.warning("%s: the metric %r is left out: %s", root.file, entry.values.get("metric"), error.problem)
    if not found:
        remedy = "choose a set with a graded metric, or one of two labels"
        raise root.error("no metric can be judged", "annotations", remedy=remedy)
    return found


def _metric(entry: Record) -> _Metric:
    name = _name(entry.text("metric")) or "quality"
    prompt = " ".join(re.sub(r"\{\{.*?\}\}", " ", entry.optional_text("prompt")).split()) or f"Rate its {name}."
    listed = entry.items("labels_list") if entry.values.get("labels_list") else []
    if labels := [str(label) for label in listed if code_of(label) not in _UNSURE]:
        if len(labels) != 2:
            raise entry.error(f"{len(labels)} labels without an order", "labels_list", found=", ".join(labels))
        best = entry.values.get("best")
        is_best = [best is not None and code_of(label) == code_of(best) for label in labels]
        is_yes = [YES_NO_WORDS.get(label.lower()) for label in labels]
        # The best label, or else yes, or else the second.
        lower, upper = labels[::-1] if is_best[0] or (is_yes[0] and not is_best[1]) else labels
        definition = f"{prompt} 1 is {upper!r}, 0 is {lower!r}."
        return _Metric(Aspect(name, definition, Scale(0, 1)), {code_of(upper): 1.0, code_of(lower): 0.0})
    worst, top = entry.number("worst"), entry.number("best")
    low, high = sorted((worst, top))
    definition = f"{prompt} {low:g} is the worst, {high:g} the best."
    if worst > top:
        definition = f"{prompt} The raters gave {low:g} to the best; here {high:g} is the best, {low:g} the worst."
    whole = low.is_integer() and high.is_integer() and high - low > 1
    return _Metric(Aspect(name, definition, Scale(low, high, 1.0 if whole else (high - low) / 100)), {}, worst > top)


def _name(metric: str) -> str:
    """The name of a metric as that of an aspect; the keys of ratings may be spelt otherwise."""
    return re.sub(r"[^\w .-]+", "_", metric).strip(" _.-")


def _of_raters(scores: Record, *of_all: str) -> list[object]:
    """The values of single raters, or the one that there is of all."""
    if scores.values.get("individual_human_scores"):
        return scores.items("individual_human_scores")
    return [next((value for name in of_all if (value := scores.values.get(name)) is not None), None)]


def _source_and_text(instance: Record) -> tuple[str, str]:
    """The source, empty if there is none, and the text of an instance."""
    value = instance.value("instance")
    if isinstance(value, str):
        parts = _SECTION.split(value)
        sections = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
        if len(sections) != 2 or parts[0].strip() or {*map(role_of_name, sections)} != {"source", "text"}:
            return "", instance.text("instance")
        value = sections
    if not isinstance(value, dict) or not any(value.values()):
        raise instance.error("an instance is a text or an object of texts", "instance", found=repr(value))
    texts = {key: str(text) for key, text in value.items() if text not in (None, "")}
    text_key = next((key for key in reversed(texts) if role_of_name(key) == "text"), [*texts][-1])
    others = {key: text for key, text in texts.items() if key != text_key}
    joined = "\n\n".join(others.values() if len(others) == 1 else (f"{key}: {text}" for key, text in others.items()))
    return joined, texts[text_key]


def _pair_fields(instance: Any) -> list[str]:
    """The fields of the two texts of a pair; none for another instance."""
    names = [key for key in instance if role_of_name(key) == "text"] if isinstance(instance, dict) else []
    sides = ({"a", "b"}, {"1", "2"})
    found = [family.members for family in families(names) if {part.lower() for part in family.members} in sides]
    return [field for _, field in sorted(found[0].items())] if found else []


def _pair(instance: Record, number: int, fields: Sequence[str]) -> RatedGroup:
    texts = instance.child("instance")
    source = "\n\n".join(str(text) for key, text in texts.values.items() if key not in fields and text)
    annotations = instance.child("annotations")
    if len(annotations.values) != 1:
        raise annotations.error("a pair with several verdicts", expected="one metric", found=annotations.field_names)
    scores = annotations.child(next(iter(annotations.values)))
    verdicts = [value for value in _of_raters(scores, "majority_human") if value is not None]
    first = []
    for value in verdicts or [None]:
        # `model_a` is the first text, whatever its field is called; without a verdict there is no tie.
        rating = None if value is None else clear_verdict(value, fields)
        if rating is None:
            raise scores.error("not a verdict on the pair", expected="model_a, model_b or tie", found=value)
        first.append(rating)
    ratings = (tuple(first), tuple(1 - rating for rating in first))
    candidates = (
        Candidate(field, texts.text(field), {PREFERENCE: of_text})
        for field, of_text in zip(fields, ratings, strict=True)
    )
    return RatedGroup(f"{number}-{fingerprint([source])}", source, tuple(candidates))
