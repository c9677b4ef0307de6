"""Sentences of all sorts, made up: what goes through the layers when they are run on these says what is usual there. At
the end rows of one thing, as in tables and logs: they reach further than any sentence."""

SENTENCES: tuple[str, ...] = tuple(
    """
She moved to Lisbon last May with her dog and rents a small flat near the river.
What did the doctor say about his knee?
The invoice for the server is overdue; please pay 1,249.50 euros by the end of the month.
I love hiking! We went up the mountain on Saturday and saw two eagles over the lake.
How many children does Maria have, and where do they go to school?
Deploy version 2.3.1 to production after the tests pass, then tell the team in the channel.
He is allergic to peanuts and prefers tea without sugar.
Thanks so much, that means a lot to me. I was really nervous about the interview.
The meeting was moved from Tuesday 10:00 to Thursday 14:30 because the client is travelling.
When is the deadline of the grant application?
def parse(line): return [int(part) for part in line.split(",") if part]
Our grandmother grew tomatoes, beans and roses behind the old house in the village.
The train to Berlin leaves from platform 7 and takes four hours and ten minutes.
Error: connection refused at 127.0.0.1:5432, is the database running?
My favourite book is about a lighthouse keeper who paints the sea every morning.
Which colour did they choose for the kitchen?
The patient was given 20 mg twice a day and felt better within a week.
Remind me to call the bank tomorrow about the mortgage and the new credit card.
They adopted a grey cat named Pepper from the shelter after their holiday in Greece.
He said that he would rather work from home on Fridays, if nobody minds.
Wow, congratulations on the new job! When do you start, and will you have to move?
A queue keeps tasks in order; a worker takes one, does it, and marks it as done.
The concert in the park was cancelled due to heavy rain and strong wind.
Why does the build fail on Windows but not on Linux or macOS?
I have been playing the violin since I was seven, and last year I joined an orchestra.
The company was founded in 1998 by two brothers and now employs about three hundred people.
Do you remember the name of the restaurant where we had that amazing seafood?
Please answer in French, keep it short and do not use bullet points.
It's been a rough few months since my father passed away, but talking to friends helps.
The recipe needs 250 g of flour, three eggs, a pinch of salt and half a litre of milk.
User prefers dark mode, metric units and dates written as day, month, year.
The court decided in favour of the tenant, who had complained about mould in the bathroom.
Last week I finished my first marathon in 4 hours 32 minutes, tired but so happy!
Where did Tom and Lucy spend their honeymoon?
The backup runs every night at two and keeps the last fourteen copies on another disk.
We painted the nursery yellow because we want the baby's sex to be a surprise.
SELECT name, total FROM orders WHERE paid = 0 ORDER BY due LIMIT 20;
She volunteers at a shelter for homeless people and teaches English to refugees on Mondays.
The flight was delayed by three hours, so they missed their connection in Frankfurt.
What kind of music does your sister listen to when she paints?
The museum shows photographs of the city from the nineteenth century until next spring.
My password is not to be stored; ask me again each time you need it.
He broke his arm while skating and has to wear a cast for six weeks.
In physics, energy is neither made nor lost; it only changes its form.
Yes, sounds good. See you there at eight!
The agent looked up the weather, booked a table for four and sent the address to everyone.
Who won the election in the city, and by how many votes?
I'm thinking about going back to school to become a nurse or a counsellor.
The dog barked all night, the neighbours complained, and now we are looking for a trainer.
Their startup builds sensors that measure how much water the soil holds.
Can you summarise what we decided about the budget for the third quarter?
She has two brothers, Daniel and Ivan; the older one is a pilot, the younger one studies law.
The old laptop was too slow, so I bought a new one with 32 GB of memory and a better screen.
On 14 March 2021 the bridge was closed for repairs and reopened in the autumn.
That picture of the sunset over the beach is gorgeous, did you take it yourself?
He grew up in Nigeria, studied chemistry in Canada and now lives in Japan with his wife.
Rust has no garbage collector: who owns a value is known when the program is compiled.
The landlord raised the rent by eight percent, which is more than the law allows.
How long has she been sober, and who helped her the most?
Our team lost the final two to one, although we had the better chances in the second half.
, , , , , , , , , , , , , , , , , , , ,
!!!!!!!!!!!!!!!!!!!!!!!!!!!!
nan nan nan nan nan nan nan nan nan nan
no no no no no no no no no no no no no
- - - - - - - - - - - - - - - - -
[PAD] [PAD] [PAD] hello [PAD]
""".strip().splitlines()
)
