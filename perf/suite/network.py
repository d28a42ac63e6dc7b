#!/usr/bin/env python3
"""Workloads natively and through Orion over an emulated network, in turn, and their round trips.

    python3 perf/suite/network.py --repeats 5 --out network.json --markdown network.md
    python3 perf/suite/network.py --round-trip-us 200 --gbit-per-s 10 --only resnet50_bf16,mnist
    python3 perf/suite/network.py --namespaces     # oriond in a network namespace of its own; needs root

The network is `orion-bench delay-link`, which delays and shapes what goes through and measures itself first. Exits 1
when a goal is missed or a run failed, and 77 when this machine does not let us make a namespace.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import run
import server
import speed
from table import GOALS, Goal, least, most, ratio

NO_NAMESPACE = 77
LINK_S_MAX = 60

#: Loads the library and initialises it, which needs a session. Exits 0 if it has one.
ATTACH = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0) != 0)"


@dataclass(frozen=True)
class Row:
    goal: Goal
    round_trips_max: float | None = None


def training(title, workload, least_ratio, round_trips_max):
    return Row(Goal(title, workload, "steady_ms", "ms", None, ratio(least_ratio)), round_trips_max)


#: With a round trip of 50 us and 25 Gbit/s.
ROWS = [
    training("ResNet-50 training, bf16", "resnet50_bf16", 0.95, 0),
    training("GPT-2 generate, a token", "gpt2", 0.7, 2),
]


def main():
    options = parse_options()
    names = options.only or ",".join(row.goal.workload for row in ROWS)
    workloads = run.select(names, options.skip)
    unbuilt = run.build(workloads, options)
    workloads = [workload for workload in workloads if workload.name not in unbuilt]
    rows = [row for workload in workloads for row in rows_of(workload)]
    with contextlib.ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="orion-network-")))
        host, inside = undo.enter_context(namespace()) if options.namespaces else ("127.0.0.1", [])
        token = server.write_token(folder / "token")
        listen = f"{host}:{server.free_port()}"
        link = undo.enter_context(link_to(listen, options))
        say_link(link, options)

        def make_server(mode, folder, options):
            oriond, address = options.orion_run.with_name("oriond"), f"tcp:{link['listen']}"
            return server.Server(
                oriond, options.driver, folder, listen=listen, token_file=token, address=address, inside=inside
            )

        options.server = make_server
        check_token(make_server("tcp", folder, options), token, options)
        os.environ.pop("ORION_TOKEN", None)
        os.environ["ORION_TOKEN_FILE"] = str(token)

        def keep(options, runs):
            return write(options, runs, rows, link)

        runs, wall_s = speed.measure(speed.plan(workloads, options.modes, options.repeats), options, keep)
    text, good = keep(options, runs)
    print(text)
    print(speed.where_the_time_went(runs, wall_s), file=sys.stderr)
    sys.exit(0 if good else 1)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    speed.add_speed_options(parser)
    parser.set_defaults(modes="native,tcp")
    parser.add_argument("--round-trip-us", type=float, default=50)
    parser.add_argument("--gbit-per-s", type=float, default=25)
    parser.add_argument("--namespaces", action="store_true", help="oriond in a namespace, behind a veth pair")
    options = speed.finish_options(parser, parser.parse_args())
    if "shm" in options.modes:
        parser.error("there is no shared memory over a network: --modes native,tcp")
    if "--server" in options.orion_args:
        parser.error("the server is started here, behind the emulated network")
    return options


def rows_of(workload):
    """What is asked of it over a network; of the other workloads nothing, so they are only measured."""
    asked = [row for row in ROWS if row.goal.workload == workload.name]
    measured = [goal for goal in GOALS if goal.workload == workload.name]
    metrics = [(goal.title, goal.metric, goal.unit, goal.more_is_better) for goal in measured]
    metrics = metrics or [(workload.title, "steady_ms", "ms", False)]
    nothing = {False: most(float("inf")), True: least(0)}
    return asked or [
        Row(Goal(title, workload.name, metric, unit, None, nothing[more], more))
        for title, metric, unit, more in metrics
    ]


# The network


@contextlib.contextmanager
def link_to(listen, options):
    """The link, with what it has measured of itself."""
    command = [options.orion_run.with_name("orion-bench"), "delay-link", "--connect", listen]
    command += ["--round-trip-us", str(options.round_trip_us), "--gbit-per-s", str(options.gbit_per_s)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        if not said:
            sys.exit("orion-bench delay-link did not start; it is built by `cargo build --release`")
        yield json.loads(said)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def say_link(link, options):
    print(
        f"the link adds {link['round_trip_added_us']:.0f} us to a round trip "
        f"({options.round_trip_us:g} wanted; {link['round_trip_without_us']:.0f} us without it) and carries "
        f"{link['gbit_per_s']:.1f} Gbit/s over one connection, {link['gbit_per_s_4_connections']:.1f} over four "
        f"({options.gbit_per_s:g} wanted; {link['gbit_per_s_without_4_connections']:.0f} without it)",
        file=sys.stderr,
    )
    slow = min(link["gbit_per_s"], link["gbit_per_s_4_connections"]) < 0.9 * options.gbit_per_s
    if slow or abs(link["round_trip_added_us"] - options.round_trip_us) > 0.1 * options.round_trip_us:
        print("which is more than a tenth off: this machine has too few cores, or too busy ones", file=sys.stderr)


@contextlib.contextmanager
def namespace():
    """A network namespace joined to ours by a veth pair. Yields its address, and the command that runs things in it."""
    if not shutil.which("ip"):
        print("no network namespace can be made here: there is no `ip` (Debian's iproute2)", file=sys.stderr)
        sys.exit(NO_NAMESPACE)
    name = f"orion-{os.getpid()}"
    ours, theirs = f"ov{os.getpid() % 100000}a", f"ov{os.getpid() % 100000}b"
    # A /30 of its own for each process, of those set aside for benchmarks.
    subnet = f"198.18.{os.getpid() // 64 % 256}.{os.getpid() % 64 * 4}".rsplit(".", 1)
    addresses = [f"{subnet[0]}.{int(subnet[1]) + host}" for host in (1, 2)]
    commands = [
        ["ip", "netns", "add", name],
        ["ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name],
        ["ip", "addr", "add", f"{addresses[0]}/30", "dev", ours],
        ["ip", "link", "set", ours, "up"],
        ["ip", "-n", name, "addr", "add", f"{addresses[1]}/30", "dev", theirs],
        ["ip", "-n", name, "link", "set", theirs, "up"],
        ["ip", "-n", name, "link", "set", "lo", "up"],
    ]
    try:
        for command in commands:
            try:
                subprocess.run(command, check=True, capture_output=True, text=True)
            except (OSError, subprocess.CalledProcessError) as error:
                reason = getattr(error, "stderr", "") or str(error)
                print(f"no network namespace can be made here: {' '.join(command)}: {reason.strip()}", file=sys.stderr)
                print("without --namespaces the same link runs without one", file=sys.stderr)
                sys.exit(NO_NAMESPACE)
        # Not `ip netns exec`, which mounts another /sys over the one that drivers look into.
        yield addresses[1], ["nsenter", f"--net=/run/netns/{name}", "--"]
    finally:
        # The pair goes with it.
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def check_token(one, token, options):
    """Who does not know the token gets no session, and who does gets one through the link."""
    attach = [options.orion_run, "--server", one.address, "--", options.python, "-c", ATTACH]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ORION_TOKEN")}
    one.start()
    try:
        for known, rc in ((None, 1), (token, 0)):
            told = {**environment, "ORION_TOKEN_FILE": str(known)} if known else environment
            done = subprocess.run(attach, env=told, capture_output=True, text=True, timeout=60)
            if done.returncode != rc:
                whom = "somebody with the token" if known else "somebody without the token"
                sys.exit(f"{whom} was not treated as asked: rc {done.returncode}\n{done.stderr}")
    finally:
        one.stop()


# Writing


def write(options, runs, rows, link):
    entries = [entry(row, runs[row.goal.workload], options.modes) for row in rows]
    text = markdown(entries, options.modes)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    if options.out:
        wanted = {"round_trip_us": options.round_trip_us, "gbit_per_s": options.gbit_per_s}
        network = {"wanted": wanted, "measured": link, "namespaces": options.namespaces}
        everything = {"machine": options.machine, "network": network, "modes": options.modes, "rows": entries}
        options.out.write_text(json.dumps({**everything, "runs": speed.kept(runs)}, indent=1))
    met = [entry[key] for entry in entries for key in ("met_ratio", "met_round_trips")]
    return text, False not in met and not any(sum(entry["failed"].values()) for entry in entries)


def entry(row, results, modes):
    goal = row.goal
    found = speed.measured_row(goal, results, modes)
    trips = [r["report"]["extra"].get("round_trips_per_step") for r in results["tcp"] if r["status"] == "ok"]
    trips = statistics.median(trip for trip in trips if trip is not None) if any(t is not None for t in trips) else None
    asked = row in ROWS
    reached = speed.judge(goal, goal.tcp, found["median"], "tcp") if asked else None
    return {
        **found,
        "ratio": speed.ratio(goal, found["median"], "tcp"),
        "goal": f"{goal.tcp[0]} {goal.tcp[1]:g}" if asked else "",
        "met_ratio": reached,
        "round_trips_per_step": trips,
        "round_trips_max": row.round_trips_max,
        "met_round_trips": None if trips is None or row.round_trips_max is None else trips <= row.round_trips_max,
    }


def markdown(entries, modes):
    lines = [["", "unit", "native", "network", "ratio", "goal", "", "round trips a step", "goal", "", "repeats"]]
    lines.append(["---"] * len(lines[0]))
    for e in entries:
        said = {True: "met", False: "**missed**", None: "not measured"}
        most_trips = "" if e["round_trips_max"] is None else f"<= {e['round_trips_max']:g}"
        failed = sum(e["failed"].values())
        cells = [e["title"], e["unit"], speed.with_range(e, "native"), speed.with_range(e, "tcp")]
        cells += [speed.number(e["ratio"]), e["goal"], said[e["met_ratio"]] if e["goal"] else ""]
        cells += [speed.number(e["round_trips_per_step"]), most_trips, said[e["met_round_trips"]] if most_trips else ""]
        repeats = "/".join(str(e["repeats"][mode]) for mode in modes)
        lines.append([*cells, f"{repeats}, {failed} failed" if failed else repeats])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
