"""Published correlations, computed again from published scores.

    python -m tests.bench.published FOLDER

FOLDER is `reproduce/` of a checkout of UniEval (github.com/maszhongming/UniEval, MIT): its README has tables of
correlations over all texts, and `unieval_predict/` has the scores that they were computed from. The largest difference
is that of rounding to six digits, 5e-7.
"""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from debate_judge.data.agreement.correlations import correlation
from debate_judge.data.agreement.figures import STATISTICS

FILES = {
    "topical_chat": "dialogue/topical_chat",
    "SFRES": "data2text/sfres",
    "SFHOT": "data2text/sfhot",
    "QAGS_Xsum": "fact/qags_xsum",
    "QAGS_CNNDM": "fact/qags_cnndm",
}
_ROW = re.compile(r"\|\s*(\w+)\s*" + r"\|\s*([\d.]+)\s*" * 3)


def differences(folder: Path) -> dict[str, list[float]]:
    """Data set -> for each figure of its table, the absolute difference of the computed from the published one."""
    _, _, tables = (
        (folder / "README.md").read_text(encoding="utf-8").partition("dialogue response generation should be")
    )
    by_set: dict[str, list[float]] = {name: [] for name in FILES}
    name = "topical_chat"
    for line in tables.splitlines():
        name = line.rstrip(":") if line.rstrip(":") in FILES else name
        if row := _ROW.match(line):
            aspect, *published = row.groups()
            texts = json.loads((folder / f"unieval_predict/{FILES[name]}_result.json").read_text(encoding="utf-8"))
            ratings, scores = ([text[side][aspect] for text in texts] for side in ("scores", "predict_scores"))
            for statistic, value in zip(STATISTICS, published, strict=True):
                by_set[name].append(abs((correlation(ratings, scores, statistic) or 0.0) - float(value)))
    return by_set


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    for name, values in differences(parser.parse_args().folder).items():
        print(f"{name}: {len(values)} published figures, largest difference {max(values):.1e}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
