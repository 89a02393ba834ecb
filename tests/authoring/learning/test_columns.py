"""Roles of columns: guessed, given, refused."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.authoring.learning.columns import Roles, guessed
from monitor.errors import RecordingError

POSE = ("observation.state[0]", "observation.state[1]")
LEROBOT = f"index,episode_index,frame_index,timestamp,{','.join(POSE)},action,next.reward,next.done"


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        ("episode,step,x,v,action,reward,terminated,truncated",
         Roles(("x", "v"), "action", "episode", "step", "reward", "terminated", "truncated")),
        ("state,action", Roles(("state",), "action")),
        ("traj_id,t,obs[0],obs[1],a,r,done,next_obs[0],next_obs[1]",
         Roles(("obs[0]", "obs[1]"), "a", "traj_id", "t", "r", "done", None, ("next_obs[0]", "next_obs[1]"))),
        (LEROBOT, Roles(POSE, "action", "episode_index", "frame_index", "next.reward", "next.done")),
        ("v,episode,seq,state,action,reward,terminated,truncated",
         Roles(("state",), "action", "episode", "seq", "reward", "terminated", "truncated", timing="state")),
        ("Episode,X,Action", Roles(("X",), "Action", "Episode")),
    ],
)  # fmt: skip
def test_roles_are_guessed_from_names(names: str, roles: Roles) -> None:
    assert guessed(names.split(","), {}, "f") == roles


def test_what_is_given_is_taken() -> None:
    given = {"state": "p, q", "action": "u", "episode": "", "reward": "cost", "next_state": "p2,q2"}
    given |= {"observation": "img", "timing": "step"}
    names = ["p", "q", "p2", "q2", "u", "cost", "episode", "img[0]", "img[1]", "reward"]
    found = guessed(names, given, "f")
    assert found == Roles(
        ("p", "q"), "u", None, None, "cost", next_state=("p2", "q2"), observation=("img[0]", "img[1]")
    )
    assert found.used == ("p", "q", "u", "cost", "p2", "q2", "img[0]", "img[1]")
    assert "observation img[0], img[1]" in [" ".join(line.split()) for line in found.lines()]
    assert guessed(["state", "action", "next_state"], {"next_state": ""}, "f").next_state == ()
    assert guessed(["state", "action"], {"timing": "state"}, "f").timing == "state"


@pytest.mark.parametrize(
    ("names", "given", "problem"),
    [
        ("x,y", {}, "no column looks like the action"),
        ("action,episode", {}, "no column looks like the state"),
        ("x,action", {"state": "z"}, "no column 'z'"),
        ("x,action", {"reward": "z"}, "no column 'z'"),
        ("x,action[0],action[1]", {"action": "action"}, "is a list"),
        ("x,y,action", {"next_state": "y", "state": "x,y"}, "--next-state names 1 columns for the 2"),
        ("x,y,action", {"next_state": "y", "state": "x", "timing": "state"}, "needs --timing step"),
        (",".join([f"c{i}" for i in range(40)]), {}, r"c29, \.\.\."),
    ],
)
def test_what_does_not_fit_is_refused(names: str, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecordingError, match=problem):
        guessed(names.split(","), given, "f")


@pytest.mark.parametrize("episode", ["run.id", "Run.id", "run[0]", "run"])
def test_the_one_entry_of_a_structure_or_a_list_takes_the_role(episode: str) -> None:
    assert guessed((episode, "floor", "action"), {}, "log").episode == episode


@pytest.mark.parametrize("episodes", [("run.id", "run.day"), ("run[0]", "run[1]")])
def test_runs_are_not_joined_because_their_column_has_several_entries(episodes: tuple[str, ...]) -> None:
    names = (*episodes, "floor", "action")
    with pytest.raises(RecordingError, match=r"an episode has several columns .* by --episode NAME, or '' for none"):
        guessed(names, {}, "log")
    assert guessed(names, {"episode": ""}, "log").episode is None
    assert guessed(names, {"episode": episodes[1]}, "log").episode == episodes[1]
