"""The data set of a run, as MLflow shows it among the run's inputs: where it came from, its digest, how large it is."""

from __future__ import annotations

import json

from debate_judge.data.schema import Corpus
from debate_judge.programs.lm.redaction import clean_text


def log_dataset(part: str, corpus: Corpus, digest: str) -> None:
    """Log one part of a corpus as an input of the active run; MLflow gets its columns and counts, and no text.

    Args:
        part: What it was used for.
        corpus: Its groups.
        digest: Of the groups.
    """
    import mlflow
    from mlflow.data.dataset_source_registry import get_dataset_source_from_json
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.exceptions import MlflowException
    from mlflow.types import ColSpec, Schema

    counts = {"groups": len(corpus.groups), "candidates": sum(len(g.candidates) for g in corpus.groups)}

    class RatedTexts(MetaDataset):
        def to_dict(self) -> dict[str, str]:
            return {**super().to_dict(), "profile": json.dumps(counts)}

    location = clean_text(corpus.origin.location)
    kind, key = ("http", "url") if "://" in location else ("local", "uri")
    source = get_dataset_source_from_json(json.dumps({key: location}), kind)
    ratings = [ColSpec("double", name) for name in corpus.rated_aspects()]
    columns = Schema([ColSpec("string", "group"), ColSpec("string", "candidate"), *ratings])
    dataset = RatedTexts(source, corpus.origin.name, digest[:36], columns)
    tags = {"revision": corpus.origin.revision} if corpus.origin.revision else None
    try:
        mlflow.log_input(dataset, context=part, tags=tags)
    except MlflowException:
        # MLflow looks whether the data set is known and then adds it: of two runs that do so at once one fails.
        mlflow.log_input(dataset, context=part, tags=tags)
