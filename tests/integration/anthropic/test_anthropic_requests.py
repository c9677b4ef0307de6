"""Anthropic's SDK sends a context unchanged over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import anthropic
import pytest
from programs.conversations import take_turn
from programs.model_server import ModelServer, anthropic_body, responds

import duramen

PNG = base64.b64encode(b"\x89PNG" + bytes(9_000)).decode()
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


@pytest.mark.promise("R8")
@pytest.mark.parametrize("memory_in", ["system", "user"])
def test_the_sdk_sends_a_context_unchanged(memory_in: str) -> None:
    with duramen.open("memory:") as dm, ModelServer() as server:
        session = dm.session("s")
        session.say("system", "You are a travel agent.")
        for number in range(12):
            take_turn(session, number)
        session.say("user", [{"type": "text", "text": "half a character: \ud800"}, PICTURE])
        request: Any = session.context(budget=4_000).anthropic(memory_in=memory_in)
        server.answers = [responds(200, anthropic_body({"type": "text", "text": "Fine."}))]
        with anthropic.Anthropic(api_key="x", base_url=server.url, max_retries=0) as client:
            client.messages.create(model="m", max_tokens=5, **request)
        (_, _, body), *_ = server.requests
    assert body["messages"] == request["messages"]
