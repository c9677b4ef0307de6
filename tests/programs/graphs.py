"""LangGraph graphs for tests, and a program that chats through one of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

import duramen
from duramen.integrations.langgraph import DuramenSaver


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]


def thread_config(thread: str, **more: Any) -> Any:
    """The configuration of a thread."""
    return {"configurable": {"thread_id": thread, **more}}


def user_message(text: str) -> dict[str, Any]:
    """A message of the user as the input of a graph."""
    return {"messages": [HumanMessage(text, id=f"user-{text}")]}


def texts(state: Any) -> list[str]:
    """The texts of the messages in a state or in a snapshot."""
    values = state if isinstance(state, dict) else state.values
    return [message.content for message in values["messages"]]


def answer(state: Chat) -> dict[str, Any]:
    last = state["messages"][-1]
    return {"messages": [AIMessage(f"you said {last.content}", id=f"re-{last.id}")]}


def comment(state: Chat) -> dict[str, Any]:
    number = len(state["messages"])
    return {"messages": [AIMessage(f"inner {number}", id=f"inner-{number}")]}


def chat_graph(saver: Any, node: Any = answer) -> Any:
    """A graph with one node that answers."""
    builder = StateGraph(Chat)
    builder.add_node("answer", node)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def question_graph(saver: Any) -> Any:
    """A graph that interrupts in its second node of three."""

    def ask(state: Notes) -> dict[str, Any]:
        return {"notes": [f"you answered {interrupt('well?')}"]}

    builder = StateGraph(Notes)
    builder.add_node("before", lambda state: {"notes": ["asked"]})
    builder.add_node("ask", ask)
    builder.add_node("after", lambda state: {"notes": ["done"]})
    builder.add_edge(START, "before")
    builder.add_edge("before", "ask")
    builder.add_edge("ask", "after")
    return builder.compile(checkpointer=saver)


def nested_graph(saver: Any, **inner: Any) -> Any:
    """A graph whose second node is a graph with the same messages."""
    sub = StateGraph(Chat)
    sub.add_node("inner", comment)
    sub.add_edge(START, "inner")
    builder = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_node("sub", sub.compile(**inner))
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "sub")
    return builder.compile(checkpointer=saver)


def delta_graph(saver: Any, every: int) -> Any:
    """A chat whose channel stores a full snapshot only every few steps."""

    def add_all(messages: Any, writes: Any) -> Any:
        for write in writes:
            messages = add_messages(messages, write)
        return messages

    channel = DeltaChannel(add_all, snapshot_frequency=every)
    builder: Any = StateGraph(TypedDict("Delta", {"messages": Annotated[list, channel]}))  # type: ignore[type-arg]
    builder.add_node("answer", lambda state: answer(state))
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def parallel_graph(saver: Any) -> Any:
    """A graph with three parallel nodes and one that joins them."""
    builder = StateGraph(Notes)
    for name in ("a", "b", "c"):
        builder.add_node(name, lambda state, name=name: {"notes": [name]})
        builder.add_edge(START, name)
        builder.add_edge(name, "end")
    builder.add_node("end", lambda state: {"notes": [f"end {len(state['notes'])}"]})
    return builder.compile(checkpointer=saver)


def chat_until(report: Callable[[str], None], address: str, thread: str, turns: int) -> None:
    """Continue a thread until it has so many turns. Reports each saved turn."""
    with duramen.open(address) as dm:
        graph = chat_graph(DuramenSaver(dm))
        if graph.get_state(thread_config(thread)).next:
            graph.invoke(None, thread_config(thread))
        begun = len(graph.get_state(thread_config(thread)).values.get("messages", ())) // 2
        for turn in range(begun, turns):
            graph.invoke(user_message(str(turn)), thread_config(thread))
            report(str(turn))
