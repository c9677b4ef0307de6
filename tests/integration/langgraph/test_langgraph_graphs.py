"""Real graphs on the checkpointer: killed, resumed, branched, nested, edited, and written by two at once."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command
from programs.child_processes import ChildProcesses
from programs.graphs import asking, chat, delta, forked, nested, on, said, texts

import duramen
from duramen.errors import CheckpointConflict
from duramen.integrations.langgraph import DuramenSaver


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "agent.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def saver(dm: duramen.Duramen) -> DuramenSaver:
    return DuramenSaver(dm)


# -- going on


@pytest.mark.promise("I1")
def test_a_chat_of_fifty_turns_survives_a_kill(address: str, processes: ChildProcesses) -> None:
    child = processes.start("graphs:talk", address=address, thread="t", turns=50)
    heard = len(child.wait_for_lines(20))
    child.kill()
    assert processes.start("graphs:talk", address=address, thread="t", turns=50).finish()[-1] == "49"
    with duramen.open(address) as dm:
        found = texts(chat(DuramenSaver(dm)).get_state(on("t")))
    assert heard >= 20
    assert found == [text for turn in range(50) for text in (str(turn), f"you said {turn}")]


def test_an_interrupted_graph_is_answered_after_reopening(address: str) -> None:
    with duramen.open(address) as dm:
        stopped = asking(DuramenSaver(dm)).invoke({"notes": []}, on("t"))
    assert stopped["__interrupt__"][0].value == "well?"
    with duramen.open(address) as dm:
        graph = asking(DuramenSaver(dm))
        assert graph.get_state(on("t")).next == ("ask",)
        assert graph.invoke(Command(resume="yes"), on("t"))["notes"] == ["asked", "you answered yes", "done"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_each_durability_keeps_the_conversation(saver: DuramenSaver, durability: Any) -> None:
    graph = chat(saver)
    for turn in ("a", "b", "c"):
        graph.invoke(said(turn), on("t"), durability=durability)
    assert texts(graph.get_state(on("t"))) == ["a", "you said a", "b", "you said b", "c", "you said c"]


@pytest.mark.parametrize("looping", [False, True])
def test_async_graphs_on_either_handle(any_address: str, looping: bool) -> None:
    async def main() -> list[str]:
        dm = await duramen.aopen(any_address) if looping else duramen.open(any_address)
        graph = chat(DuramenSaver(dm))
        for turn in ("a", "b"):
            await graph.ainvoke(said(turn), on("t"))
        found = texts(await graph.aget_state(on("t")))
        assert len([snapshot async for snapshot in graph.aget_state_history(on("t"))]) == 6
        await dm.close() if looping else dm.close()
        return found

    assert asyncio.run(main()) == ["a", "you said a", "b", "you said b"]


def test_branches_that_run_at_once_are_all_kept(saver: DuramenSaver) -> None:
    graph = forked(saver)
    assert graph.invoke({"notes": []}, on("t"))["notes"] == ["a", "b", "c", "end 3"]
    assert graph.get_state(on("t")).values["notes"] == ["a", "b", "c", "end 3"]


def test_a_graph_inside_a_graph(saver: DuramenSaver) -> None:
    graph = nested(saver)
    for turn in ("a", "b"):
        graph.invoke(said(turn), on("t"))
    assert texts(graph.get_state(on("t"))) == ["a", "you said a", "inner 2", "b", "you said b", "inner 5"]
    assert len({found.config["configurable"]["checkpoint_ns"] for found in saver.list(on("t"))}) == 3


def test_a_graph_inside_a_graph_with_a_memory_of_its_own(saver: DuramenSaver) -> None:
    graph = nested(saver, checkpointer=True)
    for turn in ("a", "b"):
        graph.invoke(said(turn), on("t"))
    inside = [texts(found.checkpoint["channel_values"]) for found in saver.list(on("t", checkpoint_ns="sub"), limit=1)]
    assert inside == [["a", "you said a", "inner 2", "b", "you said b", "inner 5"]]


# -- going back


def test_time_travel_begins_a_branch(saver: DuramenSaver) -> None:
    graph = chat(saver)
    for turn in ("a", "b", "c"):
        graph.invoke(said(turn), on("t"))
    [after_a] = [found for found in graph.get_state_history(on("t")) if not found.next and len(texts(found)) == 2]
    graph.invoke(said("x"), after_a.config)
    assert texts(graph.get_state(on("t"))) == ["a", "you said a", "x", "you said x"]
    graph.invoke(said("y"), on("t"))
    assert texts(graph.get_state(on("t")))[-2:] == ["y", "you said y"]
    assert "you said c" in {texts(found)[-1] for found in graph.get_state_history(on("t")) if not found.next}


def test_a_node_runs_again_from_an_earlier_checkpoint(saver: DuramenSaver) -> None:
    graph = nested(saver)
    graph.invoke(said("a"), on("t"))
    graph.invoke(said("b"), on("t"))
    [before_sub] = [f for f in graph.get_state_history(on("t")) if f.next == ("sub",) and len(texts(f)) == 2]
    assert texts(graph.invoke(None, before_sub.config)) == ["a", "you said a", "inner 2"]
    assert texts(graph.get_state(on("t"))) == ["a", "you said a", "inner 2"]


def test_a_graph_with_a_memory_of_its_own_goes_back_with_the_one_around_it(saver: DuramenSaver) -> None:
    graph = nested(saver, checkpointer=True)
    for turn in ("a", "b"):
        graph.invoke(said(turn), on("t"))
    for length, last in ((5, "inner 5"), (2, "inner 2")):  # before its second run, and before its first
        [before] = [f for f in graph.get_state_history(on("t")) if f.next == ("sub",) and len(texts(f)) == length]
        assert texts(graph.invoke(None, before.config))[-1] == last


def test_a_state_is_updated_by_hand_at_the_end_and_in_the_past(saver: DuramenSaver) -> None:
    graph = chat(saver)
    graph.update_state(on("t"), said("first"), as_node="answer")
    graph.invoke(said("a"), on("t"))
    graph.update_state(on("t"), {"messages": [AIMessage("corrected", id="re-user-a")]})
    assert texts(graph.get_state(on("t"))) == ["first", "a", "corrected"]
    past = list(graph.get_state_history(on("t")))[-1]
    graph.update_state(past.config, said("other"), as_node="answer")
    assert texts(graph.get_state(on("t"))) == ["first", "other"]


def test_the_history_is_given_whole_and_in_pages(saver: DuramenSaver) -> None:
    graph = chat(saver)
    for turn in ("a", "b"):
        graph.invoke(said(turn), on("t"))
    every = list(graph.get_state_history(on("t")))
    assert [found.metadata["step"] for found in every] == [4, 3, 2, 1, 0, -1]
    assert list(graph.get_state_history(on("t"), limit=2)) == every[:2]
    assert list(graph.get_state_history(on("t"), before=every[1].config)) == every[2:]
    assert list(graph.get_state_history(on("t"), filter={"source": "input"})) == [every[2], every[5]]
    assert every[0].parent_config == {"configurable": every[1].config["configurable"]}


def test_a_fork_of_the_session_is_a_thread_that_goes_on_by_itself(dm: duramen.Duramen) -> None:
    graph = chat(DuramenSaver(dm))
    graph.invoke(said("a"), on("t"))
    dm.session("t").fork("u")
    graph.invoke(said("b"), on("t"))
    graph.invoke(said("c"), on("u"))
    assert texts(graph.get_state(on("t"))) == ["a", "you said a", "b", "you said b"]
    assert texts(graph.get_state(on("u"))) == ["a", "you said a", "c", "you said c"]
    threads = {found.config["configurable"]["thread_id"] for found in graph.get_state_history(on("u"))}
    assert threads == {"u"}


def test_pruning_keeps_what_the_newest_state_is_made_of(saver: DuramenSaver) -> None:
    graph = delta(saver, every=3)
    for turn in range(7):
        graph.invoke(said(str(turn)), on("t"))
    before, count = texts(graph.get_state(on("t"))), len(list(saver.list(on("t"))))
    assert before == [text for turn in range(7) for text in (str(turn), f"you said {turn}")]
    saver.prune(["t"])
    assert texts(graph.get_state(on("t"))) == before
    assert 1 < len(list(saver.list(on("t")))) < count / 2
    graph.invoke(said("more"), on("t"))
    assert texts(graph.get_state(on("t"))) == [*before, "more", "you said more"]


# -- two at once


def _at_once(graph: Any, thread: str) -> list[BaseException | None]:
    """Two runs of one thread, which both loaded it before either of them saved its answer."""
    ended: list[BaseException | None] = []

    def run(text: str) -> None:
        try:
            graph.invoke(said(text), on(thread))
            ended.append(None)
        except CheckpointConflict as conflict:
            ended.append(conflict)

    runs = [threading.Thread(target=run, args=(text,)) for text in ("left", "right")]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    return ended


class Meeting:
    """A saver's `get_tuple` that returns only once both have called it."""

    def __init__(self, saver: DuramenSaver) -> None:
        self._get = saver.get_tuple
        self._barrier = threading.Barrier(2)

    def __call__(self, config: Any) -> Any:
        found = self._get(config)
        self._barrier.wait(30)
        return found


@pytest.mark.parametrize("begun", [False, True])
def test_of_two_runs_of_a_thread_the_second_is_refused(
    saver: DuramenSaver, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    graph = chat(saver)
    before = texts(graph.invoke(said("first"), on("t"))) if begun else []
    with monkeypatch.context() as patch:
        patch.setattr(saver, "get_tuple", Meeting(saver))
        ended = _at_once(graph, "t")
    assert sorted(type(one).__name__ for one in ended) == ["CheckpointConflict", "NoneType"]
    found = texts(graph.get_state(on("t")))
    [winner] = [text for text in ("left", "right") if text in found]
    assert found == [*before, winner, f"you said {winner}"]
    loser = "left" if winner == "right" else "right"
    assert texts(graph.invoke(said(loser), on("t"))) == [*found, loser, f"you said {loser}"]


def test_langgraphs_own_way_can_be_allowed(dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = DuramenSaver(dm, on_conflict="allow")
    graph = chat(saver)
    graph.invoke(said("first"), on("t"))
    with monkeypatch.context() as patch:
        patch.setattr(saver, "get_tuple", Meeting(saver))
        assert _at_once(graph, "t") == [None, None]
    assert len(texts(graph.get_state(on("t")))) == 4  # of six messages that were said


def test_a_writer_in_the_middle_of_another_run_is_noticed(saver: DuramenSaver) -> None:
    other = chat(saver)

    def answer_late(state: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:  # a run of its own, not one inside this one
            pool.submit(other.invoke, said("quick"), on("t")).result()
        return {"messages": [AIMessage("late")]}

    with pytest.raises(CheckpointConflict) as refused:
        chat(saver, answer_late).invoke(said("slow"), on("t"), durability="sync")
    assert refused.value.session == "t"
    assert texts(other.get_state(on("t"))) == ["slow", "quick", "you said quick"]


# -- changes to what was there


def test_a_message_changed_in_place_is_stored(address: str) -> None:
    def edit(state: Any) -> Any:
        state["messages"][0].content += "!"
        state["messages"][0].additional_kwargs["edited"] = True
        return {"messages": []} if len(state["messages"]) % 2 else {}

    with duramen.open(address) as dm:
        graph = chat(DuramenSaver(dm), edit)
        for turn in ("a", "b", "c"):
            graph.invoke(said(turn), on("t"))
    with duramen.open(address) as dm:
        found = chat(DuramenSaver(dm)).get_state(on("t")).values["messages"]
    assert [message.content for message in found] == ["a!!!", "b", "c"]
    assert found[0].additional_kwargs == {"edited": True}


@pytest.mark.parametrize(
    ("update", "left"),
    [
        ([RemoveMessage("user-a")], ["you said a", "b", "you said b"]),
        ([RemoveMessage("user-b")], ["a", "you said a", "you said b"]),
        ([HumanMessage("B", id="user-b")], ["a", "you said a", "B", "you said b"]),
        ([RemoveMessage(REMOVE_ALL_MESSAGES)], []),
        ([RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("anew")], ["anew"]),
    ],
)
def test_trimmed_and_edited_lists_come_back_as_they_were(saver: DuramenSaver, update: Any, left: list[str]) -> None:
    graph = chat(saver)
    for turn in ("a", "b"):
        graph.invoke(said(turn), on("t"))
    graph.update_state(on("t"), {"messages": update})
    assert texts(graph.get_state(on("t"))) == left
    graph.invoke(said("c"), on("t"))
    assert texts(graph.get_state(on("t"))) == [*left, "c", "you said c"]
    every = [texts(found) for found in graph.get_state_history(on("t")) if "messages" in found.values]
    assert ["a", "you said a", "b", "you said b"] in every


# -- size


def _stored(path: Path) -> int:
    """Bytes of all that grows with a conversation."""
    connection = apsw.Connection(str(path))
    sums = [
        connection.execute(f"SELECT total({what}) FROM {table}").get
        for table, what in (
            ("duramen_events", "length(payload) + 100"),
            ("duramen_bookmarks", "length(manifest) + 100"),
            ("duramen_chunks", "length(body) + 50"),
        )
    ]
    connection.close()
    return int(sum(sums))


@pytest.mark.promise("C4")
@pytest.mark.parametrize("build", [chat, nested])
def test_a_conversation_grows_by_what_is_said(tmp_path: Path, build: Any) -> None:
    path, sizes = tmp_path / "agent.db", [0]
    for until in (20, 40, 60):
        with duramen.open(path) as dm:  # each time by a process that remembers nothing
            graph = build(DuramenSaver(dm))
            for turn in range(until - 20, until):
                graph.invoke(said(f"{turn} " + "word " * 100), on("t"), durability="sync")
        sizes.append(_stored(path))
    first, second, third = (after - before for before, after in pairwise(sizes))
    assert second <= 1.1 * first
    assert third <= 1.1 * second
