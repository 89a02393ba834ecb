"""Receivers of webhooks: they accept, refuse, are slow, or cut the connection with or without having taken the post."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Final

from monitor.sidecar.webhooks.post import PostError, PostResponse
from monitor.sidecar.webhooks.target import Target
from tests.simulation.world import World

FIRST_PORT: Final = 8000


class Receiver:
    """One receiver. `mood`: what it does with a post; `taken`: ids of the events that it has, in order.

    Moods: `accepts`, `away` (no connection), `busy` (503 with Retry-After), `fails` (500), `limits` (429), `slow`
    (takes the post, and answers after the sender gave up), `cuts` (no answer; it may have taken the post).
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.mood = "accepts"
        self.taken: list[str] = []
        self.uncertain = 0
        """Posts taken without an answer, which come again."""

    def take(self, body: bytes) -> None:
        event = json.loads(body)["id"]
        self.taken.append(event)
        self.world.note(f"webhook {self.name} {event}")

    def calm(self) -> None:
        self.mood = "accepts"

    async def answer(self, body: bytes, seconds: float) -> PostResponse:
        draw = self.world.draw
        await asyncio.sleep(draw.uniform(0.001, 0.05))
        match self.mood:
            case "accepts":
                self.take(body)
                return PostResponse(draw.choice((200, 202, 204)))
            case "away":
                raise PostError("Connection refused")
            case "busy":
                return PostResponse(503, str(draw.randint(1, 5)))
            case "fails":
                return PostResponse(500)
            case "limits":
                return PostResponse(429)
            case "slow":
                self.uncertain += 1
                self.take(body)
                await asyncio.sleep(seconds)
                raise PostError(f"no answer within {seconds:g} s", reached=True)
            case "cuts":
                if draw.random() < 0.5:
                    self.uncertain += 1
                    self.take(body)
                raise PostError("it closed the connection without an answer", reached=True)
            case mood:
                raise AssertionError(mood)


class Receivers:
    """All receivers, each on a port of its own; `post` takes the place of the sidecar's."""

    def __init__(self, world: World, names: list[str]) -> None:
        self.all = {FIRST_PORT + place: Receiver(world, name) for place, name in enumerate(names)}

    def urls(self) -> dict[str, str]:
        return {receiver.name: f"http://127.0.0.1:{port}/alerts" for port, receiver in self.all.items()}

    async def post(
        self, target: Target, body: bytes, headers: Mapping[str, str], *, seconds: float, context: ssl.SSLContext | None
    ) -> PostResponse:
        assert context is None
        assert headers["Content-Type"], "a post says what it is"
        return await self.all[target.port].answer(body, seconds)
