"""The data set of a run, as MLflow shows it among the run's inputs: where it came from, its digest, how large it is."""

from __future__ import annotations

import json
from typing import Any

from debate_judge.data.schema import Corpus
from debate_judge.programs.lm.redaction import clean_text


def log_dataset(client: Any, run_id: str, part: str, corpus: Corpus, digest: str) -> None:
    """Log one part of a corpus as an input of a run.

    Args:
        client: MLflow's.
        run_id: The run.
        part: What it was used for.
        corpus: Its groups.
        digest: Of the groups.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.exceptions import MlflowException

    location = clean_text(corpus.origin.location)
    dataset = Dataset(
        name=corpus.origin.name,
        digest=digest[:36],
        source_type="http" if "://" in location else "local",
        source=json.dumps({"uri": location, "revision": corpus.origin.revision}),
        profile=json.dumps({"groups": len(corpus.groups), "candidates": sum(len(g.candidates) for g in corpus.groups)}),
    )
    inputs = [DatasetInput(dataset, [InputTag("mlflow.data.context", part)])]
    try:
        client.log_inputs(run_id, datasets=inputs)
    except MlflowException:
        # MLflow looks whether the data set is known and then adds it: of two runs that do so at once one fails.
        client.log_inputs(run_id, datasets=inputs)
