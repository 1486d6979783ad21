"""The built-in tasks: summaries of news articles and replies in a dialogue, with rubrics in our own words.

The aspects and scales are those of the two sets that judges are usually compared on, SummEval (Fabbri et al.
2021) and USR's ratings of Topical-Chat (Mehri and Eskenazi 2020). Other tasks come from task files.
"""

from __future__ import annotations

from debate_judge.data.schema import Aspect, Scale, Task

_FIVE_POINTS = Scale(1, 5)
_THREE_POINTS = Scale(1, 3)
_YES_NO = Scale(0, 1)

SUMMARIZATION = Task(
    name="summarization",
    source_label="news article",
    candidate_label="summary",
    aspects=(
        Aspect(
            "coherence",
            "How well the summary holds together as one text. Look at how the sentences connect: does each follow "
            "from what came before, is the order sensible, do pronouns and connectives point to something that was "
            "said, is anything said twice? 1 is a heap of sentences with no thread; 3 can be followed but jumps or "
            "circles back; 5 leads from the main point through its details as one organised whole.",
            _FIVE_POINTS,
        ),
        Aspect(
            "consistency",
            "Whether the article supports what the summary says. Check every statement, number, name and "
            "who-did-what against the article; what contradicts it, or cannot be found in it, is an error even if "
            "it may be true in the world. Omissions and style do not count here. 1 is mostly contradicted or "
            "invented; 3 has a serious error among supported statements; 5 says nothing that the article does not.",
            _FIVE_POINTS,
        ),
        Aspect(
            "fluency",
            "The language of the summary, sentence by sentence. Look for broken grammar, fragments, words that are "
            "missing, doubled or cut off, and wrong punctuation; lower-casing and blanks around punctuation come "
            "from processing and are no errors. Content and the order of sentences do not count here. 1 is hard to "
            "read because of its errors; 3 has errors that disturb; 5 reads like edited prose.",
            _FIVE_POINTS,
        ),
        Aspect(
            "relevance",
            "Whether the summary picks what matters in the article. Settle first what a reader must know from the "
            "article, then see how much of that is there and how much room goes to side issues, repetition or "
            "padding. 1 misses the main points or is filled with trivia; 3 has some main points and leaves out or "
            "buries others; 5 has all main points and nothing that could go.",
            _FIVE_POINTS,
        ),
    ),
)

DIALOGUE = Task(
    name="dialogue",
    source_label="dialogue history",
    candidate_label="reply",
    context_label="fact",
    aspects=(
        Aspect(
            "naturalness",
            "Whether a person could have said the reply at this point of the conversation. Look for wording that "
            "people do not use: loops, broken or mechanical sentences, a speaker who forgets who is who. 1 would "
            "not come from a person; 2 could, but is odd in places; 3 sounds like ordinary talk.",
            _THREE_POINTS,
        ),
        Aspect(
            "coherence",
            "Whether the reply continues this dialogue. Look at the last turn first: is it answered or taken up? "
            "Then see whether the reply fits what was said before, without contradicting or repeating it. 1 ignores "
            "or contradicts the dialogue; 2 touches its topic but misses the point of the last turn; 3 follows from "
            "it directly.",
            _THREE_POINTS,
        ),
        Aspect(
            "engagingness",
            "Whether the reply makes the other person want to go on talking. Specific information, an opinion, "
            "humour or a good question raise it; stock phrases, bare agreement and repetition lower it. 1 is dull "
            "and could stand in any conversation; 2 is acceptable without adding much; 3 is interesting.",
            _THREE_POINTS,
        ),
        Aspect(
            "groundedness",
            "Whether the reply makes use of the given fact. Look for content of the fact that the dialogue did not "
            "have yet: a detail, a name, a number, also in other words. 0 uses nothing of it or only shares its "
            "topic; 1 clearly uses it. Where no fact is given there is none to miss, and the reply gets 1.",
            _YES_NO,
        ),
        Aspect(
            "understandability",
            "Whether one can tell, knowing the dialogue, what the reply means. Look for references that lead "
            "nowhere and sentences whose sense cannot be made out; a dull, false or off-topic reply can be perfectly "
            "understandable. 0 leaves the reader guessing; 1 is clear.",
            _YES_NO,
        ),
        Aspect(
            "overall",
            "How good the reply is as the next turn, all in all. Weigh whether it makes sense here, sounds human, "
            "carries the conversation on and uses the fact well; a serious failure in one of these outweighs small "
            "merits in the others. 1 is a very bad reply; 3 is passable but forgettable or flawed; 5 is what a "
            "good partner in this conversation would have said.",
            _FIVE_POINTS,
        ),
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in (SUMMARIZATION, DIALOGUE)}
