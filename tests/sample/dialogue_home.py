"""Twelve invented conversations about home, food, animals and hobbies, each with a fact to bring in."""

from __future__ import annotations

from tests.sample.texts import Dialogue

HOME: tuple[Dialogue, ...] = (
    Dialogue(
        id="octopus-visit",
        turns=(
            "We took the kids to the aquarium on Saturday and they would not leave the octopus tank.",
            "I can see why. Did it do anything clever?",
            "It opened a jar to get a crab out and then turned pale when my son tapped the glass. Do you know much "
            "about them?",
        ),
        fact="An octopus has three hearts, and one of them stops beating while it swims.",
        reply="A little. An octopus has three hearts, and one of them actually stops while it swims, so no wonder it "
        "prefers to sit there and open jars. Did your son get to see it move around?",
        wrong=("three", "seven"),
        ungrounded="Not really, but I love watching them change colour. I could stand at that tank all day with your "
        "kids. Was it a big one?",
    ),
    Dialogue(
        id="first-marathon",
        turns=(
            "I signed up for a marathon last night and woke up wondering what I had done.",
            "Congratulations, I think! Have you run that far before?",
            "Never more than half of it. And why is it such an odd distance anyway?",
        ),
        fact="The marathon distance of 42.195 kilometres was first run at the London Olympics of 1908.",
        reply="You can blame London for that. The 42.195 kilometres were first run at the Olympics there in 1908, and "
        "everybody has suffered the extra bit since then. When is your race?",
        wrong=("1908", "1936"),
        ungrounded="I have often asked myself the same thing. Running half of it is already impressive, so the rest "
        "may just be patience. When is your race?",
    ),
    Dialogue(
        id="coffee-habit",
        turns=(
            "My doctor asked how much coffee I drink and I lied.",
            "How bad is the truth?",
            "Five cups on a quiet day. Please tell me that somebody drinks more than I do.",
        ),
        fact="Finland drinks more coffee per person than almost any other country, about 12 kilograms a year.",
        reply="You would be quite ordinary in Finland. People there get through about 12 kilograms of coffee a year "
        "each, which is close to the world record. Maybe tell your doctor that you have Finnish roots?",
        wrong=("12", "45"),
        ungrounded="My sister does, and she still sleeps like a stone. I would tell the doctor the truth next time, "
        "though. Have you ever tried to stop at three?",
    ),
    Dialogue(
        id="bamboo-fence",
        turns=(
            "Our new neighbours can look straight into the kitchen, so I want something green along the fence.",
            "A hedge would take years.",
            "Exactly, so my husband wants bamboo. Is it really that quick?",
            "Quick enough to frighten my uncle.",
            "Now I am curious. What happened to your uncle?",
        ),
        fact="Some kinds of bamboo can grow as much as 91 centimetres in a single day.",
        reply="He went away for a week and came home to a jungle. Some kinds of bamboo can grow 91 centimetres in a "
        "single day, so he spent the summer digging it out of the lawn. Get one that stays in clumps!",
        wrong=("91", "4"),
        ungrounded="He planted one small pot and ended up with a jungle. He spent a whole summer digging it out of the "
        "lawn and still talks about it. Maybe ask at the garden shop first?",
    ),
    Dialogue(
        id="piano-tuner",
        turns=(
            "The piano tuner was here for three hours today. Three hours!",
            "That sounds like a lot. Is something broken?",
            "She said no, it just needed a proper tuning. What takes so long with 88 keys?",
        ),
        fact="A modern piano has about 230 strings, because most notes are played on two or three of them.",
        reply="It is not the keys, it is what hides behind them. A piano has about 230 strings, since most notes use "
        "two or three, and she has to tune every single one. Three hours sounds almost fast to me!",
        wrong=("230", "60"),
        ungrounded="I suppose it is slow work if you want it done properly. My old teacher used to make tea and let "
        "the tuner get on with it. Does it sound better now?",
    ),
    Dialogue(
        id="lazy-sloth",
        turns=(
            "My daughter has decided to be a sloth for the school play.",
            "That must be the easiest costume and the hardest role.",
            "She practises by lying on the sofa. Is there anything a sloth actually does?",
        ),
        fact="Sloths climb down from their tree only about once a week, to relieve themselves on the ground.",
        reply="One thing, and it may not suit the stage. About once a week a sloth climbs all the way down its tree "
        "to go to the toilet, and then it climbs back up. She could make that a very dramatic scene!",
        wrong=("week", "year"),
        ungrounded="Hanging around and looking pleased, as far as I can tell. I think the sofa is a fine place to "
        "rehearse. Does she have any lines to learn?",
    ),
    Dialogue(
        id="honey-price",
        turns=(
            "I nearly fainted at the market. Nine euros for a small jar of honey!",
            "Was it at least local?",
            "From a hive two streets away. I like the man, but how can it cost that much?",
        ),
        fact="In its whole life a honeybee makes about one twelfth of a teaspoon of honey.",
        reply="Think of the staff he needs. A honeybee makes about one twelfth of a teaspoon of honey in its whole "
        "life, so your jar is the work of a small town. Suddenly nine euros seems fair, doesn't it?",
        wrong=("one twelfth of a teaspoon", "two full tablespoons"),
        ungrounded="I would guess that it is a lot of work for one man. Good things from nearby always seem to cost "
        "more than the ones from far away. Did you buy it in the end?",
    ),
    Dialogue(
        id="saffron-recipe",
        turns=(
            "I am cooking paella for my in-laws and the recipe says a gram of saffron.",
            "Do you have any idea what that costs?",
            "I do now. The shop keeps it behind the counter like jewellery. Why is it so dear?",
        ),
        fact="It takes about 150 crocus flowers, picked by hand, to make one gram of saffron.",
        reply="Because somebody had to pick about 150 crocus flowers by hand for that one gram. Half of it will do "
        "for a family dinner, and your in-laws will never know. Are you making it with seafood?",
        wrong=("150", "10"),
        ungrounded="I have no idea, but I would hide it from the children. Half of it will do for a family dinner, and "
        "your in-laws will never know. Are you making it with seafood?",
    ),
    Dialogue(
        id="sleepy-cat",
        turns=(
            "I think there is something wrong with our cat. She sleeps all day long.",
            "How old is she?",
            "Just two. She eats, she looks at the wall, and she goes back to bed. Should I worry?",
        ),
        fact="A healthy adult cat sleeps between 12 and 16 hours a day.",
        reply="If she eats well, probably not. A healthy cat sleeps between 12 and 16 hours a day, so yours may simply "
        "be good at her job. Does she wake up when you open a tin?",
        wrong=("16", "22"),
        ungrounded="She sounds like every cat I have ever met. I would enjoy the peace and buy her a softer bed. Does "
        "she wake up when you open a tin?",
    ),
    Dialogue(
        id="brick-box",
        turns=(
            "My nephew got a huge box of Lego and built the same red car four times.",
            "Well, he knows what he likes.",
            "I told him that there is more to do with those bricks. Now he wants me to prove it. Help!",
        ),
        fact="Six Lego bricks with eight studs each can be put together in more than 915 million ways.",
        reply="Give him six bricks with eight studs and tell him that they fit together in more than 915 million ways. "
        "That should keep him busy until he leaves school. Or will he ask you to count them?",
        wrong=("915 million", "40 thousand"),
        ungrounded="Build him something silly, like a shoe or a sandwich. Children believe you as soon as they see it "
        "on the table. Or does he only care about cars?",
    ),
    Dialogue(
        id="berry-quiz",
        turns=(
            "Our pub quiz team lost by one point because of a fruit.",
            "A fruit? Which one?",
            "They asked for a yellow berry and I wrote gooseberry. The answer was apparently something else.",
            "And you are still angry, I hear.",
            "Furious. Can you guess what they wanted to hear?",
        ),
        fact="To a botanist a banana is a berry, while a strawberry is not.",
        reply="I fear that they wanted banana. To a botanist it is a proper berry, while a strawberry is not one at "
        "all, so the words on a menu are no help. I would still have given you half a point!",
        wrong=("banana", "pear"),
        ungrounded="I would only embarrass myself, so please just tell me. One point is a cruel way to lose after a "
        "whole evening. Will you go again next week?",
    ),
    Dialogue(
        id="sticky-note",
        turns=(
            "My desk has more sticky notes than wood by now.",
            "Mine too. I wonder how we ever worked without them.",
            "Someone must have been looking for a glue that barely holds. Who would do that on purpose?",
        ),
        fact="The weak glue of sticky notes was found by accident in 1968, by a chemist who wanted a strong one.",
        reply="Nobody did, that is the nice part. A chemist was looking for a strong glue in 1968 and got this weak "
        "one by accident. It makes me feel better about my own failures at work!",
        wrong=("1968", "1899"),
        ungrounded="Somebody with a very untidy desk, I imagine. I write on mine and then forget to read them for a "
        "month. Do yours at least have a system?",
    ),
)
