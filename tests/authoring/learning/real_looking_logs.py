"""Small logs as different systems write them, with the roles that a careful person would give their columns.

A role is that of the file of `cfmon init`; `-` is left out. `?` after it: the person would ask first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

Row = dict[str, object]
Rng = np.random.Generator


@dataclass(frozen=True)
class Log:
    """Rows of a log, and the roles of its columns."""

    rows: list[Row]
    roles: dict[str, str]


def autoscaler(rng: Rng) -> Iterator[Row]:
    """One service, one row a minute, no episodes: the load goes up and down by the hour."""
    replicas, queue = 3, 0.0
    for minute in range(400):
        load = 50 + 30 * np.sin(minute / 60) + rng.normal(0, 3)
        scale = int(rng.integers(-1, 2))
        yield {
            "timestamp": f"2026-03-{2 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:00Z",
            "request_id": f"{rng.integers(1 << 60):x}",
            "service": "checkout",
            "load": round(load, 2),
            "replicas": replicas,
            "queue": round(queue, 2),
            "action": scale,
            "action_name": ["down", "stay", "up"][scale + 1],
            "note": "" if rng.random() < 0.9 else f"operator {rng.integers(90)} looked at the graph",
        }
        replicas = min(max(replicas + scale, 1), 9)
        queue = max(queue + load - 20 * replicas + rng.normal(), 0.0)


def fleet_of_services(rng: Rng) -> Iterator[Row]:
    """Rows of three services, interleaved."""
    state = dict.fromkeys(("api", "shop", "mail"), 5)
    for tick in range(120):
        for service, pods in state.items():
            scale = int(rng.integers(-1, 2))
            yield {"ts": 1.7e9 + 60 * tick, "service": service, "pods": pods, "cpu": round(rng.random(), 3),
                   "action": scale}  # fmt: skip
            state[service] = min(max(pods + scale, 1), 9)


def heating(rng: Rng) -> Iterator[Row]:
    """A house with the weather and the price of power, a day an episode."""
    for day in range(20):
        inside, outside = 19.0, rng.normal(5, 3)
        for hour in range(24):
            heat = int(inside < 20)
            if rng.random() < 0.2:
                heat = int(rng.integers(3))
            yield {"day": day, "step": hour, "hour": (hour + 6) % 24, "indoor_temp": round(inside, 2),
                   "outdoor_temp": round(outside, 2), "price": round(rng.random() / 4, 3), "heat": heat,
                   "firmware": "1.4.2", "energy_kwh": round(20 * day + hour + rng.random() / 2, 2)}  # fmt: skip
            inside, outside = (
                inside + heat - 0.1 * (inside - outside) + rng.normal(0, 0.2),
                outside + rng.normal(0, 0.3),
            )


def lerobot(rng: Rng) -> Iterator[Row]:
    """An arm, as LeRobot's datasets have it once their lists are columns; the action is numbered."""
    index = 0
    for episode in range(12):
        at = rng.normal(size=3)
        for frame in range(25):
            action = int(rng.integers(6))
            done = frame == 24
            yield {"index": index, "episode_index": episode, "frame_index": frame, "timestamp": frame / 30,
                   **{f"observation.state[{i}]": round(float(at[i]), 4) for i in range(3)}, "action": action,
                   "next.reward": float(done), "next.done": done, "task_index": 0}  # fmt: skip
            index += 1
            at = at + 0.1 * np.eye(3)[action % 3] * (1 if action < 3 else -1) + rng.normal(0, 0.02, 3)


def mobile_robot(rng: Rng) -> Iterator[Row]:
    """A rover with a battery; trials have text names, and a flag says that it crashed."""
    for trial in range(30):
        x, battery = 0.0, 100.0
        for t in range(20):
            cmd = ["left", "right", "stop"][int(rng.integers(3))]
            crashed = t > 5 and bool(rng.random() < 0.06)
            yield {"trial": f"run-{trial:03d}", "t": t, "stamp_ns": 1_700_000_000_000 + 7 * (100 * trial + t),
                   "x": round(x, 3), "battery": round(battery, 1), "cmd": cmd,
                   "next_x": round(x + rng.normal(), 3), "crashed": crashed}  # fmt: skip
            if crashed:
                break
            x += {"left": -0.3, "right": 0.3, "stop": 0.0}[cmd] + rng.normal(0, 0.1)
            battery -= rng.random() - (20 if battery < 90 else 0)


def trading(rng: Rng) -> Iterator[Row]:
    """A desk that buys and sells; its profit is in a column, and so is what it will be."""
    for session in range(25):
        price, position, pnl = 100.0, 0, 0.0
        prices = 100 + np.cumsum(rng.normal(0, 0.5, 31))
        for minute in range(30):
            price, ahead = prices[minute], prices[minute + 1]
            order = int(rng.integers(-1, 2))
            yield {"session_id": f"S{session:04d}", "time": f"{9 + minute // 60:02d}:{minute % 60:02d}",
                   "datetime": f"2026-05-{1 + session:02d} 09:{minute:02d}:00", "mid": round(price, 4),
                   "position": position, "drawdown": round(min(pnl, 0.0), 3), "action": order, "pnl": round(pnl, 3),
                   "mid_after": round(ahead, 4)}  # fmt: skip
            position = min(max(position + order, -3), 3)
            pnl = position * (ahead - price)


def clinic(rng: Rng) -> Iterator[Row]:
    """Patients, hour by hour: age and sex, a lab value that is mostly missing, and what came of it."""
    for patient in range(30):
        pressure, age = rng.normal(70, 8), int(rng.integers(30, 90))
        lived = bool(rng.random() < 0.7)
        for hour in range(int(rng.integers(12, 24))):
            dose = int(rng.integers(3))
            yield {"patient_id": 1000 + 7 * patient, "hour": hour, "map": round(pressure, 1),
                   "heart_rate": int(rng.normal(80, 10)),
                   "lactate": "" if rng.random() < 0.7 else round(rng.random(), 2),
                   "age": age, "vasopressor_action": dose, "outcome": "survived" if lived else "died",
                   "comment": "family informed of the plan" if rng.random() < 0.05 else ""}  # fmt: skip
            pressure += dose - 1 + rng.normal(0, 2)


def atari(rng: Rng) -> Iterator[Row]:
    """A game with whole numbers only, as a wrapper logs it."""
    for game in range(25):
        lives, row, score = 3, 5, 0
        for frame in range(30):
            action = int(rng.integers(3))
            hit = bool(rng.random() < 0.08)
            lives -= hit
            yield {"ep": game, "frame": frame, "lives": lives, "row": row, "a": action, "r": int(not hit),
                   "done": lives == 0, "return_to_go": 30 - frame, "seed": 17 * game}  # fmt: skip
            if lives == 0:
                break
            row, score = min(max(row + action - 1, 0), 9), score + 1


def gridworld(rng: Rng) -> Iterator[Row]:
    """Named states, and nothing else."""
    for episode in range(15):
        place = "dock"
        for step in range(12):
            action = ["go", "wait"][int(rng.integers(2))]
            yield {"episode": episode, "step": step, "state": place, "action": action, "reward": -1,
                   "temperature": round(20 + rng.normal(), 2)}  # fmt: skip
            place = ["dock", "lane", "ice"][int(rng.integers(3))]


def replay_buffer(rng: Rng) -> Iterator[Row]:
    """Transitions of a replay buffer, one row a step, with the state afterwards."""
    for trajectory in range(20):
        at = rng.normal(size=2)
        for step in range(15):
            after = at + rng.normal(0, 0.3, 2)
            yield {"traj_id": trajectory, "t": step, "obs[0]": round(at[0], 4), "obs[1]": round(at[1], 4),
                   "a": int(rng.integers(4)), "r": round(-abs(at[0]), 4), "done": False, "timeout": step == 14,
                   "next_obs[0]": round(after[0], 4), "next_obs[1]": round(after[1], 4),
                   "logp": round(-rng.random(), 4)}  # fmt: skip
            at = after


def messages(rng: Rng) -> Iterator[Row]:
    """Messages of the monitor."""
    for episode in range(10):
        for seq in range(20):
            yield {"v": 1, "episode": episode, "seq": seq, "state": int(rng.integers(6)),
                   "action": int(rng.integers(2)), "reward": 0, "terminated": False,
                   "truncated": seq == 19}  # fmt: skip


def pandas_export(rng: Rng) -> Iterator[Row]:
    """A table that pandas wrote: with numbers of rows, a date and no episode. The pump is what is decided."""
    level, index = 5.0, 0
    for day in range(10):
        for hour in range(24):
            pump = int(rng.integers(3))
            yield {"": index, "date": f"2026-04-{1 + day:02d}", "hour_of_day": hour, "level": round(level, 3),
                   "rain": round(max(rng.normal(), 0), 2), "pump": pump, "flow": 1.5 * pump}  # fmt: skip
            index += 1
            level = min(max(level + 1 - pump + rng.normal(), 0), 10)


def elevator(rng: Rng) -> Iterator[Row]:
    """Few values in each column, one of them text; `t` is no time here, it is a temperature."""
    floor, index = 0, 0
    for shift in range(15):
        for _ in range(40):
            command = ["up", "down", "hold"][int(rng.integers(3))]
            index += 1
            yield {"shift": shift, "n": index, "t": int(rng.integers(18, 24)), "floor": floor,
                   "door": ["open", "shut"][int(rng.integers(2))], "command": command}  # fmt: skip
            floor = min(max(floor + {"up": 1, "down": -1, "hold": 0}[command], 0), 7)


EXPECTED: dict[Callable[[Rng], Iterator[Row]], str] = {
    autoscaler: "timestamp order, request_id -, service -, load state, replicas state, queue state, action action, "
    "action_name -, note -",
    fleet_of_services: "ts order, service episode, pods state, cpu state, action action",
    heating: "day episode, step order, hour input?, indoor_temp state, outdoor_temp input?, price input?, heat state, "
    "firmware -, energy_kwh -?",
    lerobot: "index -, episode_index episode, frame_index order, timestamp -, observation.state[0] state, "
    "observation.state[1] state, observation.state[2] state, action action, next.reward reward, "
    "next.done terminated, task_index -",
    mobile_robot: "trial episode, t order, stamp_ns -, x state, battery state, cmd action?, "
    "next_x -, crashed terminated",
    trading: "session_id episode, time -, datetime order, mid state, position state, drawdown state, action action, "
    "pnl reward?, mid_after -",
    clinic: "patient_id episode, hour order, map state, heart_rate state, lactate -?, age -?, "
    "vasopressor_action action, outcome -, comment -",
    atari: "ep episode, frame order, lives state, row state, a action, r reward, done terminated, "
    "return_to_go -, seed -",
    gridworld: "episode episode, step order, state state, action action, reward reward, temperature -",
    replay_buffer: "traj_id episode, t order, obs[0] state, obs[1] state, a action, r reward, done terminated, "
    "timeout truncated, next_obs[0] next_state, next_obs[1] next_state, logp -",
    messages: "v -, episode episode, seq order, state state, action action, reward reward, terminated terminated, "
    "truncated truncated",
    pandas_export: " -, date -, hour_of_day input?, level state, rain input?, pump state, flow state",
    elevator: "shift episode?, n -, t state, floor state, door state, command action?",
}
"""Log -> the roles of its columns."""


def log_of(make: Callable[[Rng], Iterator[Row]]) -> Log:
    """Return the rows of a log, and the roles of its columns."""
    roles = dict(text.rsplit(" ", 1) for text in EXPECTED[make].split(", "))
    return Log(list(make(np.random.default_rng(4))), roles)
