"""Real graphs on the checkpointer: killed, resumed, branched, nested, edited, and run twice at once."""

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
from programs.graphs import (
    chat_graph,
    delta_graph,
    nested_graph,
    parallel_graph,
    question_graph,
    texts,
    thread_config,
    user_message,
)

import duramen
from duramen.errors import CheckpointConflict
from duramen.integrations.langgraph import DuramenSaver


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "agent.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def saver(dm: duramen.Duramen) -> DuramenSaver:
    return DuramenSaver(dm)


# -- continuing


@pytest.mark.promise("I1")
def test_a_chat_of_fifty_turns_survives_a_kill(address: str, processes: ChildProcesses) -> None:
    child = processes.start("graphs:chat_until", address=address, thread="t", turns=50)
    lines = len(child.wait_for_lines(20))
    child.kill()
    assert processes.start("graphs:chat_until", address=address, thread="t", turns=50).finish()[-1] == "49"
    with duramen.open(address) as dm:
        history = texts(chat_graph(DuramenSaver(dm)).get_state(thread_config("t")))
    assert lines >= 20
    assert history == [text for turn in range(50) for text in (str(turn), f"you said {turn}")]


def test_an_interrupted_graph_is_answered_after_reopening(address: str) -> None:
    with duramen.open(address) as dm:
        stopped = question_graph(DuramenSaver(dm)).invoke({"notes": []}, thread_config("t"))
    assert stopped["__interrupt__"][0].value == "well?"
    with duramen.open(address) as dm:
        graph = question_graph(DuramenSaver(dm))
        assert graph.get_state(thread_config("t")).next == ("ask",)
        assert graph.invoke(Command(resume="yes"), thread_config("t"))["notes"] == ["asked", "you answered yes", "done"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_each_durability_mode_stores_the_conversation(saver: DuramenSaver, durability: Any) -> None:
    graph = chat_graph(saver)
    for turn in ("a", "b", "c"):
        graph.invoke(user_message(turn), thread_config("t"), durability=durability)
    assert texts(graph.get_state(thread_config("t"))) == ["a", "you said a", "b", "you said b", "c", "you said c"]


@pytest.mark.parametrize("async_handle", [False, True])
def test_async_graphs_work_on_sync_and_async_handles(any_address: str, async_handle: bool) -> None:
    async def main() -> list[str]:
        dm = await duramen.aopen(any_address) if async_handle else duramen.open(any_address)
        graph = chat_graph(DuramenSaver(dm))
        for turn in ("a", "b"):
            await graph.ainvoke(user_message(turn), thread_config("t"))
        history = texts(await graph.aget_state(thread_config("t")))
        assert len([snapshot async for snapshot in graph.aget_state_history(thread_config("t"))]) == 6
        await dm.close() if async_handle else dm.close()
        return history

    assert asyncio.run(main()) == ["a", "you said a", "b", "you said b"]


def test_the_writes_of_parallel_branches_are_all_stored(saver: DuramenSaver) -> None:
    graph = parallel_graph(saver)
    assert graph.invoke({"notes": []}, thread_config("t"))["notes"] == ["a", "b", "c", "end 3"]
    assert graph.get_state(thread_config("t")).values["notes"] == ["a", "b", "c", "end 3"]


def test_a_nested_graph_is_stored(saver: DuramenSaver) -> None:
    graph = nested_graph(saver)
    for turn in ("a", "b"):
        graph.invoke(user_message(turn), thread_config("t"))
    assert texts(graph.get_state(thread_config("t"))) == ["a", "you said a", "inner 2", "b", "you said b", "inner 5"]
    assert len({snapshot.config["configurable"]["checkpoint_ns"] for snapshot in saver.list(thread_config("t"))}) == 3


def test_a_nested_graph_with_its_own_checkpoints_is_stored(saver: DuramenSaver) -> None:
    graph = nested_graph(saver, checkpointer=True)
    for turn in ("a", "b"):
        graph.invoke(user_message(turn), thread_config("t"))
    inside = [
        texts(snapshot.checkpoint["channel_values"])
        for snapshot in saver.list(thread_config("t", checkpoint_ns="sub"), limit=1)
    ]
    assert inside == [["a", "you said a", "inner 2", "b", "you said b", "inner 5"]]


# -- earlier checkpoints


def test_a_run_from_an_earlier_checkpoint_creates_a_branch(saver: DuramenSaver) -> None:
    graph = chat_graph(saver)
    for turn in ("a", "b", "c"):
        graph.invoke(user_message(turn), thread_config("t"))
    [after_a] = [
        snapshot
        for snapshot in graph.get_state_history(thread_config("t"))
        if not snapshot.next and len(texts(snapshot)) == 2
    ]
    graph.invoke(user_message("x"), after_a.config)
    assert texts(graph.get_state(thread_config("t"))) == ["a", "you said a", "x", "you said x"]
    graph.invoke(user_message("y"), thread_config("t"))
    assert texts(graph.get_state(thread_config("t")))[-2:] == ["y", "you said y"]
    assert "you said c" in {
        texts(snapshot)[-1] for snapshot in graph.get_state_history(thread_config("t")) if not snapshot.next
    }


def test_a_node_can_run_again_from_an_earlier_checkpoint(saver: DuramenSaver) -> None:
    graph = nested_graph(saver)
    graph.invoke(user_message("a"), thread_config("t"))
    graph.invoke(user_message("b"), thread_config("t"))
    [before_sub] = [f for f in graph.get_state_history(thread_config("t")) if f.next == ("sub",) and len(texts(f)) == 2]
    assert texts(graph.invoke(None, before_sub.config)) == ["a", "you said a", "inner 2"]
    assert texts(graph.get_state(thread_config("t"))) == ["a", "you said a", "inner 2"]


def test_a_nested_graph_with_its_own_checkpoints_goes_back_with_its_parent(saver: DuramenSaver) -> None:
    graph = nested_graph(saver, checkpointer=True)
    for turn in ("a", "b"):
        graph.invoke(user_message(turn), thread_config("t"))
    for length, last in ((5, "inner 5"), (2, "inner 2")):  # before its second run, and before its first
        [before] = [
            f for f in graph.get_state_history(thread_config("t")) if f.next == ("sub",) and len(texts(f)) == length
        ]
        assert texts(graph.invoke(None, before.config))[-1] == last


def test_the_latest_and_an_earlier_state_can_be_updated(saver: DuramenSaver) -> None:
    graph = chat_graph(saver)
    graph.update_state(thread_config("t"), user_message("first"), as_node="answer")
    graph.invoke(user_message("a"), thread_config("t"))
    graph.update_state(thread_config("t"), {"messages": [AIMessage("corrected", id="re-user-a")]})
    assert texts(graph.get_state(thread_config("t"))) == ["first", "a", "corrected"]
    past = list(graph.get_state_history(thread_config("t")))[-1]
    graph.update_state(past.config, user_message("other"), as_node="answer")
    assert texts(graph.get_state(thread_config("t"))) == ["first", "other"]


def test_the_history_can_be_read_in_full_and_in_pages(saver: DuramenSaver) -> None:
    graph = chat_graph(saver)
    for turn in ("a", "b"):
        graph.invoke(user_message(turn), thread_config("t"))
    every = list(graph.get_state_history(thread_config("t")))
    assert [snapshot.metadata["step"] for snapshot in every] == [4, 3, 2, 1, 0, -1]
    assert list(graph.get_state_history(thread_config("t"), limit=2)) == every[:2]
    assert list(graph.get_state_history(thread_config("t"), before=every[1].config)) == every[2:]
    assert list(graph.get_state_history(thread_config("t"), filter={"source": "input"})) == [every[2], every[5]]
    assert every[0].parent_config == {"configurable": every[1].config["configurable"]}


def test_a_fork_of_the_session_is_an_independent_thread(dm: duramen.Duramen) -> None:
    graph = chat_graph(DuramenSaver(dm))
    graph.invoke(user_message("a"), thread_config("t"))
    dm.session("t").fork("u")
    graph.invoke(user_message("b"), thread_config("t"))
    graph.invoke(user_message("c"), thread_config("u"))
    assert texts(graph.get_state(thread_config("t"))) == ["a", "you said a", "b", "you said b"]
    assert texts(graph.get_state(thread_config("u"))) == ["a", "you said a", "c", "you said c"]
    threads = {snapshot.config["configurable"]["thread_id"] for snapshot in graph.get_state_history(thread_config("u"))}
    assert threads == {"u"}


def test_pruning_retains_the_parts_of_the_newest_state(saver: DuramenSaver) -> None:
    graph = delta_graph(saver, every=3)
    for turn in range(7):
        graph.invoke(user_message(str(turn)), thread_config("t"))
    before, count = texts(graph.get_state(thread_config("t"))), len(list(saver.list(thread_config("t"))))
    assert before == [text for turn in range(7) for text in (str(turn), f"you said {turn}")]
    saver.prune(["t"])
    assert texts(graph.get_state(thread_config("t"))) == before
    assert 1 < len(list(saver.list(thread_config("t")))) < count / 2
    graph.invoke(user_message("more"), thread_config("t"))
    assert texts(graph.get_state(thread_config("t"))) == [*before, "more", "you said more"]


# -- two runs at once


def _run_twice_at_once(graph: Any, thread: str) -> list[BaseException | None]:
    """Run a thread twice at once. Both runs load it before one of them saves its answer."""
    outcomes: list[BaseException | None] = []

    def run(text: str) -> None:
        try:
            graph.invoke(user_message(text), thread_config(thread))
            outcomes.append(None)
        except CheckpointConflict as conflict:
            outcomes.append(conflict)

    runs = [threading.Thread(target=run, args=(text,)) for text in ("left", "right")]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    return outcomes


class BothLoaded:
    """Replaces `get_tuple` of a saver. It returns after two threads have called it."""

    def __init__(self, saver: DuramenSaver) -> None:
        self._get = saver.get_tuple
        self._barrier = threading.Barrier(2)

    def __call__(self, config: Any) -> Any:
        snapshot = self._get(config)
        self._barrier.wait(30)
        return snapshot


@pytest.mark.parametrize("thread_exists", [False, True])
def test_the_second_of_two_concurrent_runs_of_a_thread_is_refused(
    saver: DuramenSaver, monkeypatch: pytest.MonkeyPatch, thread_exists: bool
) -> None:
    graph = chat_graph(saver)
    before = texts(graph.invoke(user_message("first"), thread_config("t"))) if thread_exists else []
    with monkeypatch.context() as patch:
        patch.setattr(saver, "get_tuple", BothLoaded(saver))
        outcomes = _run_twice_at_once(graph, "t")
    assert sorted(type(one).__name__ for one in outcomes) == ["CheckpointConflict", "NoneType"]
    history = texts(graph.get_state(thread_config("t")))
    [winner] = [text for text in ("left", "right") if text in history]
    assert history == [*before, winner, f"you said {winner}"]
    loser = "left" if winner == "right" else "right"
    assert texts(graph.invoke(user_message(loser), thread_config("t"))) == [*history, loser, f"you said {loser}"]


def test_on_conflict_allow_accepts_both_runs_as_langgraph_does(
    dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = DuramenSaver(dm, on_conflict="allow")
    graph = chat_graph(saver)
    graph.invoke(user_message("first"), thread_config("t"))
    with monkeypatch.context() as patch:
        patch.setattr(saver, "get_tuple", BothLoaded(saver))
        assert _run_twice_at_once(graph, "t") == [None, None]
    assert len(texts(graph.get_state(thread_config("t")))) == 4  # of six messages


def test_a_write_during_another_run_is_detected(saver: DuramenSaver) -> None:
    other = chat_graph(saver)

    def answer_late(state: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:  # a separate run, not a nested one
            pool.submit(other.invoke, user_message("quick"), thread_config("t")).result()
        return {"messages": [AIMessage("late")]}

    with pytest.raises(CheckpointConflict) as refused:
        chat_graph(saver, answer_late).invoke(user_message("slow"), thread_config("t"), durability="sync")
    assert refused.value.session == "t"
    assert texts(other.get_state(thread_config("t"))) == ["slow", "quick", "you said quick"]


# -- changed messages


def test_a_message_changed_in_place_is_stored(address: str) -> None:
    def edit(state: Any) -> Any:
        state["messages"][0].content += "!"
        state["messages"][0].additional_kwargs["edited"] = True
        return {"messages": []} if len(state["messages"]) % 2 else {}

    with duramen.open(address) as dm:
        graph = chat_graph(DuramenSaver(dm), edit)
        for turn in ("a", "b", "c"):
            graph.invoke(user_message(turn), thread_config("t"))
    with duramen.open(address) as dm:
        messages = chat_graph(DuramenSaver(dm)).get_state(thread_config("t")).values["messages"]
    assert [message.content for message in messages] == ["a!!!", "b", "c"]
    assert messages[0].additional_kwargs == {"edited": True}


@pytest.mark.parametrize(
    ("update", "left"),
    [
        ([RemoveMessage("user-a")], ["you said a", "b", "you said b"]),
        ([RemoveMessage("user-b")], ["a", "you said a", "you said b"]),
        ([HumanMessage("B", id="user-b")], ["a", "you said a", "B", "you said b"]),
        ([RemoveMessage(REMOVE_ALL_MESSAGES)], []),
        ([RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("new")], ["new"]),
    ],
)
def test_trimmed_and_edited_lists_are_restored(saver: DuramenSaver, update: Any, left: list[str]) -> None:
    graph = chat_graph(saver)
    for turn in ("a", "b"):
        graph.invoke(user_message(turn), thread_config("t"))
    graph.update_state(thread_config("t"), {"messages": update})
    assert texts(graph.get_state(thread_config("t"))) == left
    graph.invoke(user_message("c"), thread_config("t"))
    assert texts(graph.get_state(thread_config("t"))) == [*left, "c", "you said c"]
    every = [
        texts(snapshot) for snapshot in graph.get_state_history(thread_config("t")) if "messages" in snapshot.values
    ]
    assert ["a", "you said a", "b", "you said b"] in every


# -- size


def _stored_bytes(path: Path) -> int:
    """The bytes of all tables that grow with a conversation."""
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
@pytest.mark.parametrize("build", [chat_graph, nested_graph])
def test_a_conversation_grows_only_by_its_new_messages(tmp_path: Path, build: Any) -> None:
    path, sizes = tmp_path / "agent.db", [0]
    for until in (20, 40, 60):
        with duramen.open(path) as dm:  # a new handle has nothing cached
            graph = build(DuramenSaver(dm))
            for turn in range(until - 20, until):
                graph.invoke(user_message(f"{turn} " + "word " * 100), thread_config("t"), durability="sync")
        sizes.append(_stored_bytes(path))
    first, second, third = (after - before for before, after in pairwise(sizes))
    assert second <= 1.1 * first
    assert third <= 1.1 * second
