"""The registered judge as a Spark function: a real session with two workers, and a scripted LM behind a server."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from debate_judge import Debate
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import build_preset
from debate_judge.programs.compiled import AspectJudge
from debate_judge.runs.export.folder import load
from debate_judge.runs.tracking.tracker import Tracker
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.runs.registered_models import registration
from tests.runs.score_command import export_of

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("pyspark") is None,
        reason="no pyspark here: pip install -e '.[spark]' (a minute, so that the extra `test` does without)",
    ),
    pytest.mark.skipif(
        not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="no Java here: apt install default-jre"
    ),
]

TASK = Task(
    "notes", "letter", "note", (Aspect("clarity", "Is it clear?", Scale(1, 5)), Aspect("truth", "True?", Scale(1, 5)))
)
PARTITIONS = 6
ROWS = [(f"Letter-{n}: the ferry crosses the bay.", f"Note-{n}.", None) for n in range(10)]
BAD = 7
"""Number of the row that the LM gives no score for."""
ODD: list[tuple[str | None, str | None, str | None]] = [
    (None, "Note without a letter.", None),
    ("Letter without a note.", None, None),
    ("Letter-0: the ferry crosses the bay.", "Note-0.", "grace"),
    ("Letter-0: the ferry crosses the bay.", "Note-0.", "truth"),
]

JOB = """
import json, sys
import mlflow
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, spark_partition_id, struct

request = json.loads(sys.stdin.read())
mlflow.set_tracking_uri(request["store"])
settings = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.default.parallelism": str(request["partitions"]),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
use = dict(env_manager="local", extra_env={"DEBATE_API_BASE": request["url"]})

scores = mlflow.pyfunc.spark_udf(
    spark, request["model"], result_type=request["columns"], params={"layout": "columns"}, **use
)
rows = [tuple(row) for row in request["rows"]]
table = spark.createDataFrame(rows * request["partitions"], "letter string, note string, aspect string")
given = struct(col("letter").alias("source"), col("note").alias("text"), "aspect")
wide = table.withColumn("part", spark_partition_id()).withColumn("found", scores(given)).select("part", "found.*")
wide = [row.asDict() for row in wide.collect()]

usual = mlflow.pyfunc.spark_udf(spark, request["model"], **use)
few = spark.createDataFrame(rows, table.schema).fillna("truth", subset=["aspect"]).coalesce(1)
long = [row.asDict() for row in few.withColumn("found", usual(given)).select("found.*").collect()]
print(json.dumps({"wide": wide, "long": long}))
spark.stop()
"""


def _answer(body: bytes) -> str:
    """The Critic objects to every second letter, once; scores differ by letter, aspect and round."""
    prompt = json.loads(body)["messages"][-1]["content"]
    letter = int(re.findall(r"Letter-(\d+)", prompt + "Letter-0")[0])
    objects = letter % 2 and "Critic, round" not in prompt
    return debater(score=str(1 + (letter * 7 + len(body)) % 5), feedback="An issue." if objects else "NO ISSUE")(prompt)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """What Spark made of the rows, once in each of its partitions, and what the judge makes of them by itself."""
    folder = tmp_path_factory.mktemp("spark")
    clarity, truth = AspectJudge(Debate(rounds=2), "half"), build_preset("single", {})
    export = export_of(folder / "export", TASK, clarity, truth, lm="hosted_vllm/scripted")
    with Tracker(uri=None, store=folder / "store", experiment="debate/notes", run_name="notes") as tracker:
        uri = tracker.log_model(export, name="judge", registration=registration("notes"))

    def refuse(body: bytes, attempt: int) -> str | None:
        return "unreadable" if f"Letter-{BAD}:".encode() in body else None

    with FaultyServer(_answer, refuse) as server:
        request = {
            "store": tracker.tracking_store.uri,
            "model": uri,
            "url": server.url,
            "partitions": PARTITIONS,
            "columns": "clarity double, truth double, unscored string, calls double",
            "rows": [*ROWS, *ODD],
        }
        done = subprocess.run(
            [sys.executable, "-c", JOB],
            input=json.dumps(request),
            cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        requests = server.requests
        with load(export, api_base=server.url) as judge:
            expected = judge.score_many([{"source": source, "text": text} for source, text, _ in ROWS])
    rows = json.loads(done.stdout.splitlines()[-1])
    return SimpleNamespace(**rows, expected=expected, requests=requests, judge_requests=server.requests - requests)


def test_scores_are_those_of_the_judge_bit_for_bit(job: SimpleNamespace) -> None:
    parts: dict[int, list[dict[str, Any]]] = {}
    for row in job.wide:
        parts.setdefault(row["part"], []).append(row)
    assert len(parts) == PARTITIONS
    expected = [{aspect: score.score for aspect, score in by_aspect.items()} for by_aspect in job.expected]
    assert len({score for row in expected for score in row.values()}) > 3
    for rows in parts.values():
        assert [{aspect: row[aspect] for aspect in ("clarity", "truth")} for row in rows[: len(ROWS)]] == expected
    # Batches and tasks of a worker share one store of replies: each of two workers asks at most once.
    assert job.judge_requests <= job.requests <= 2 * job.judge_requests


def test_what_cannot_be_scored_is_null_with_a_reason(job: SimpleNamespace) -> None:
    rows = job.wide[: len(ROWS) + len(ODD)]
    assert {row["unscored"] for number, row in enumerate(rows[: len(ROWS)]) if number != BAD} == {""}
    bad, (no_source, no_text, unknown, single) = rows[BAD], rows[len(ROWS) :]
    for row, reason, aspects in (
        (bad, "unreadable", 2),
        (no_source, "a source", 2),
        (no_text, "a text", 2),
        (unknown, "'grace'", 1),
    ):
        assert (row["clarity"], row["truth"], row["unscored"].count(reason)) == (None, None, aspects)
    assert (single["clarity"], single["truth"], single["unscored"]) == (None, job.expected[0]["truth"].score, "")
    # Rows that name their aspect need no parameter and no type: the type of the column is the model's, and a null
    # among whole numbers must not fail the job.
    assert [row["score"] for row in job.long[: len(ROWS)]] == [scores["truth"].score for scores in job.expected]
    assert [row["rounds"] for row in job.long[len(ROWS) :]] == [None, None, None, 0]
    assert [row["aspect"] for row in job.long[-2:]] == ["grace", "truth"]
