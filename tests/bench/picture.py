"""Makes the picture of a report that the README shows: its beginning, and a debate, side by side.

    python -m tests.bench.picture runs/store/exports/NAME/report.html runs/reports/report.png

The page is of the sample, whose texts may be shown.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

WIDTH, HEIGHT, GAP = 1000, 1330, 20

COLOURS = 64
"""So many that texts stay smooth."""


def picture(page: Path, file: Path) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    whole = Image.new("RGB", (2 * WIDTH + GAP, HEIGHT), "#d0d7de")
    with TemporaryDirectory() as folder:
        shot = Path(folder) / "page.png"
        flags = ["--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{2 * HEIGHT}"]
        subprocess.run([chromium, *flags, f"--screenshot={shot}", page.resolve().as_uri()], check=True, timeout=60)
        with Image.open(shot) as tall:
            for number in range(2):
                part = tall.crop((0, number * HEIGHT, WIDTH, (number + 1) * HEIGHT))
                whole.paste(part, (number * (WIDTH + GAP), 0))
    whole.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(file, optimize=True)


if __name__ == "__main__":
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
