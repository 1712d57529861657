"""A turn of langgraph with its SqliteSaver: the answer is made at once, the thread's messages are kept in the file.

Arguments: a directory, messages of history, turns. Prints turns per second.
"""

# pyright: basic, reportMissingImports=false
import os
import sqlite3
import sys
import time
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

SAID = "The build failed because the handler expects a mapping and got a list; I read the file first. " * 2


class Thread(TypedDict):
    messages: Annotated[list, add_messages]
    call: str


def ask(state: Thread) -> dict:
    return {"call": f"after {len(state['messages'])} messages"}


def answer(state: Thread) -> dict:
    return {"messages": [AIMessage(content=SAID)]}


def main(place: str, history: int, turns: int) -> None:
    saver = SqliteSaver(sqlite3.connect(os.path.join(place, "langgraph.db"), check_same_thread=False))
    building = StateGraph(Thread)
    building.add_node("ask", ask)
    building.add_node("answer", answer)
    building.add_edge(START, "ask")
    building.add_edge("ask", "answer")
    building.add_edge("answer", END)
    graph = building.compile(checkpointer=saver)
    thread = {"configurable": {"thread_id": "ada"}}
    kinds = (HumanMessage, AIMessage)
    past = [kinds[place % 2](content=SAID) for place in range(history)]
    graph.update_state(thread, {"messages": past, "call": ""}, as_node="answer")
    graph.invoke({"messages": [HumanMessage(content=SAID)]}, thread)
    begun = time.perf_counter()
    for _ in range(turns):
        graph.invoke({"messages": [HumanMessage(content=SAID)]}, thread)
    print(turns / (time.perf_counter() - begun))


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
