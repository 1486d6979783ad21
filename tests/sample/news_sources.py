"""The articles of the sample, 24 in all."""

from __future__ import annotations

from tests.sample.news_science import SCIENCE
from tests.sample.news_town import TOWN
from tests.sample.news_work_play import WORK_PLAY
from tests.sample.texts import Article

NEWS: tuple[Article, ...] = (*TOWN, *SCIENCE, *WORK_PLAY)
