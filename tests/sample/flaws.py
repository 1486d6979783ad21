"""What the sample's files do not have, and defects need: what can be got wrong in a good text, and more to say."""

from __future__ import annotations

Swap = tuple[str, str]
"""The right words of a text, and the wrong ones that a defect puts in their place."""

FLAWS: dict[str, tuple[tuple[Swap, ...], str]] = {
    # Two numbers of the summary, each with one that the article does not contain; two claims that are not in it.
    "electric-ferry": (
        (("240", "420"), ("14", "40")),
        "The old diesel boat will be sunk off the coast as a reef for divers. "
        "Two neighbouring harbours have already ordered the same model.",
    ),
    "library-fines": (
        (("11", "9"), ("3,200", "5,400")),
        "The library will also open on Sundays for the first time. "
        "A bank has offered to cover the lost income for five years.",
    ),
    "beaver-dam": (
        (("28", "82"), ("340,000", "950,000")),
        "Engineers from the ministry fear that the dam could burst in a heavy storm. "
        "The beavers had escaped from a wildlife park in the next valley.",
    ),
    "market-fire": (
        (("17", "35"), ("2.3", "6.8")),
        "Police have questioned two teenagers who were seen near the hall. "
        "The council has promised to fit sprinklers in every public building.",
    ),
    "bicycle-bus": (
        (("162", "310"), ("38", "71")),
        "A company from the capital pays for the helmets of all the riders. "
        "Three children were slightly injured in a fall last month.",
    ),
    "town-clock": (
        (("1,146", "3,460"), ("58,000", "19,000")),
        "The clock is the oldest in the country and was built for a queen. "
        "A museum had offered to buy the works for its collection.",
    ),
    "bridge-delay": (
        (("26", "62"), ("9,400", "2,100")),
        "The county blames the builder and wants the money back in court. "
        "A new bridge with four lanes is planned for the same place.",
    ),
    "night-bus": (
        (("13", "27"), ("1,870", "4,250")),
        "Taxi drivers have announced a strike against the new line. "
        "The operator will hire only drivers who live in the district.",
    ),
    "lake-sponge": (
        (("34", "120"), ("180", "65")),
        "The sponge contains a substance that could be used against cancer. "
        "Fishermen had reported the strange animal for decades without being believed.",
    ),
    "nurse-naps": (
        (("312", "840"), ("31", "64")),
        "Nurses who slept also reported fewer headaches and less back pain. "
        "A union had called for the naps for more than a decade.",
    ),
    "telescope-crack": (
        (("18", "75"), ("140", "290")),
        "The director has offered to resign over the accident. An insurance company has refused to pay for the damage.",
    ),
    "rooftop-bees": (
        (("11,600", "48,000"), ("9", "33")),
        "Scientists found no trace of pesticides in the honey. "
        "The opera house plans to give every subscriber a free jar.",
    ),
    "glacier-poles": (
        (("4.6", "1.9"), ("65", "20")),
        "Hikers are no longer allowed on the ice without a guide. "
        "Eleven other glaciers in the country showed the same record loss.",
    ),
    "vineyard-dogs": (
        (("94", "58"), ("600", "2,500")),
        "A chemical company is working on a spray that imitates the smell. "
        "The two dogs were rescued from a shelter as puppies.",
    ),
    "clinic-truck": (
        (("5,120", "12,900"), ("214", "37")),
        "The hospital in the capital has lost a tenth of its patients to the truck. "
        "Medicines are handed out free of charge to children and pensioners.",
    ),
    "roman-bakery": (
        (("1,900", "3,400"), ("26", "310")),
        "Thieves broke into the site on the night after the discovery. "
        "Gold coins worth a fortune lay hidden behind the largest oven.",
    ),
    "chocolate-strike": (
        (("640", "280"), ("83", "52")),
        "The company will close its second factory by the end of the year. "
        "A rival brand used the strike to win over several supermarket chains.",
    ),
    "bottle-deposit": (
        (("25", "80"), ("34", "59")),
        "Tourists complain that most of the machines take only local coins. "
        "Two other island states have already copied the law.",
    ),
    # What the reply must get right of the fact, and a wrong one; a pleasant reply that does not use the fact.
    "octopus-visit": (
        (("three", "seven"),),
        "Not really, but I love watching them change colour. I could stand at that tank all day with your kids. "
        "Was it a big one?",
    ),
    "first-marathon": (
        (("1908", "1936"),),
        "I have often asked myself the same thing. Running half of it is already impressive, so the rest may just "
        "be patience. When is your race?",
    ),
    "coffee-habit": (
        (("12", "45"),),
        "My sister does, and she still sleeps like a stone. I would tell the doctor the truth next time, though. "
        "Have you ever tried to stop at three?",
    ),
    "bamboo-fence": (
        (("91", "4"),),
        "He planted one small pot and ended up with a jungle. He spent a whole summer digging it out of the lawn "
        "and still talks about it. Maybe ask at the garden shop first?",
    ),
    "piano-tuner": (
        (("230", "60"),),
        "I suppose it is slow work if you want it done properly. My old teacher used to make tea and let the "
        "tuner get on with it. Does it sound better now?",
    ),
    "lazy-sloth": (
        (("week", "year"),),
        "Hanging around and looking pleased, as far as I can tell. I think the sofa is a fine place to rehearse. "
        "Does she have any lines to learn?",
    ),
    "honey-price": (
        (("one twelfth of a teaspoon", "two full tablespoons"),),
        "I would guess that it is a lot of work for one man. Good things from nearby always seem to cost more "
        "than the ones from far away. Did you buy it in the end?",
    ),
    "saffron-recipe": (
        (("150", "10"),),
        "I have no idea, but I would hide it from the children. Half of it will do for a family dinner, and your "
        "in-laws will never know. Are you making it with seafood?",
    ),
    "sleepy-cat": (
        (("16", "22"),),
        "She sounds like every cat I have ever met. I would enjoy the peace and buy her a softer bed. Does she "
        "wake up when you open a tin?",
    ),
    "brick-box": (
        (("915 million", "40 thousand"),),
        "Build him something silly, like a shoe or a sandwich. Children believe you as soon as they see it on the "
        "table. Or does he only care about cars?",
    ),
    "berry-quiz": (
        (("banana", "pear"),),
        "I would only embarrass myself, so please just tell me. One point is a cruel way to lose after a whole "
        "evening. Will you go again next week?",
    ),
    "sticky-note": (
        (("1968", "1899"),),
        "Somebody with a very untidy desk, I imagine. I write on mine and then forget to read them for a month. "
        "Do yours at least have a system?",
    ),
    "long-day": (
        (("243", "30"),),
        "I once worked in a shop that sold nothing but buttons, and that was worse. The clock there had no hands "
        "at all. Could you start a little later?",
    ),
    "chess-lesson": (
        (("400", "25"),),
        "They play a lot and forget most of it, I suppose. I would pick one opening that I like and stay with it "
        "for a month. Does the app show you your mistakes?",
    ),
    "tower-trip": (
        (("15", "90"),),
        "I have heard people say so, but I never looked into it. Your mother will be at the top before all of "
        "you, I am sure. Have you booked the tickets?",
    ),
    "endless-tennis": (
        (("11 hours", "6 hours"),),
        "At your age it certainly is! I would have given up after an hour and bought everyone an ice cream. Are "
        "you going to finish it next weekend?",
    ),
    "fast-train": (
        (("1964", "1997"),),
        "I would be just as excited. I can already see you with your nose against the window and a lunch box on "
        "your knees. Which side of the train is your seat on?",
    ),
    "old-cartoon": (
        (("1995", "2006"),),
        "Let them believe it for as long as they can. A good story does not get old, and neither do we. Will you "
        "show them the second one?",
    ),
    "green-lights": (
        (("oxygen", "helium"),),
        "I never understood it, to be honest, and maybe I don't want to. It sounds like something that one should "
        "just look at. Did you manage to take a picture?",
    ),
    "desert-test": (
        (("Antarctica", "Australia"),),
        "So would most people, so I hope that the teacher was kind. One red mark is not the end of the world. "
        "What was the rest of the test like?",
    ),
    "dutch-bikes": (
        (("23", "5"),),
        "Enough to frighten every tourist, it seems. I learned to listen for the bells and jump. Next time you "
        "should rent one and join the winning side!",
    ),
    "whale-heart": (
        (("180", "900"),),
        "I can't, and it makes me feel small just to think about it. I want to go there before the holidays "
        "begin. Was it very crowded?",
    ),
    "crime-shelf": (
        (("66", "19"),),
        "A great many, and I only ever guess the murderer on the last page. I would begin on the left and see how "
        "far you get. Which one will you read first?",
    ),
    "space-morning": (
        (("16", "3"),),
        "Your neighbour sounds like someone who enjoys a joke. Three minutes at four in the morning is more than "
        "I have ever managed. Will you try again tomorrow?",
    ),
}
"""A source of the sample -> what can be got wrong in its good text, and sentences that the good text has not."""
