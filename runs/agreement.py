"""Agreement of anybody's scores with human ratings.

    python runs/agreement.py FILE
    python runs/agreement.py FILE --json table.json --aspects coherence,relevance
    python runs/agreement.py FILE --scale 1-3        # rows with recorded reply texts in `samples`

FILE holds rows of {group, candidate, aspect, rating, score}, as JSON lines or CSV. Printed are Pearson, Spearman
and Kendall's tau-b at summary, sample and system level, each with a 95 % interval from resampling groups.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import InputError

if TYPE_CHECKING:
    from data.agreement import Agreement, AgreementTable
    from data.schema import Scale
    from runs.rated_scores import Rows

_LEVELS = {
    "summary": "summary level: the correlation within each group, averaged over groups",
    "sample": "sample level: all candidates pooled",
    "system": "system level: means of each candidate id over groups",
}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agreement.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", metavar="FILE", help="rows of scores beside ratings, .jsonl or .csv")
    parser.add_argument("--aspects", help="comma-separated; all in the file by default")
    parser.add_argument("--scale", help="LOW-HIGH: read recorded replies in `samples` on this scale")
    parser.add_argument("--resamples", type=int, default=10_000, help="of the groups, for the intervals (10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the resampling (0)")
    parser.add_argument("--json", nargs="?", const="-", metavar="OUT", help="emit JSON, to a file or to stdout")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the agreement; returns the exit code (0 done, 2 bad input)."""
    arguments = build_parser().parse_args(argv)
    try:
        return _run(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    from data.agreement import agreement_table
    from runs.rated_scores import read_rows

    for name in ("resamples", "seed"):
        if getattr(arguments, name) < 0:
            raise InputError(
                "number too small", field=f"--{name}", expected="0 or more", found=getattr(arguments, name)
            )
    _check_output(arguments)
    only = tuple(a.strip() for a in (arguments.aspects or "").split(",") if a.strip())
    rows = read_rows(Path(arguments.file), scale=_scale(arguments.scale), only=only)
    with tqdm(total=arguments.resamples, desc="resampling", file=sys.stderr, delay=2, leave=False) as bar:
        table = agreement_table(rows.aspects, resamples=arguments.resamples, seed=arguments.seed, progress=bar.update)
    text = json.dumps(table.to_json(), indent=2, allow_nan=False)
    if arguments.json == "-":
        print(text)
        return 0
    print(_render(table, rows))
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    return 0


def _check_output(arguments: argparse.Namespace) -> None:
    """Refuse an output that cannot be written, or that would be the input, before anything is computed."""
    if arguments.json in (None, "-"):
        return
    out = Path(arguments.json)
    if out.exists() and Path(arguments.file).exists() and out.samefile(arguments.file):
        raise InputError("the output would replace the input", field="--json", found=arguments.json)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise InputError("cannot be written", field="--json", expected="a file in a folder that exists", found=out.name)


def _scale(text: str | None) -> Scale | None:
    from data.schema import Scale

    if text is None:
        return None
    low, _, high = text.partition("-")
    try:
        return Scale(float(low), float(high))
    except ValueError:
        raise InputError("not a scale", field="--scale", expected="LOW-HIGH, e.g. 1-5", found=text) from None


def _render(table: AgreementTable, rows: Rows) -> str:
    from data.agreement import LEVELS, NAMES, STATISTICS
    from runs.report import interval, text_table

    lines = [f"{rows.rows} rows, {len(rows.aspects)} aspects; 95 % intervals by resampling groups"]
    if rows.samples:
        lines.append(f"{rows.samples} recorded samples read, {rows.unreadable} without a score on the scale")
    for level in LEVELS:
        header = ["aspect", *(NAMES[s] for s in STATISTICS), "groups", "undefined", "unscored"]
        if level == "summary":
            header[4:4] = [f"{NAMES[s]}, undef. = 0" for s in STATISTICS]
        body = []
        averaged = [("average", table.average[level])] if len(table.aspects) > 1 else []
        for name, cells in [*((a, t[level]) for a, t in table.aspects.items()), *averaged]:
            row = [name, *(interval(cells[s]) for s in STATISTICS)]
            if level == "summary":
                row += [_as_zero(cells[s]) for s in STATISTICS]
            any_cell = cells["spearman"]
            body.append([*row, str(any_cell.groups), str(any_cell.undefined), str(any_cell.unscored)])
        lines += ["", _LEVELS[level], "", text_table(header, body, rule_before_last=bool(averaged))]
    lines += ["", "undefined: groups whose ratings or scores are constant; the first figures leave them out"]
    return "\n".join(lines)


def _as_zero(agreement: Agreement) -> str:
    value = agreement.value_undefined_as_zero
    return "–" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
