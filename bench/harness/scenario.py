"""What is run: short scenarios, made of the phases of the harness, and its own scenarios with shorter phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Scenario:
    """A sequence of phases under one load.

    Attributes:
        phases: `label=type`, in the words of the harness; the first one is not measured.
        about: what happens in it.
        rate: messages a second, for each process.
        workers: how many messages each process has at once.
        processes: the number of processes; each publishes and has a worker.
        depth: how many messages always wait; 0 = they are published at the rate.
        env: further environment variables.
    """

    phases: Sequence[str]
    about: str = ""
    rate: int = 800
    workers: int = 32
    processes: int = 1
    depth: int = 0
    env: Mapping[str, str] = field(default_factory=dict)


# Each type of phase occurs in one of them.
SHORT: dict[str, Scenario] = {
    "pressure": Scenario(
        [
            *("warmup=warmup", "clean_1=clean", "idle_1=idle-in-tx", "recovery_1=recovery"),
            *("readers_1=active-readers", "clean_2=clean", "pressure_1=high-load", "clean_3=clean"),
        ],
        "a transaction that stays open, four repeatable-read readers of the hot table, half as much load more",
    ),
    "chaos": Scenario(
        [
            *("warmup=warmup", "clean_1=clean", "kills=pg-backend-kill(rate=2)", "clean_2=clean"),
            *("idle=pool-exhaustion(idle_conns=300)", "clean_3=clean", "restart=postgres-restart", "clean_4=clean"),
        ],
        "the server's busy connections are ended twice a second, 300 idle ones are held, it stops for half a phase",
        rate=600,
    ),
    "fleet": Scenario(
        [
            *("warmup=warmup", "clean_1=clean", "kill=kill-worker(instance=0)", "start=start-worker(instance=0)"),
            *("kills=repeated-kill(instance=0,period=5s)", "clean_2=clean"),
        ],
        "two processes, the first of which is killed with SIGKILL, once and then again and again",
        rate=300,
        processes=2,
    ),
    "peak": Scenario(
        ["warmup=warmup", "clean_1=clean"],
        "as fast as it goes, with 4,000 messages waiting",
        workers=64,
        depth=4000,
    ),
}
# As the sweep of the harness runs its scenarios: the name, or its beginning, and what differs from the defaults.
LOADS = {
    "chaos_crash_recovery": {"rate": 300, "processes": 2},
    "chaos_repeated_kills": {"rate": 300, "processes": 2},
    "chaos_": {"rate": 600},
    "crash_recovery": {"rate": 300, "processes": 2},
    "fleet_": {"rate": 300, "processes": 2},
    "mixed_queue": {"workers": 64, "env": {"BENCH_QUEUE_COUNT": "4"}},
}


def own(scenarios: Mapping[str, Sequence[str]]) -> dict[str, Scenario]:
    """Return the scenarios of the harness: `label=type:duration` for each phase, of which the duration is dropped."""
    return {
        name: Scenario(
            [spec.rpartition(":")[0] for spec in specs],
            **next((load for begin, load in LOADS.items() if name.startswith(begin)), {}),  # type: ignore[arg-type]
        )
        for name, specs in scenarios.items()
    }
