#!/usr/bin/env python3
"""Fills the coefficients of `orion-bench deploy-check` from what speed.py and network.py measured.

    python3 perf/suite/coefficients.py speed.json --network network.json            # writes perf/bench/model.json
    python3 perf/suite/coefficients.py speed.json --model other.json --dry-run      # prints what would change

Each value names the row, the number of repeats, the GPU and the commit it came from. What the files do not hold stays.
"""

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).resolve().parent.parent / "bench/model.json"


@dataclass(frozen=True)
class Step:
    """A workload of the model, as the suite has it."""

    name: str
    workload: str
    #: Waits that the model counts as part of a step and the suite leaves out, as those of its own timing.
    waits: int = 0


STEPS = [
    Step("training", "resnet50_bf16"),
    Step("generation", "gpt2"),
    Step("small-ops", "small_ops", waits=1),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speed", type=Path, help="the --out of speed.py")
    parser.add_argument("--network", type=Path, help="the --out of network.py")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--source", help="where the numbers are from, instead of machine and commit")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args()
    before = options.model.read_text()
    speed, network = (path and json.loads(path.read_text()) for path in (options.speed, options.network))
    model = filled(json.loads(before), speed, network, options.source)
    print("\n".join(changes(json.loads(before), model)) or "nothing changes")
    if not options.dry_run:
        options.model.write_text(written(model))
    missing = [name for name, value in coefficients(model) if value["value"] is None]
    if missing:
        print(f"not measured: {', '.join(missing)}", file=sys.stderr)


def filled(model, speed, network=None, source=None):
    """The model with what was measured in it."""
    model = json.loads(json.dumps(model))
    measured = Measured(speed, source)
    native = model["native"]
    measured.put(native["launch_us"], "launches", "enqueue_ns", "native", per=1000)
    measured.put_least(native["pinned_gbps"], "copies", ("h2d_pinned_gbps", "d2h_pinned_gbps"))
    measured.put(native["pageable_to_device_gbps"], "copies", "h2d_pageable_gbps", "native")
    measured.put(native["pageable_to_host_gbps"], "copies", "d2h_pageable_gbps", "native")
    measured.put_dispatch(model["dispatch_us"])
    # Models of before have none.
    measured.put_carrying(model.setdefault("carrying_us", unmeasured("speed.py")))
    over = {"network": Measured(network, source)} if network else {}
    for step in STEPS:
        workload = model["workloads"][step.name]
        measured.put(workload["step_us"], step.workload, "steady_ms", "native", per=1 / 1000)
        measured.put_round_trips(workload["round_trips"], step)
        slowdown = workload["measured_slowdown"]
        for transport in ("shm", "tcp"):
            measured.put_slowdown(slowdown[transport], step.workload, transport)
        for name, measurement in over.items():
            measurement.put_slowdown(slowdown.setdefault(name, unmeasured("network.py")), step.workload, "tcp")
    return model


def unmeasured(by):
    return {"value": None, "source": f"not measured yet: perf/suite/{by}"}


class Measured:
    """One JSON of speed.py or network.py. What it does not hold leaves a coefficient as it was."""

    def __init__(self, measured, source):
        machine = measured["machine"]
        where = source or f"{machine['gpu'] or 'no GPU'}, {machine['cpus']} cores, commit {machine['commit'][:7]}"
        if "network" in measured:
            link = measured["network"]["measured"]
            where += f", {link['round_trip_added_us']:.0f} us added, {link['gbit_per_s_4_connections']:.0f} Gbit/s"
        self.runs, self.where = measured["runs"], where

    def put(self, coefficient, workload, metric, mode, per=1):
        values = self.values(workload, metric, mode)
        if values:
            self.set(coefficient, statistics.median(values) / per, f"{workload} {metric}, {mode}, {repeats(values)}")

    def put_least(self, coefficient, workload, metrics):
        values = {metric: self.values(workload, metric, "native") for metric in metrics}
        if all(values.values()):
            metric = min(metrics, key=lambda metric: statistics.median(values[metric]))
            self.put(coefficient, workload, metric, "native")

    def put_dispatch(self, coefficient):
        """Launches come as fast as the slower of driver and worker lets them; the worker also calls the driver."""
        native, orion = (self.values("launches", "launch_us", mode) for mode in ("native", "shm"))
        if native and orion:
            more_us = max(0.0, statistics.median(orion) - statistics.median(native))
            self.set(coefficient, more_us, f"launches launch_us, shm less native and not below 0, {repeats(orion)}")

    def put_carrying(self, coefficient):
        """Of a call that takes the driver next to nothing: what is left is both ends of a carrier, and the kernel."""
        shm, tcp = (self.values("launches", "short_call_us", mode) for mode in ("shm", "tcp"))
        if shm and tcp:
            more_us = statistics.median(tcp) - statistics.median(shm)
            said = "launches short_call_us (cuMemPoolGetAttribute p50), tcp less shm on one machine"
            self.set(coefficient, more_us, f"{said}, so with the kernel's loopback, {repeats(tcp)}")

    def put_round_trips(self, coefficient, step):
        values = self.values(step.workload, "round_trips_per_step", "shm")
        if values:
            said = f"{step.workload} round_trips_per_step, shm, {repeats(values)}"
            said += ", and the wait at the end of a step" if step.waits else ""
            self.set(coefficient, statistics.median(values) + step.waits, said)

    def put_slowdown(self, coefficient, workload, mode):
        native, orion = (self.values(workload, "steady_ms", which) for which in ("native", mode))
        if native and orion:
            slowdown = statistics.median(orion) / statistics.median(native)
            self.set(coefficient, slowdown, f"{workload} steady_ms, {mode} over native, {repeats(orion)}")

    def values(self, workload, metric, mode):
        reports = [run["report"] for run in self.runs.get(workload, {}).get(mode, []) if run["status"] == "ok"]
        found = [r["steady_ms"] if metric == "steady_ms" else r["extra"].get(metric) for r in reports]
        return [value for value in found if value is not None]

    def set(self, coefficient, value, row):
        # Four digits are more than any of these is known to.
        coefficient.update(value=float(f"{value:.4g}"), source=f"{row}; {self.where}")


def repeats(values):
    return f"median of {len(values)}" if len(values) > 1 else "one repeat"


def coefficients(part, path=""):
    if isinstance(part, dict) and "value" in part:
        yield path, part
    elif isinstance(part, dict):
        for name, inner in part.items():
            yield from coefficients(inner, f"{path}.{name}" if path else name)


def changes(before, after):
    old = {name: value["value"] for name, value in coefficients(before)}
    for name, value in coefficients(after):
        if old.get(name) != value["value"]:
            yield f"{name}: {old.get(name)} -> {value['value']} ({value['source']})"


def written(model):
    """As the file has it: a coefficient takes one line."""
    marks = {}

    def marked(part):
        if isinstance(part, dict) and "value" in part:
            mark = f"@{len(marks)}@"
            marks[f'"{mark}"'] = "{ " + json.dumps(part, ensure_ascii=False)[1:-1] + " }"
            return mark
        return {name: marked(inner) for name, inner in part.items()} if isinstance(part, dict) else part

    text = json.dumps(marked(model), indent=2, ensure_ascii=False)
    for mark, line in marks.items():
        text = text.replace(mark, line)
    return text + "\n"


if __name__ == "__main__":
    main()
