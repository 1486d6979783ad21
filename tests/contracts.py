"""What every loader must satisfy, whoever writes it.

The judge and tuner parts stand beside their tests; this is the part about data.
"""

from __future__ import annotations

from data.schema import Corpus


def check_corpus(corpus: Corpus) -> None:
    """Assert what the rest of the project relies on:

    1. There are groups, and no id, no candidate id inside a group and no source text occurs twice.
    2. Every text has something in it and can be written as UTF-8.
    3. Every rating belongs to an aspect of the task, lies on its scale and is a float; some candidate is rated.
    4. The origin has a name and a location, and the digest does not depend on when it is computed.
    """
    assert corpus.groups
    assert len({g.id for g in corpus.groups}) == len(corpus.groups)
    assert len({" ".join(g.source.split()) for g in corpus.groups}) == len(corpus.groups)
    for group in corpus.groups:
        assert len({c.id for c in group.candidates}) == len(group.candidates)
        for text in (group.id, group.source, *group.references):
            assert text.strip()
            assert text.encode()
        assert not group.context or group.context.strip()
        for candidate in group.candidates:
            assert candidate.id.strip()
            assert candidate.text.strip()
            assert candidate.text.encode()
            for name, values in candidate.ratings.items():
                scale = corpus.task.aspect(name).scale
                assert values, f"{group.id}/{candidate.id}: {name} without a value should be left out"
                assert all(type(v) is float and scale.contains(v) for v in values), (group.id, candidate.id, name)
    assert corpus.rated_aspects()
    assert corpus.origin.name
    assert corpus.origin.location
    assert corpus.digest == Corpus(corpus.task, corpus.groups, corpus.origin).digest
