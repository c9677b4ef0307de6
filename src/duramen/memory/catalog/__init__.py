"""The catalog: memories as events in the journal and as rows in the store.

Start in `catalog.py`: remember, list, confirm, revise, retire, forget. `memory_event.py` validates a new memory and
derives its row from the event. `records.py` has the classes that users see. `texts.py` reads texts from events.
"""
