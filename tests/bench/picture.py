"""Makes the picture of a report that the README shows: its beginning, and a debate, side by side.

    python -m tests.bench.picture runs/store/exports/NAME/report.html runs/reports/html/report.png

The page is of the sample, whose texts may be shown.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from tests.browser import Browser

WIDTH, HEIGHT, GAP = 1000, 1330, 20

COLOURS = 64
"""So many that texts stay smooth."""


def picture(page: Path, file: Path) -> None:
    with Browser() as browser, TemporaryDirectory() as folder:
        opened = browser.open(page, width=WIDTH, height=HEIGHT)
        top, debate = Path(folder) / "top.png", Path(folder) / "debate.png"
        opened.value("document.documentElement.style.scrollbarWidth = 'none'")
        opened.screenshot(top)
        opened.value("document.querySelector('#debates').scrollIntoView({behavior: 'instant'})")
        opened.screenshot(debate)
        whole = Image.new("RGB", (2 * WIDTH + GAP, HEIGHT), "#d0d7de")
        for number, part in enumerate((top, debate)):
            with Image.open(part) as shot:
                whole.paste(shot, (number * (WIDTH + GAP), 0))
    whole.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(file, optimize=True)


if __name__ == "__main__":
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
