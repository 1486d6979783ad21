"""Eight news articles from invented towns: what the council decided, what broke, what was saved."""

from __future__ import annotations

from tests.sample.texts import Article

TOWN: tuple[Article, ...] = (
    Article(
        id="electric-ferry",
        text="""
        Port Alder put its first electric ferry into service on Monday, replacing a diesel boat that had crossed
        the bay since 1987. The new vessel, named Grey Heron, carries 240 passengers and 18 cars. A crossing takes
        22 minutes, the same as before, but the engine is so quiet that several passengers asked when they would
        leave the dock. The boat charges for 9 minutes at each end from cables buried under the pier. The port
        authority paid 14 million crowns for the ferry and expects to save 600,000 crowns of fuel a year. Captain
        Ines Moreau, who has steered on the bay for 31 years, said she misses only the smell of coffee from the old
        engine room. Fares will stay at 4 crowns until next spring. A brass band played on the quay in light rain,
        and the first ticket went to a retired postman. A second electric ferry is due in 2027.
        """,
        summary="""
        Port Alder has put its first electric ferry into service, replacing a diesel boat that had crossed the bay
        since 1987. The Grey Heron carries 240 passengers and 18 cars, and it charges from cables under the pier at
        each end of the crossing. It cost the port authority 14 million crowns, is expected to save 600,000 crowns
        of fuel a year, and leaves fares unchanged until next spring.
        """,
        reference="""
        A quiet electric ferry now crosses the bay at Port Alder in place of a diesel boat from 1987. The port
        authority paid 14 million crowns for it, keeps the fare at 4 crowns for now and expects a second electric
        boat in 2027.
        """,
        wrong=(("240", "420"), ("14", "40")),
        unsupported=(
            "The old diesel boat will be sunk off the coast as a reef for divers.",
            "Two neighbouring harbours have already ordered the same model.",
        ),
    ),
    Article(
        id="library-fines",
        text="""
        The public library in Millbrook will stop charging fines for late books from the first of June. The council
        voted 11 to 4 for the change after a trial at the Eastgate branch, where 3,200 overdue books came back within
        10 weeks. Fines had brought in only 8,700 dollars last year, while collecting them cost 12,500 dollars in
        staff time and postage. "People were not keeping the books, they were hiding from us," said head librarian
        Tomasz Bell. One returned novel had been due in 1994 and still held a tram ticket as a bookmark. Readers who
        keep a book longer than 60 days will have to pay for a new copy. Councillor Jane Ferro, who voted against the
        plan, warned that popular titles would be harder to borrow. The library has bought extra copies of its 50
        most wanted books to prevent that. Outside, a child was already posting three picture books through the
        night slot.
        """,
        summary="""
        The library in Millbrook will stop charging fines for late books in June, after a council vote of 11 to 4. A
        trial at the Eastgate branch had brought back 3,200 overdue books, and collecting the fines cost more than
        the 8,700 dollars that they brought in. Readers must still pay for a book they keep longer than 60 days, and
        extra copies of the most wanted titles have been bought.
        """,
        reference="""
        Late books will no longer cost readers in Millbrook a fine, because collecting the money was dearer than the
        money itself and a trial brought 3,200 overdue books home. Only those who keep a book for more than 60 days
        will pay for a new copy.
        """,
        wrong=(("11", "9"), ("3,200", "5,400")),
        unsupported=(
            "The library will also open on Sundays for the first time.",
            "A bank has offered to cover the lost income for five years.",
        ),
    ),
    Article(
        id="beaver-dam",
        text="""
        A family of beavers has finished a dam on the Lenne brook that the town of Oberau had planned for 7 years and
        never built. Officials found the wall of mud and willow last week, 2 days before a meeting about its cost.
        The animals' dam is 28 metres long and holds back about 5,000 cubic metres of water, close to the figure in
        the engineers' drawings. The town had set aside 340,000 euros for a dam to protect 90 houses from spring
        floods. Mayor Petra Lindqvist said the money would now go to a new roof for the primary school. Biologist
        Omar Haddad counted 5 beavers, three of them young, and expects a second dam upstream by autumn. Not everyone
        is pleased, since farmer Egon Weiss has lost a strip of meadow to the new pond. The council offered him 2,800
        euros and a season of free hay. Herons and two kingfishers have moved in.
        """,
        summary="""
        Beavers have finished a dam on the Lenne brook that the town of Oberau had planned for 7 years and never
        built. Their dam is 28 metres long and holds back about 5,000 cubic metres of water, close to what the
        engineers had drawn. The 340,000 euros that the town had set aside will now pay for a school roof, while a
        farmer who lost a strip of meadow was offered compensation.
        """,
        reference="""
        After 7 years of planning, the town of Oberau got its flood dam from a family of 5 beavers, at no cost. The
        340,000 euros that were meant for it will go to the primary school, and a farmer whose meadow is under water
        is to receive 2,800 euros.
        """,
        wrong=(("28", "82"), ("340,000", "950,000")),
        unsupported=(
            "Engineers from the ministry fear that the dam could burst in a heavy storm.",
            "The beavers had escaped from a wildlife park in the next valley.",
        ),
    ),
    Article(
        id="market-fire",
        text="""
        Fire destroyed 17 of the 64 stalls in the old market hall of Sankt Jorin early on Saturday. Nobody was hurt,
        because a baker who had come in at 3 in the morning smelled smoke and rang every bell on the street. It took
        48 firefighters almost 5 hours to put the flames out. The blaze began in the cable of a fish seller's
        freezer, said fire chief Dolores Anand, who ruled out arson. The damage is put at 2.3 million francs, of
        which insurance will cover about two thirds. The iron roof of 1902 held, and a cat named Pepper was found
        asleep on top of the flower stall. Traders will sell from tents on the square until the hall opens again in
        October. By noon, customers had given 41,000 francs to a fund for the families who lost their stalls.
        """,
        summary="""
        Fire destroyed 17 of the 64 stalls in the old market hall of Sankt Jorin, but nobody was hurt because a baker
        smelled the smoke early. The blaze began in the cable of a freezer and caused damage of 2.3 million francs,
        of which insurance will cover about two thirds. Traders will sell from tents on the square until October, and
        customers have given 41,000 francs to help the families.
        """,
        reference="""
        A faulty freezer cable set the market hall of Sankt Jorin on fire on Saturday and destroyed 17 stalls without
        hurting anyone. The traders move to tents until October, helped by 41,000 francs in gifts from customers.
        """,
        wrong=(("17", "35"), ("2.3", "6.8")),
        unsupported=(
            "Police have questioned two teenagers who were seen near the hall.",
            "The council has promised to fit sprinklers in every public building.",
        ),
    ),
    Article(
        id="bicycle-bus",
        text="""
        Every Wednesday at 7.40, a train of children on bicycles rolls through the suburb of Harrow Green, and this
        week it was 162 riders long. Sports teacher Malik Duarte started the bicycle bus 2 years ago with his own two
        daughters and 6 of their friends. Parents in yellow vests now guide it along 5 kilometres of road, and police
        hold the traffic at four crossings. The school says that cars at its gate have fallen by 38 percent on
        bicycle days. A study by the local health office found that the riders missed fewer lessons through illness
        than other pupils. The city has promised 90,000 dollars for a protected lane along the route, to be ready by
        September. Some drivers complain about waiting, although the longest stop measured was 4 minutes. A
        loudspeaker on the last bicycle plays whatever song the youngest rider picks. On Wednesday it was a polka.
        """,
        summary="""
        A bicycle bus that takes children to school in Harrow Green every Wednesday has grown to 162 riders. Teacher
        Malik Duarte started it 2 years ago, and the school says that cars at its gate have fallen by 38 percent on
        bicycle days. The city has promised 90,000 dollars for a protected lane by September, although some drivers
        complain about waiting.
        """,
        reference="""
        What a sports teacher in Harrow Green began with a handful of children is now a weekly ride to school for
        162. Car traffic at the school gate is down by 38 percent on those days, and the city will build a protected
        lane.
        """,
        wrong=(("162", "310"), ("38", "71")),
        unsupported=(
            "A company from the capital pays for the helmets of all the riders.",
            "Three children were slightly injured in a fall last month.",
        ),
    ),
    Article(
        id="town-clock",
        text="""
        The tower clock of Vasko is right again, for the first time in 23 years. Clockmaker Hanne Oduya spent 14
        months in the tower taking apart the works, which have 1,146 pieces. She found that a single brass wheel had
        been put in backwards during a repair in 2001, so the clock lost 6 minutes a day. For most of that time the
        caretaker had simply stopped the hands at noon. The repair cost 58,000 crowns, paid by the sale of 2,900 jars
        of plum jam that residents had cooked. At the ceremony the bell struck 12 and the crowd counted aloud. Some
        residents said that they would miss the old joke that lunch in Vasko lasts all day. Oduya will return every
        spring to oil the works and has trained two pupils of the technical school to do it after her.
        """,
        summary="""
        The tower clock of Vasko is right again for the first time in 23 years. Clockmaker Hanne Oduya took apart its
        1,146 pieces and found that a brass wheel had been put in backwards in 2001, which made the clock lose 6
        minutes a day. Residents paid for the repair of 58,000 crowns by selling plum jam, and two pupils have been
        trained to look after the works.
        """,
        reference="""
        A wheel that was put in backwards kept the clock of Vasko wrong for 23 years, until Hanne Oduya found it
        after 14 months of work. The sale of 2,900 jars of plum jam paid the bill.
        """,
        wrong=(("1,146", "3,460"), ("58,000", "19,000")),
        unsupported=(
            "The clock is the oldest in the country and was built for a queen.",
            "A museum had offered to buy the works for its collection.",
        ),
    ),
    Article(
        id="bridge-delay",
        text="""
        Drivers in Calder Falls will have to wait until next May for their bridge, the county said on Tuesday. The
        crossing over the Senna river was closed in March for what was meant to be a repair of 5 months. When workers
        lifted the road deck, they found rust in 26 of the 80 steel beams, far more than the 7 they had expected. The
        bill has risen from 3.1 million to 4.9 million dollars. Until the bridge opens, the 9,400 vehicles that used
        it each day must take a detour of 19 kilometres. The owner of a filling station on the detour, Ruth Amsel,
        said that she had never sold so many sandwiches. The county will run a free bus for pupils and hospital staff
        from next week. Engineer Devin Sato defended the delay, saying that a beam might have failed within 3 years.
        Anglers, he added, were enjoying the calm.
        """,
        summary="""
        The bridge at Calder Falls, closed in March for a repair of 5 months, will not open until next May. Workers
        found rust in 26 of the 80 steel beams, and the bill has risen to 4.9 million dollars. The 9,400 vehicles that
        used the bridge each day must take a detour of 19 kilometres, and the county will run a free bus for pupils
        and hospital staff.
        """,
        reference="""
        Hidden rust will keep the Senna bridge in Calder Falls closed until May and has raised the bill to 4.9
        million dollars. Drivers face a detour of 19 kilometres, while pupils and hospital staff get a free bus.
        """,
        wrong=(("26", "62"), ("9,400", "2,100")),
        unsupported=(
            "The county blames the builder and wants the money back in court.",
            "A new bridge with four lanes is planned for the same place.",
        ),
    ),
    Article(
        id="night-bus",
        text="""
        After 9 years without one, the hill district of Santa Brena has a night bus again. Line N6 runs every 40
        minutes from midnight to 5 in the morning and links the hospital, the railway station and 13 stops on the
        hill. On its first weekend it carried 1,870 people, about twice as many as the operator had forecast. Nurse
        Adaeze Lund said that her way home had shrunk from 75 minutes on foot to 12. The city pays 410,000 euros a
        year for the service, which will be reviewed after 18 months. A campaign by hospital workers gathered 6,300
        signatures for the line last winter. One neighbour has asked the drivers to dim their lights on Olive Street.
        The company agreed, and it gave the quietest of its buses to the route. Tickets cost the same as in the
        daytime, and dogs ride for free.
        """,
        summary="""
        The hill district of Santa Brena has a night bus again after 9 years without one. Line N6 links the hospital
        and the railway station with 13 stops on the hill, and it carried 1,870 people on its first weekend, about
        twice as many as forecast. The city pays 410,000 euros a year for the service, which hospital workers had
        campaigned for and which will be reviewed after 18 months.
        """,
        reference="""
        Santa Brena's new night bus, won by a petition of hospital workers, drew about twice the expected number of
        passengers on its first weekend. It costs the city 410,000 euros a year and is on trial for 18 months.
        """,
        wrong=(("13", "27"), ("1,870", "4,250")),
        unsupported=(
            "Taxi drivers have announced a strike against the new line.",
            "The operator will hire only drivers who live in the district.",
        ),
    ),
)
