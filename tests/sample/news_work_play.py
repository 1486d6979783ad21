"""Eight invented news articles about business, sport and the arts."""

from __future__ import annotations

from tests.sample.texts import Article

WORK_PLAY: tuple[Article, ...] = (
    Article(
        id="chocolate-strike",
        text="""
        A strike at the Corvino chocolate works ended on Thursday after 19 days, just in time for the holiday season.
        The 640 workers will get a rise of 6 percent this year and 3 percent next year. They had asked for 10 percent,
        while the company had offered 2. The last night of talks went on for 14 hours and, according to the union,
        through 5 boxes of pralines. Corvino lost sales of about 8 million francs, and some shops had run out of its
        nut bars. Night work was the harder question, and from March nobody over 55 will have to do it. Union leader
        Greta Osei called the deal fair, and 83 percent of the members voted for it. Director Paul Winterfeld said
        that prices would go up slightly. On Friday the chimneys smoked again, and half the town smelled of cocoa.
        """,
        summary="""
        A strike of 19 days at the Corvino chocolate works has ended with a rise of 6 percent this year and 3 percent
        next year for its 640 workers. From March, nobody over 55 will have to do night work, and 83 percent of the
        union's members voted for the deal. Corvino lost sales of about 8 million francs, and its director said that
        prices would go up slightly.
        """,
        reference="""
        The workers of Corvino are making chocolate again after winning higher pay and freedom from night work
        after the age of 55. The strike cost the company 8 million francs in sales, and prices are set to rise a little.
        """,
        wrong=(("640", "280"), ("83", "52")),
        unsupported=(
            "The company will close its second factory by the end of the year.",
            "A rival brand used the strike to win over several supermarket chains.",
        ),
    ),
    Article(
        id="bottle-deposit",
        text="""
        Nine out of ten glass bottles in the island state of Pelagia now come back to the shop, a year after a deposit
        was introduced. Buyers pay 25 cents extra on each bottle and get them back from one of 1,300 machines. Before
        the law, only 34 percent of bottles were returned. Rubbish on the beaches has shrunk by half, according to
        volunteers who walked 88 kilometres of coast in both years. The brewers had fought the deposit in court for 3
        years, but now they save money because a washed bottle costs less than a new one. Shops with little room are
        unhappy, and 210 of them have been freed from the duty. Pupils in the harbour town of Lis paid for a class
        trip with 4,700 bottles. From next year the deposit will apply to cans as well. Environment minister Kofi
        Laurent returned the first one in front of the cameras, and the machine jammed.
        """,
        summary="""
        A year after Pelagia introduced a deposit of 25 cents, nine out of ten glass bottles come back to the shop.
        Only 34 percent were returned before the law, and rubbish on the beaches has shrunk by half. The brewers who
        had fought the deposit for 3 years now save money, and from next year the deposit will apply to cans as well.
        """,
        reference="""
        Pelagia's bottle deposit has raised returns from 34 percent to nine in ten and halved the rubbish on its
        beaches. Even the brewers gain, and cans are next.
        """,
        wrong=(("25", "80"), ("34", "59")),
        unsupported=(
            "Tourists complain that most of the machines take only local coins.",
            "Two other island states have already copied the law.",
        ),
    ),
    Article(
        id="chess-girl",
        text="""
        An 11-year-old from the mining town of Brunnick has become the youngest chess champion in the country's
        history. Nadia Fairweather won 7 of her 9 games at the national final, drew one and lost one. The old record
        was held by a boy of 14 and had stood since 1976. In the last round she gave up her queen on move 23 and won
        18 moves later against Viktor Salonen, a champion of 5 years. Salonen, 46, studied the board for a while and
        then asked her to sign it. Fairweather learned the game from a bus driver who kept a magnetic set beside the
        wheel. She trains for 2 hours a day and is not allowed to do more before her homework is done. The town will
        pay for her journey to the youth world cup in August. Asked about the prize of 6,000 dollars, she said that
        she wanted a dog.
        """,
        summary="""
        Nadia Fairweather, who is 11, has become the youngest chess champion in the country's history, breaking a
        record that had stood since 1976. She won 7 of her 9 games and gave up her queen to beat Viktor Salonen in the
        last round. The girl from Brunnick learned the game from a bus driver, and her town will pay for her journey
        to the youth world cup in August.
        """,
        reference="""
        A queen sacrifice in the final round made Nadia Fairweather, 11, the youngest national chess champion ever.
        Her home town sends her to the youth world cup in August.
        """,
        wrong=(("1976", "1952"), ("7", "3")),
        unsupported=(
            "Her parents have turned down an offer from a famous chess school abroad.",
            "Salonen announced his retirement directly after the defeat.",
        ),
    ),
    Article(
        id="football-promotion",
        text="""
        The women of Redwater Athletic will play in the first division for the first time, after a 2 to 1 win over
        Northgate on Sunday. Striker Amara Lindgren scored both goals, the second in minute 89 with her left knee.
        Only 6 years ago the club had no women's team and its captain was playing in goal for the men's reserves.
        Redwater lost just 3 of 26 matches this season and let in 15 goals. The stadium holds 2,200 people, but the
        first division demands seats for 5,000. Club president Rosa Delacroix hopes to add a wooden stand in 10 weeks
        and is looking for 750,000 dollars. Otherwise the team would have to play its home matches in Northgate, 45
        kilometres away. Fans carried the coach through the fountain on Market Square. Several players had to be at
        work by 8 on Monday.
        """,
        summary="""
        The women of Redwater Athletic have reached the first division for the first time after a 2 to 1 win over
        Northgate, with both goals by Amara Lindgren. The club, which had no women's team 6 years ago, lost just 3 of
        26 matches this season. Its stadium holds only 2,200 people instead of the required 5,000, so the club is
        looking for 750,000 dollars for a new stand.
        """,
        reference="""
        Two goals by Amara Lindgren took Redwater Athletic's women up to the first division although the club had
        no women's team 6 years ago. To play there at home, the club must more than double the seats in its stadium.
        """,
        wrong=(("2,200", "3,900"), ("750,000", "120,000")),
        unsupported=(
            "Lindgren is expected to join a club abroad in the summer.",
            "The league has fined the club because of fireworks in the stands.",
        ),
    ),
    Article(
        id="marathon-detour",
        text="""
        More than half of the runners in the Tarquin marathon covered 1.4 kilometres too many on Sunday. A steward had
        left his corner to help a fainting spectator, and 2,650 of the 4,800 runners followed the leader into the
        wrong street. The leader, Joseph Kiptanui, noticed the mistake when he ran past a pig farm. He still finished
        second, in 2 hours and 17 minutes. Winner Elif Brandt had been 40 seconds behind him and took the right turn.
        She offered to share the prize of 20,000 euros, and he accepted half. The organisers will correct all times by
        a formula and give every runner who went astray a free start next year. The spectator has recovered. On Monday
        the farmer hung a sign on his gate that says kilometre 31, refreshments and pigs.
        """,
        summary="""
        More than half of the runners in the Tarquin marathon ran 1.4 kilometres too far because a steward had left
        his corner to help a spectator. The leader, Joseph Kiptanui, was among the 2,650 who took the wrong street and
        finished second behind Elif Brandt, who shared the prize of 20,000 euros with him. The organisers will correct
        all times and give those who went astray a free start next year.
        """,
        reference="""
        An unguarded corner sent 2,650 marathon runners in Tarquin the wrong way, among them the leader. The winner
        split the prize money with him, and the others get corrected times and a free start next year.
        """,
        wrong=(("1.4", "5.7"), ("2,650", "900")),
        unsupported=(
            "The steward has been banned from all future races.",
            "Several runners were treated for heat stroke in the evening.",
        ),
    ),
    Article(
        id="theatre-blackout",
        text="""
        A power cut could not stop the premiere of The Lantern Maker in Eskaria on Friday night. The lights went out
        across the old town 35 minutes into the play, with 780 people in the theatre. After a short silence, a woman
        in row 12 switched on the lamp of her telephone and pointed it at the stage. Within a minute hundreds had done
        the same, and the actors went on. Director Ilse Marchetti had the wind machine turned by hand by two ushers.
        The power came back after 52 minutes, in the middle of the scene in which the town is saved from darkness. The
        applause lasted 11 minutes. A digger had cut a cable of 20,000 volts near the tram depot, the electricity
        company said. For the second night 95 spectators asked whether they could bring lamps again.
        """,
        summary="""
        A power cut in Eskaria could not stop the premiere of The Lantern Maker, which had 780 people in the theatre.
        The audience lit the stage with the lamps of their telephones, and the actors went on until the power came
        back after 52 minutes. A digger had cut a cable near the tram depot, and 95 spectators have asked to bring
        lamps to the second night.
        """,
        reference="""
        When the lights failed at a premiere in Eskaria, the audience lit the actors with hundreds of telephones for
        52 minutes. The cause was a cable cut by a digger.
        """,
        wrong=(("780", "240"), ("52", "18")),
        unsupported=(
            "The theatre will refund half of the ticket price to everyone.",
            "Critics called the acting weak but praised the music.",
        ),
    ),
    Article(
        id="violin-train",
        text="""
        A violin worth 1.2 million dollars spent 4 days in the lost property office of Graubach station between an
        umbrella and a bag of onions. Soloist Henrik Abara had left it on the 6.15 train after a concert that lasted
        until midnight. Cleaner Marisol Vance found the case under a seat and handed it in without opening it. The
        office put it on shelf 17 under the label small guitar. Abara meanwhile played two concerts on a borrowed
        instrument and told nobody but his mother. The violin, built in 1741, belongs to a bank that lends it to young
        musicians. A clerk recognised it only when a poster about the search was hung up next to the shelf. Vance
        refused a reward of 5,000 dollars but accepted tickets for life. Abara now wears the case key around his neck.
        """,
        summary="""
        A violin worth 1.2 million dollars spent 4 days in the lost property office of Graubach station after soloist
        Henrik Abara left it on a train. Cleaner Marisol Vance had handed it in unopened, and a clerk recognised it
        only when a poster about the search was hung up. Vance refused a reward of 5,000 dollars for the instrument,
        which was built in 1741, but accepted concert tickets for life.
        """,
        reference="""
        Labelled as a small guitar, a violin from 1741 lay in a station's lost property office for 4 days while its
        player searched for it. The cleaner who had found it took tickets instead of the 5,000 dollars she was
        offered.
        """,
        wrong=(("1.2", "8.5"), ("5,000", "30,000")),
        unsupported=(
            "The bank has decided to lend the violin to someone else.",
            "The case had been damaged when the train braked sharply.",
        ),
    ),
    Article(
        id="short-week",
        text="""
        The game studio Paper Otter will keep its week of 4 days after a trial of 12 months. Its 85 employees worked
        32 hours instead of 40 for the same pay. According to the studio, sick days dropped by 44 percent and only 2
        people quit, compared with 13 the year before. Two games came out on time, which had never happened in the 9
        years of the company's history. Not all went well, because players who reported faults on a Friday waited
        longer for an answer. The support team therefore splits into two groups, and each has a different day off.
        Founder Joon Petersen admits that meetings are now short and rather blunt. Revenue rose by 7 percent, although
        he would not credit the free day alone. Staff used the time for sleep, language lessons and, in one case,
        building a boat.
        """,
        summary="""
        The game studio Paper Otter will keep its week of 4 days after a trial of 12 months in which 85 employees
        worked 32 hours for the same pay. Sick days dropped by 44 percent, only 2 people quit, and two games came out
        on time. Because players waited longer for an answer on Fridays, the support team now splits into two groups
        with different days off.
        """,
        reference="""
        Fewer sick days, fewer people leaving and two punctual games have convinced the studio Paper Otter to stay
        with a week of 4 days at full pay. Only the support team had to change its rota to cover the Fridays.
        """,
        wrong=(("85", "310"), ("44", "16")),
        unsupported=(
            "The studio has since received more than a thousand job applications.",
            "Employees will take a small pay cut from next year.",
        ),
    ),
)
