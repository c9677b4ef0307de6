"""OpenAI's SDK sends a context unchanged over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import openai
import pytest
from programs.conversations import take_turn
from programs.model_server import ModelServer, openai_body, responds

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
        request: Any = session.context(budget=4_000).openai(memory_in=memory_in)
        server.answers = [responds(200, openai_body("Fine."))]
        with openai.OpenAI(api_key="x", base_url=server.url, max_retries=0) as client:
            client.chat.completions.create(model="m", **request)
        (_, _, body), *_ = server.requests
    assert body["messages"] == request["messages"]
