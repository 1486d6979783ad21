"""Eight invented news articles about research, nature and health."""

from __future__ import annotations

from tests.sample.texts import Article

SCIENCE: tuple[Article, ...] = (
    Article(
        id="lake-sponge",
        text="""
        Divers have found a freshwater sponge in Lake Ombra that no one had described before. The animal grows on
        sunken logs at a depth of 34 metres and glows faintly green in the light of a lamp. Zoologist Freya Castellano
        first took it for a lost glove. Her team collected 21 pieces on 6 dives and compared their genes with those of
        180 known species. The nearest relative lives in a lake 2,400 kilometres away, which suggests that the two
        have been apart for about 9 million years. The sponge filters some 30 litres of water a day, a useful habit in
        a lake that has grown cloudy. It seems to live only on the logs of a sawmill that closed in 1931. The team
        has asked the province to ban the removal of old timber from the lake. A local school has won the contest to
        name it and chose Glove Sponge.
        """,
        summary="""
        Divers have found an unknown freshwater sponge on sunken logs in Lake Ombra, at a depth of 34 metres. A
        comparison of its genes with those of 180 known species suggests that it parted from its nearest relative
        about 9 million years ago. It filters some 30 litres of water a day and seems to live only on the logs of an
        old sawmill, so the team has asked the province to ban their removal.
        """,
        reference="""
        A sponge new to science lives on the logs of a vanished sawmill in Lake Ombra and helps to clear the water.
        The zoologists who described it want the province to leave the old timber where it is.
        """,
        wrong=(("34", "120"), ("180", "65")),
        unsupported=(
            "The sponge contains a substance that could be used against cancer.",
            "Fishermen had reported the strange animal for decades without being believed.",
        ),
    ),
    Article(
        id="nurse-naps",
        text="""
        A nap of 25 minutes in the middle of a night shift cuts mistakes by almost a third, a trial at three hospitals
        in the Torvald region has shown. The researchers followed 312 nurses for 16 weeks, half of whom were sent to a
        dark room at 3 in the morning. Errors in test entries of drug doses fell by 31 percent in the group that
        slept. A longer nap of 50 minutes brought no further gain and left many nurses drowsy. "We had to lock the
        door against doctors," joked the leader of the study, Samuel Ekwueme. The cost was small, since each ward
        needed one extra nurse for 2 hours a night. The study could not say whether patients fared better. The region
        will nevertheless offer naps in all 9 of its hospitals from January. Earplugs and blankets have been ordered.
        """,
        summary="""
        A nap of 25 minutes during the night shift cuts mistakes by almost a third, according to a trial with 312
        nurses at three hospitals. Errors in test entries of drug doses fell by 31 percent, while a longer nap brought
        no further gain. The study could not say whether patients fared better, but the Torvald region will offer
        naps in all 9 of its hospitals from January.
        """,
        reference="""
        Nurses who slept for 25 minutes at night made 31 percent fewer errors in a trial in the Torvald region. All 9
        hospitals there will offer such naps from January, although an effect on patients has not been shown.
        """,
        wrong=(("312", "840"), ("31", "64")),
        unsupported=(
            "Nurses who slept also reported fewer headaches and less back pain.",
            "A union had called for the naps for more than a decade.",
        ),
    ),
    Article(
        id="telescope-crack",
        text="""
        A crack as long as a pencil has stopped the largest telescope on the Koru plateau. Technicians found the flaw
        of 18 centimetres during a routine wash of the main mirror, which measures 6.2 metres across. It probably
        began when a bolt was fastened too tightly during the earthquake repairs of 2019. The observatory has sealed
        the crack with resin and covered 3 percent of the mirror so that it does not scatter light. Director Mei
        Tanaka-Ruiz expects observing to start again in 11 weeks. By then 140 nights of work by 52 research groups
        will have been lost or moved to smaller telescopes. One of them had waited 4 years to watch a comet that will
        not return until 2093. A new mirror would cost 37 million dollars and take 5 years to polish. The staff have
        named the crack Lightning.
        """,
        summary="""
        A crack of 18 centimetres in the main mirror has stopped the largest telescope on the Koru plateau. The
        observatory, which suspects a bolt that was fastened too tightly in 2019, has sealed the crack and expects
        observing to start again in 11 weeks. Some 140 nights of work by 52 research groups are affected, and a new
        mirror would cost 37 million dollars.
        """,
        reference="""
        The biggest telescope of the Koru plateau is out of use for 11 weeks because its mirror has cracked, probably
        around a bolt that was too tight. Dozens of research groups lose their nights, and a replacement would cost 37
        million dollars.
        """,
        wrong=(("18", "75"), ("140", "290")),
        unsupported=(
            "The director has offered to resign over the accident.",
            "An insurance company has refused to pay for the damage.",
        ),
    ),
    Article(
        id="rooftop-bees",
        text="""
        Honeybees on the roofs of Lindenhall have had their best summer since counting began in 2008. The city's 430
        hives gave 11,600 kilograms of honey, a rise of 27 percent on last year. Beekeepers credit the parks office,
        which now mows 60 lawns only twice a year and lets the clover bloom. A warm May helped as well. Losses over
        the winter fell to 9 percent, less than half of the figure for hives in the farmland around the city.
        Beekeeper Yusuf Almeida keeps 8 colonies above the opera house and says that his bees are fond of rehearsals.
        Ecologists are less cheerful, for honeybees compete with 140 kinds of wild bees that nobody feeds. The council
        will therefore allow no new hives in 5 districts and will plant hedges for wild bees instead. A jar of opera
        honey costs 12 euros and is sold out.
        """,
        summary="""
        Honeybees on the roofs of Lindenhall have had their best summer since 2008, giving 11,600 kilograms of honey.
        Beekeepers credit the city's rarely mown lawns, and losses over the winter fell to 9 percent, less than half
        of the figure in the farmland around. Because honeybees compete with wild bees, the council will allow no new
        hives in 5 districts and will plant hedges instead.
        """,
        reference="""
        Clover on rarely mown lawns has given the city bees of Lindenhall a record year, with 27 percent more honey.
        To protect wild bees from the competition, 5 districts are closed to new hives.
        """,
        wrong=(("11,600", "48,000"), ("9", "33")),
        unsupported=(
            "Scientists found no trace of pesticides in the honey.",
            "The opera house plans to give every subscriber a free jar.",
        ),
    ),
    Article(
        id="glacier-poles",
        text="""
        The Hvitfjell glacier lost 4.6 metres of ice at its tongue this summer, the most since measurements began 71
        years ago. Glaciologist Solveig Narayan and two students read the loss from 38 wooden poles that are drilled
        into the ice each spring. Twelve of the poles had melted out and were lying flat when they arrived. A week of
        rain in July did more harm than the heat, because it washed away the last snow that had kept the surface
        white. The valley below takes 65 percent of its drinking water from the glacier in late summer. The
        municipality will build a reservoir for 120 million crowns, large enough for 3 dry months. Narayan carried one
        of the fallen poles down to the school, where it now leans beside the blackboard. At the present pace, she
        said, the tongue will be gone by 2048.
        """,
        summary="""
        The Hvitfjell glacier lost 4.6 metres of ice at its tongue this summer, the most in 71 years of measurements.
        Glaciologist Solveig Narayan read the loss from 38 poles and said that a week of rain in July did more harm
        than the heat. The valley below depends on the glacier for 65 percent of its drinking water in late summer and
        will build a reservoir for 120 million crowns.
        """,
        reference="""
        Rain and heat cost the Hvitfjell glacier a record 4.6 metres of ice at its tongue, which may vanish by 2048.
        The municipality is going to build a reservoir, for most of its water in late summer comes from the ice.
        """,
        wrong=(("4.6", "1.9"), ("65", "20")),
        unsupported=(
            "Hikers are no longer allowed on the ice without a guide.",
            "Eleven other glaciers in the country showed the same record loss.",
        ),
    ),
    Article(
        id="vineyard-dogs",
        text="""
        Two spaniels have learned to smell a vine disease 3 weeks before a human can see it. In a test in the Marenne
        valley, the dogs named Biscuit and Plum found 94 of 100 infected vines and raised only 5 false alarms. The
        disease, called black collar, destroyed 600 hectares of vines last year. Laboratory tests take 8 days and cost
        45 euros for each plant, while a dog checks a whole row in 10 minutes. Trainer Chiara Novak used scent
        samples in old mustard jars and paid the dogs in sausage. The growers' union will buy 12 more dogs and train
        them over the winter. Infected vines are pulled out and burned, which keeps the fungus from reaching the
        neighbours. Plum has one weakness, as she stops working whenever a hare crosses the row. Wine from the valley
        will carry a paw print on the label this year.
        """,
        summary="""
        Two spaniels in the Marenne valley have learned to smell a vine disease 3 weeks before a human can see it.
        In a test they found 94 of 100 infected vines, and they work much faster than laboratory tests, which take 8
        days. The growers' union will buy 12 more dogs to fight the disease, which destroyed 600 hectares of vines
        last year.
        """,
        reference="""
        Dogs can detect the vine disease black collar by its smell, with 94 hits in 100 and few false alarms. After
        heavy losses last year, the growers of the Marenne valley will train 12 more of them.
        """,
        wrong=(("94", "58"), ("600", "2,500")),
        unsupported=(
            "A chemical company is working on a spray that imitates the smell.",
            "The two dogs were rescued from a shelter as puppies.",
        ),
    ),
    Article(
        id="clinic-truck",
        text="""
        A clinic on wheels has seen 5,120 patients in its first year on the roads of the Aldaba plains. The white
        truck visits 33 villages in turn and carries an X-ray machine, a dentist's chair and a small laboratory. For
        most of its patients the nearest hospital is more than 90 kilometres away. The doctors found 214 cases of high
        blood pressure that nobody had known about. Doctor Lucia Mbeki said that people first came for the air
        conditioning and stayed for the check. The truck cost 780,000 dollars, half of it from a foundation and half
        from the province. It broke down 4 times, and once it was pulled out of the mud by oxen. A second truck with
        an eye doctor will start in April. Appointments are read out on village radio between songs.
        """,
        summary="""
        A clinic on wheels has seen 5,120 patients in its first year on the Aldaba plains, most of whom live more than
        90 kilometres from a hospital. The truck visits 33 villages, and its doctors found 214 unknown cases of
        high blood pressure. It cost 780,000 dollars, shared by a foundation and the province, and a second truck with
        an eye doctor will start in April.
        """,
        reference="""
        For the villages of the Aldaba plains, far from any hospital, a truck with doctors has become the clinic, with
        5,120 patients in a year. A second one will add an eye doctor in April.
        """,
        wrong=(("5,120", "12,900"), ("214", "37")),
        unsupported=(
            "The hospital in the capital has lost a tenth of its patients to the truck.",
            "Medicines are handed out free of charge to children and pensioners.",
        ),
    ),
    Article(
        id="roman-bakery",
        text="""
        Workers digging a trench for internet cables in the village of Monteluna have struck a bakery about 1,900
        years old. Under 2 metres of clay lay three ovens, a millstone and 26 loaves turned to charcoal. Each loaf is
        cut into 8 wedges and stamped with a name that archaeologist Bruno Achterberg reads as Fortunata. He believes
        that she owned the shop, which would be rare for a woman of the time. A landslide seems to have buried the
        house during working hours, since dough was still in the trough. No human remains were found, so the bakers
        probably got away. The village will get its internet 6 months late, because the cable must go around the site.
        A baker in the village has copied the loaf and sells 70 a day. The ovens will be shown to visitors under a
        glass roof from 2026.
        """,
        summary="""
        Workers digging a trench for internet cables in Monteluna have struck a bakery about 1,900 years old. It held
        three ovens and 26 loaves turned to charcoal, each stamped with the name of a woman who may have owned the
        shop. A landslide seems to have buried the house, but its bakers probably got away, and visitors will be able
        to see the ovens from 2026.
        """,
        reference="""
        An ancient bakery with charred loaves that bear the name Fortunata has come to light under Monteluna. The find
        delays the village's internet by 6 months and will be opened to visitors in 2026.
        """,
        wrong=(("1,900", "3,400"), ("26", "310")),
        unsupported=(
            "Thieves broke into the site on the night after the discovery.",
            "Gold coins worth a fortune lay hidden behind the largest oven.",
        ),
    ),
)
