"""Twelve invented conversations about travel, nature, sport and culture, each with a fact to bring in."""

from __future__ import annotations

from tests.sample.texts import Dialogue

WORLD: tuple[Dialogue, ...] = (
    Dialogue(
        id="long-day",
        turns=(
            "Mondays at this office feel as if they last for months.",
            "Only because you start at six.",
            "I swear that the clock goes backwards after lunch. Is there any place where it is worse?",
        ),
        fact="Venus turns so slowly that one rotation takes 243 Earth days, longer than its year.",
        reply="Try Venus. It turns so slowly that one rotation takes 243 of our days, which is longer than its whole "
        "year. Imagine a Monday there, with the coffee machine out of order!",
        wrong=("243", "30"),
        ungrounded="I once worked in a shop that sold nothing but buttons, and that was worse. The clock there had no "
        "hands at all. Could you start a little later?",
    ),
    Dialogue(
        id="chess-lesson",
        turns=(
            "I have started to learn chess and I lose to the app on the easiest level.",
            "Everyone does at first. Do you learn openings by heart?",
            "I tried, but there seem to be so many. How can anybody remember them all?",
        ),
        fact="After each player has made one move in chess, there are 400 possible positions.",
        reply="They can't, so don't even try. After one single move by each player there are already 400 possible "
        "positions, and it only gets wilder from there. Learn one opening and let the app worry about the rest.",
        wrong=("400", "25"),
        ungrounded="They play a lot and forget most of it, I suppose. I would pick one opening that I like and stay "
        "with it for a month. Does the app show you your mistakes?",
    ),
    Dialogue(
        id="tower-trip",
        turns=(
            "We are off to Paris in July, and my mother wants to climb the tower.",
            "In that heat? Brave woman.",
            "She is 71 and trains on our stairs. Is it true that the tower changes with the weather?",
        ),
        fact="The Eiffel Tower can be up to 15 centimetres taller in summer, because iron expands in the heat.",
        reply="It is! The iron expands in the heat, so the tower can be up to 15 centimetres taller in summer. Tell "
        "your mother that she will climb a little higher than the winter tourists.",
        wrong=("15", "90"),
        ungrounded="I have heard people say so, but I never looked into it. Your mother will be at the top before all "
        "of you, I am sure. Have you booked the tickets?",
    ),
    Dialogue(
        id="endless-tennis",
        turns=(
            "My brother and I played tennis yesterday and neither of us could finish the set.",
            "How long were you out there?",
            "Almost three hours, until they switched off the lights. It must be some kind of record.",
        ),
        fact="The longest tennis match, at Wimbledon in 2010, lasted more than 11 hours over three days.",
        reply="Not quite, sorry! At Wimbledon in 2010 two men played for more than 11 hours, and it took them three "
        "days to finish. But they were paid for it, and you had to go to work today.",
        wrong=("11 hours", "6 hours"),
        ungrounded="At your age it certainly is! I would have given up after an hour and bought everyone an ice cream. "
        "Are you going to finish it next weekend?",
    ),
    Dialogue(
        id="fast-train",
        turns=(
            "I have just booked seats on the bullet train to Osaka and I am as excited as a child.",
            "Lucky you! Will you see Mount Fuji from the window?",
            "If the weather is kind. It all feels so futuristic, they must be very new.",
        ),
        fact="Japan's first bullet train line opened in 1964, shortly before the Tokyo Olympics.",
        reply="The funny thing is that they are older than we are. The first line opened in 1964, just before the "
        "Olympics in Tokyo, and it still feels like the future. Which side of the train is your seat on?",
        wrong=("1964", "1997"),
        ungrounded="I would be just as excited. I can already see you with your nose against the window and a lunch "
        "box on your knees. Which side of the train is your seat on?",
    ),
    Dialogue(
        id="old-cartoon",
        turns=(
            "We watched Toy Story with the twins on Sunday, and I cried again.",
            "Everybody does. Did they like it?",
            "They thought it was brand new. I did not have the heart to tell them how old it is.",
        ),
        fact="Toy Story, released in 1995, was the first full-length film made entirely by computer.",
        reply="It came out in 1995, so it could be their uncle. It was the first full-length film made entirely by "
        "computer, and it still looks fine on a Sunday. Will you show them the second one?",
        wrong=("1995", "2006"),
        ungrounded="Let them believe it for as long as they can. A good story does not get old, and neither do we. "
        "Will you show them the second one?",
    ),
    Dialogue(
        id="green-lights",
        turns=(
            "We finally saw the northern lights, after four nights in a freezing hut.",
            "Was it worth the cold feet?",
            "Absolutely. The whole sky was green and moving. Do you know where that green comes from?",
        ),
        fact="The green of the northern lights comes from oxygen about 100 kilometres above the ground.",
        reply="From plain oxygen, of all things, glowing about 100 kilometres above your freezing hut. So the same "
        "stuff that you were breathing put on the show. Did you manage to take a picture?",
        wrong=("oxygen", "helium"),
        ungrounded="I never understood it, to be honest, and maybe I don't want to. It sounds like something that one "
        "should just look at. Did you manage to take a picture?",
    ),
    Dialogue(
        id="desert-test",
        turns=(
            "My son came home with a geography test and a big red mark on it.",
            "Oh dear. What did he get wrong?",
            "He wrote the Sahara as the largest desert on Earth. I would have written that too!",
        ),
        fact="The largest desert on Earth is Antarctica, since a desert is defined by how little rain or snow falls.",
        reply="So would most people. But a desert only needs to be dry, not hot, and that makes Antarctica the "
        "largest one. Tell him that penguins live in a desert, and he will never forget it.",
        wrong=("Antarctica", "Australia"),
        ungrounded="So would most people, so I hope that the teacher was kind. One red mark is not the end of the "
        "world. What was the rest of the test like?",
    ),
    Dialogue(
        id="dutch-bikes",
        turns=(
            "I spent the weekend in Utrecht and was almost run over by a bicycle four times.",
            "Only four? You must have been careful.",
            "They come from everywhere! How many of those things can one country own?",
        ),
        fact="The Netherlands has about 23 million bicycles, which is more than it has people.",
        reply="About 23 million, so there are more bicycles than people. You were simply in the minority on foot. "
        "Next time you should rent one and join the winning side!",
        wrong=("23", "5"),
        ungrounded="Enough to frighten every tourist, it seems. I learned to listen for the bells and jump. Next time "
        "you should rent one and join the winning side!",
    ),
    Dialogue(
        id="whale-heart",
        turns=(
            "The museum has hung up a whale skeleton, and you can walk right through its ribs.",
            "I have seen the posters. Is it a blue whale?",
            "Yes, and I felt like a shrimp. You can't imagine what must have been inside there.",
        ),
        fact="The heart of a blue whale weighs about 180 kilograms.",
        reply="A very big heart, for one thing. It weighs about 180 kilograms in a blue whale, so two of us together "
        "would hardly balance it. Did they have a model of it as well?",
        wrong=("180", "900"),
        ungrounded="I can't, and it makes me feel small just to think about it. I want to go there before the holidays "
        "begin. Was it very crowded?",
    ),
    Dialogue(
        id="crime-shelf",
        turns=(
            "I have inherited my aunt's bookshelf, and it is nothing but Agatha Christie.",
            "That sounds like a good winter to me.",
            "It would be, if I knew how many are missing. Do you have any idea how much she wrote?",
        ),
        fact="Agatha Christie wrote 66 detective novels, besides her short stories and plays.",
        reply="She wrote 66 detective novels, and that is without the short stories and plays. Count your aunt's "
        "copies and I will help you to hunt for the rest. Which one will you read first?",
        wrong=("66", "19"),
        ungrounded="A great many, and I only ever guess the murderer on the last page. I would begin on the left and "
        "see how far you get. Which one will you read first?",
    ),
    Dialogue(
        id="space-morning",
        turns=(
            "I got up at four to see the space station pass over our roof.",
            "Did you see it?",
            "For three minutes, and then it was gone. I waited, but my neighbour said it would be back soon. Was he "
            "joking?",
        ),
        fact="The International Space Station circles the Earth about 16 times a day.",
        reply="He was right, in a way. The station circles the Earth about 16 times a day, although it does not pass "
        "over your roof each time. There are apps that tell you when, so you could sleep until five!",
        wrong=("16", "3"),
        ungrounded="Your neighbour sounds like someone who enjoys a joke. Three minutes at four in the morning is more "
        "than I have ever managed. Will you try again tomorrow?",
    ),
)
