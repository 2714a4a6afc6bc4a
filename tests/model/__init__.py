"""A model of the tick protocol, searched in breadth, and recorded runs of the real runtime that must be runs of the model.

``python -m tests.model`` searches all programs and faults, also those that are too many for the tests, and writes their table.

* `state.py`, `helper.py`, `caller.py`, `recovery.py`, `closer.py`: the model, one step for each access to what workers share.
* `programs.py`: the programs, the faults, and broken protocols, each of which a search (`search.py`) must find.
* `nodes.py`: a model of federation, one step for each request, reply and message.
* `probe.py`, `recorded.py`, `following.py`: runs of random programs, recorded and followed in the model.

The model does not have: close() that finds the run idle just as a tick begins, a second close() that hurries the first, how
processes are started, reactions that never end, and processors that write words in another order than the program does.
"""
