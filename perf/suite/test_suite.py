#!/usr/bin/env python3
"""Tests of what measures, with programs that need no GPU. Prints "N passed, N failed"."""

import argparse
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

SUITE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(SUITE))
import coefficients  # noqa: E402
import everything  # noqa: E402
import flame  # noqa: E402
import gate  # noqa: E402
import network  # noqa: E402
import peers  # noqa: E402
import run  # noqa: E402
import samples  # noqa: E402
import server  # noqa: E402
import shares  # noqa: E402
import speed  # noqa: E402
import why  # noqa: E402
from table import GOALS, WORKLOADS, Workload  # noqa: E402

PROGRAM = """
import os, sys, time
sys.path.insert(0, {workloads!r})
from report import Report
name = sys.argv[1]
def log(event):
    with open({log!r}, "a") as file:
        file.write(f"{{event}} {{name}} {{time.monotonic()}}\\n")
log("started")
report = Report(name)
if "dies_early" in name: sys.exit(3)
if "never_ready" in name: time.sleep(60)
report.gate()
log("begins")
if "dies_late" in name: os.kill(os.getpid(), 9)
if "hangs" in name: time.sleep(60)
report.steady_ms = report.time(lambda: time.sleep(0.002), 20, lambda: None)
log("ends")
report.finish()
"""


class Turns(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = Path(self.folder.name) / "log"
        self.log.touch()
        self.program = Path(self.folder.name) / "program.py"
        self.program.write_text(PROGRAM.format(workloads=str(SUITE / "workloads"), log=str(self.log)))

    def options(self, **more):
        arguments = ["speed.py", "--modes", "native"]
        before, sys.argv = sys.argv, arguments
        try:
            options = speed.parse_options()
        finally:
            sys.argv = before
        # Modes that take turns as native, shm and tcp do, without an Orion to take them through.
        options.modes = ["a", "b", "c"]
        for name, value in more.items():
            setattr(options, name, value)
        return options

    def measure(self, names, repeats, **more):
        """Results by (repeat, name, mode), with everything but Orion itself as speed.py has it."""
        options = self.options(**more)

        def start(task):
            repeat, workload, mode = task
            labelled = Workload(workload.name, "", str(self.program), (f"{workload.name}.{mode}.{repeat}",))
            return speed.Prepared(labelled, "native", options)

        workloads = [Workload(name, "", str(self.program)) for name in names]
        tasks = speed.plan(workloads, options.modes, repeats)
        turns = gate.one_at_a_time(tasks, start, options.prepare)
        return {(repeat, workload.name, mode): result for (repeat, workload, mode), result in turns}

    def events(self, *kinds):
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(event, name, float(at)) for event, name, at in lines if event in kinds]

    def test_one_measures_at_a_time_and_modes_alternate(self):
        results = self.measure(["x", "y"], repeats=2)
        self.assertEqual([result["status"] for result in results.values()], ["ok"] * 12)
        order = [(event, name) for event, name, _ in self.events("begins", "ends")]
        turns = [f"{w}.{m}.{r}" for r, modes in enumerate(["abc", "bca"]) for w in "xy" for m in modes]
        self.assertEqual(order, [(event, name) for name in turns for event in ("begins", "ends")])

    def test_nobody_gets_ready_when_told_so(self):
        self.measure(["x"], repeats=1, prepare=0)
        kinds = [event for event, _, _ in self.events("started", "begins", "ends")]
        self.assertEqual(kinds, ["started", "begins", "ends"] * 3)

    def test_a_program_that_dies_frees_the_gate(self):
        for name, status in (("dies_early", "failed, rc 3"), ("dies_late", "failed, rc -9")):
            results = self.measure([name, "well"], repeats=1)
            self.assertEqual([results[0, name, mode]["status"] for mode in "abc"], [status] * 3)
            self.assertEqual([results[0, "well", mode]["status"] for mode in "abc"], ["ok"] * 3)

    def test_a_program_that_is_too_slow_is_ended_and_frees_the_gate(self):
        # Time enough for a Python that starts on a busy machine.
        with unittest.mock.patch.object(speed, "in_turn", lambda modes, repeat: ["a"]):
            results = self.measure(["never_ready", "hangs", "well"], repeats=1, timeout=5)
        self.assertEqual(results[0, "never_ready", "a"]["status"], "not ready after 5 s")
        self.assertEqual(results[0, "hangs", "a"]["status"], "no end after 5 s")
        self.assertEqual(results[0, "well", "a"]["status"], "ok")

    def test_what_waits_is_ended_when_no_turns_are_taken(self):
        options = self.options(prepare=3)
        started = []

        def start(mode):
            workload = Workload("x", "", str(self.program), (f"x.{mode}",))
            started.append(speed.Prepared(workload, "native", options))
            return started[-1]

        turns = gate.one_at_a_time("abcdef", start, 3)
        next(turns)
        turns.close()
        self.assertEqual(len(started), 4)
        self.assertTrue(all(prepared.process.process.poll() is not None for prepared in started))


    def test_a_program_is_recorded_while_its_first_figure_lasts(self):
        def recorded(name):
            seen = []
            with (
                unittest.mock.patch.object(why, "SETTLED_S", 0.5),
                unittest.mock.patch.object(flame, "recorded", lambda *_: seen.extend(self.events("begins", "ends"))),
            ):
                why.recorded(Workload(name, "", str(self.program), (name,)), "native", self.options())
            return [event for event, _, _ in seen]

        self.assertEqual(recorded("well"), ["begins"])
        with self.assertRaisesRegex(flame.NotRecorded, "it ended with 3"):
            recorded("dies_early")


class Why(unittest.TestCase):
    def test_what_missed_is_recorded_beside_native(self):
        def row(workload, shm, tcp):
            return {"workload": workload, "met": {"shm": shm, "tcp": tcp}}

        rows = [row("copies", True, True), row("llama", None, False), row("copies", False, True)]
        missed = why.missed([*rows, row("mnist", True, True)])
        self.assertEqual(missed, {"copies": ["shm"], "llama": ["tcp"]})

        def chosen(*asked):
            return [(workload.name, mode) for workload, mode in why.chosen(missed, *asked)]

        both = [("llama", "native"), ("llama", "tcp"), ("copies", "native"), ("copies", "shm")]
        self.assertEqual(chosen("", ""), both)
        self.assertEqual(chosen("llama", "tcp"), [("llama", "tcp")])
        self.assertEqual(chosen("mnist", ""), [("mnist", "native"), ("mnist", "shm"), ("mnist", "tcp")])
        self.assertEqual(why.chosen({}, "", ""), [])
        with self.assertRaisesRegex(SystemExit, "hello: no goal is about it"):
            chosen("hello", "")


class Ahead(unittest.TestCase):
    def test_so_many_get_ready_while_one_measures(self):
        log = []

        class Fake:
            def __init__(self, task):
                self.task = task
                log.append(f"ready {task}")

            def take_turn(self):
                log.append(f"turn {self.task}")
                return self.task * 10

        self.assertEqual(list(gate.one_at_a_time(range(4), Fake, 2)), [(0, 0), (1, 10), (2, 20), (3, 30)])
        self.assertEqual(
            log, ["ready 0", "ready 1", "ready 2", "turn 0", "ready 3", "turn 1", "turn 2", "turn 3"]
        )


class Plan(unittest.TestCase):
    def test_a_budget_that_runs_out_leaves_every_row_with_about_as_many(self):
        workloads = [Workload("x", "", "x.py"), Workload("y", "", "y.py")]
        tasks = list(speed.plan(workloads, ["native", "shm", "tcp"], 4))
        self.assertEqual(len(tasks), 2 * 4 * 3)
        for length in range(len(tasks)):
            done = [(workload.name, mode) for _, workload, mode in tasks[:length]]
            counts = [done.count(("x", mode)) for mode in ("native", "shm", "tcp")]
            self.assertLessEqual(max(counts) - min(counts), 1)
        firsts = [next(mode for r, w, mode in tasks if (r, w.name) == (repeat, "x")) for repeat in range(4)]
        self.assertEqual(firsts, ["native", "shm", "tcp", "native"])


class Continue(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = Path(self.folder.name) / "speed.json"

    def run_once(self, value, status, *more):
        """A whole run of speed.py whose programs are not run. Returns which were asked for."""
        asked = []

        def one_at_a_time(tasks, start, ahead):
            for n, workload, mode in tasks:
                asked.append((workload.name, n))
                result = {**done(value), "status": status, "turn_s": 1, "unprepared_s": 0}
                yield (n, workload, mode), result

        with (
            unittest.mock.patch.object(sys, "argv", ["speed.py", "--modes", "native", "--out", str(self.file), *more]),
            unittest.mock.patch.object(gate, "one_at_a_time", one_at_a_time),
            unittest.mock.patch.object(speed, "fill_caches"),
            unittest.mock.patch("builtins.print"),
        ):
            speed.main()
        return asked

    def test_what_an_earlier_run_lacks_is_run_and_the_table_is_of_both(self):
        again = ("--continue", str(self.file))
        mnist, graphs = ("--only", "mnist"), ("--only", "graphs")
        self.assertEqual(self.run_once(3.0, "ok", *mnist, "--repeats", "2"), [("mnist", 0), ("mnist", 1)])
        self.assertEqual(self.run_once(5.0, "ok", *graphs, "--repeats", "1", *again), [("graphs", 0)])
        self.assertEqual(self.run_once(4.0, "failed, rc 1", *mnist, "--repeats", "3", *again), [("mnist", 2)])
        # What failed was run.
        self.assertEqual(self.run_once(7.0, "ok", *mnist, "--repeats", "4", *again), [("mnist", 3)])
        written = json.loads(self.file.read_text())
        rows = {row["workload"]: row for row in written["rows"]}
        self.assertEqual([rows[name]["repeats"]["native"] for name in ("mnist", "graphs")], [3, 1])
        self.assertEqual([rows[name]["median"]["native"] for name in ("mnist", "graphs")], [3.0, 5.0])
        self.assertEqual(rows["mnist"]["failed"]["native"], 1)
        self.assertEqual(len(written["machine"]["continued"]), 3)

    def test_another_commit_or_file_is_refused(self):
        self.run_once(3.0, "ok", "--only", "mnist", "--repeats", "1")
        written = json.loads(self.file.read_text())
        written["machine"]["commit"] = "0123456789abcdef"
        for text, reason in ((json.dumps(written), "0123456789abcdef"), ("{}", "not what speed.py wrote")):
            self.file.write_text(text)
            with unittest.mock.patch("sys.stderr", io.StringIO()) as said, self.assertRaises(SystemExit):
                self.run_once(4.0, "ok", "--continue", str(self.file))
            self.assertIn(reason, said.getvalue())


class ContinueEquality(unittest.TestCase):
    def run_once(self, file, names, *more):
        """A whole run of run.py whose programs are not run. Returns which were asked for."""
        asked = []

        def run_workload(workload, mode, _options):
            asked.append(workload.name)
            return {"status": "ok", "wall_s": 1.0, "report": {"checks": {"digest": "a"}}, "lines": {}}

        command = ["run.py", "--modes", "native", "--only", names, "--out", str(file), *more]
        with (
            unittest.mock.patch.object(sys, "argv", command),
            unittest.mock.patch.object(run, "run_workload", run_workload),
            unittest.mock.patch.object(run, "build", return_value={}),
            unittest.mock.patch("sys.stdout", io.StringIO()) as said,
            unittest.mock.patch("sys.stderr", io.StringIO()),
            self.assertRaises(SystemExit) as end,
        ):
            run.main()
        return asked, end.exception.code, said.getvalue()

    def test_what_there_was_no_time_for_is_run_into_one_table(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "equal.json"
            again = ("--continue", str(file))
            # No time for anything.
            self.assertEqual(self.run_once(file, "mnist,graphs", "--budget-s", "1e-9")[:2], ([], 1))
            self.assertEqual(self.run_once(file, "mnist", *again)[:2], (["mnist"], 0))
            asked, code, said = self.run_once(file, "mnist,graphs", *again)
            self.assertEqual((asked, code), (["graphs"], 0))
            self.assertIn("2 of 2 rows equal", said)

    def test_another_scale_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "equal.json"
            self.run_once(file, "mnist")
            asked, code, _ = self.run_once(file, "graphs", "--quick", "--continue", str(file))
            self.assertEqual((asked, code), ([], 2))


class Native(unittest.TestCase):
    def judged(self, shm, native, *again):
        def ran(digest):
            return {"status": "ok", "report": {"checks": {"digest": digest, "count": 3}}, "lines": {}}

        row = {"runs": {"native": ran(native), "shm": ran(shm)}}
        with unittest.mock.patch.object(run, "run_workload", side_effect=[ran(digest) for digest in again]) as runs:
            run.judge(Workload("x", "", "x.py"), row, argparse.Namespace(modes=["native", "shm"], strict=False))
        return row["unequal"]["shm"], row["varies_natively"], runs.call_count

    def test_what_varies_natively_is_not_orions(self):
        self.assertEqual(self.judged("b", "a", "c"), ([], ["digest"], 1))
        # It may agree with itself a few times.
        self.assertEqual(self.judged("b", "a", "a", "a", "c"), ([], ["digest"], 3))

    def test_what_does_not_is(self):
        self.assertEqual(self.judged("b", "a", *["a"] * run.NATIVE_AGAIN), (["digest"], [], run.NATIVE_AGAIN))
        self.assertEqual(self.judged("a", "a"), ([], [], 0))


class Workloads(unittest.TestCase):
    def test_every_workload_of_the_speed_table_waits_for_its_turn(self):
        judged = {goal.workload for goal in GOALS}
        gated = [workload for workload in WORKLOADS if workload.name in judged and workload.is_gated]
        self.assertGreater(len(gated), 15)
        for workload in gated:
            text = (SUITE / workload.source).read_text()
            self.assertIn("report.gate()", text, workload.source)

    def test_nothing_touches_the_gpu_before_the_gate(self):
        """At the top level of a workload at least: functions defined there run later."""
        judged = {goal.workload for goal in GOALS}
        for source in {workload.source for workload in WORKLOADS if workload.name in judged and workload.is_gated}:
            lines = (SUITE / source).read_text().splitlines()
            before = itertools.takewhile(lambda line: "report.gate()" not in line, lines)
            touching = [line for line in before if ".cuda()" in line or 'device="cuda"' in line]
            self.assertEqual(touching, [], source)


class Table(unittest.TestCase):
    def test_a_row_shows_its_range(self):
        goal = GOALS[0]
        runs = [{"status": "ok", "wall_s": 1, "report": {"steady_ms": 1, "extra": {goal.metric: v}}} for v in (4, 2, 3)]
        row = speed.row(goal, {"native": runs, "shm": runs[:1]}, ["native", "shm"])
        text = speed.markdown([row], ["native", "shm"])
        self.assertIn("| 3 (2 to 4) | 4 |", text)

    def test_another_build_is_compared_with_and_not_judged(self):
        goal = next(goal for goal in GOALS if goal.metric == "steady_ms")
        runs = {"native": [done(4)], "shm": [done(2)], "shm-before": [done(3)]}
        row = speed.row(goal, runs, [*runs])
        text = speed.markdown([row], [*runs])
        self.assertIn("| 2 | 2 | ratio >= 0.99 | met | 3 | 1.5 | 1/1/1 |", text)
        self.assertIn("1 of 1 goals met", text)

    def test_another_build_runs_over_the_same_carrier(self):
        options = argparse.Namespace(orion_run=Path("new/orion-run"), before=Path("old"), orion_args=[], driver="soft")
        prefix = run.orion_prefix("tcp-before", options, "tcp:127.0.0.1:1")
        self.assertEqual(prefix, [Path("old/orion-run"), "--transport", "tcp", "--server", "tcp:127.0.0.1:1", "--"])
        self.assertEqual(server.for_mode("shm-before", "/tmp", options).command[0], Path("old/oriond"))
        self.assertEqual(server.for_mode("shm", "/tmp", options).command[0], Path("new/oriond"))


def done(steady_ms=None, **extra):
    return {"status": "ok", "wall_s": 1, "report": {"steady_ms": steady_ms, "extra": extra}}


class Network(unittest.TestCase):
    def row(self, native_ms, network_ms, trips):
        runs = {"native": [done(native_ms)], "tcp": [done(network_ms, round_trips_per_step=trips)]}
        return network.entry(network.ROWS[0], runs, ["native", "tcp"])

    def test_ratio_and_round_trips_are_judged(self):
        good, slow, chatty = self.row(10.0, 10.2, 0.0), self.row(10.0, 11.0, 0.0), self.row(10.0, 10.0, 0.5)
        self.assertEqual([good["met_ratio"], good["met_round_trips"]], [True, True])
        self.assertEqual([slow["met_ratio"], slow["met_round_trips"]], [False, True])
        self.assertEqual([chatty["met_ratio"], chatty["met_round_trips"]], [True, False])
        text = network.markdown([good, slow, chatty], ["native", "tcp"])
        self.assertEqual(text.count("**missed**"), 2)

    def test_what_failed_is_neither_met_nor_missed(self):
        failed = [{"status": "failed, rc 1", "report": None}]
        row = network.entry(network.ROWS[0], {"native": [done(1.0)], "tcp": failed}, ["native", "tcp"])
        self.assertEqual([row["met_ratio"], row["met_round_trips"], row["failed"]["tcp"]], [None, None, 1])


class Coefficients(unittest.TestCase):
    MACHINE = {"gpu": "a GPU", "cpus": 16, "commit": "0123456789abcdef"}

    def setUp(self):
        self.model = json.loads(coefficients.MODEL.read_text())

    def test_the_model_is_filled_from_what_was_measured(self):
        runs = {
            "small_ops": {"native": [done(10.0), done(12.0), done(11.0)], "shm": [done(5.5, round_trips_per_step=0.0)]},
            "launches": {
                "native": [done(enqueue_ns=3000, launch_us=3)],
                "shm": [done(launch_us=3.25, short_call_us=0.75)],
                "tcp": [done(short_call_us=9.5), done(short_call_us=9.75), done(short_call_us=12.0)],
            },
            "copies": {"native": [done(h2d_pinned_gbps=50, d2h_pinned_gbps=40)]},
        }
        model = coefficients.filled(self.model, {"machine": self.MACHINE, "runs": runs})
        small = model["workloads"]["small-ops"]
        self.assertEqual(small["step_us"]["value"], 11000)
        self.assertIn("median of 3; a GPU, 16 cores, commit 0123456", small["step_us"]["source"])
        self.assertEqual(small["measured_slowdown"]["shm"]["value"], 0.5)
        self.assertEqual(small["round_trips"]["value"], 1)
        self.assertEqual(model["native"]["launch_us"]["value"], 3)
        self.assertEqual(model["native"]["pinned_gbps"]["value"], 40)
        self.assertEqual(model["dispatch_us"]["value"], 0.25)
        self.assertEqual(model["carrying_us"]["value"], 9)
        self.assertIn("tcp less shm on one machine", model["carrying_us"]["source"])
        # Nothing was measured of it, so it is as it was.
        self.assertEqual(model["workloads"]["training"], self.model["workloads"]["training"])

    def test_a_model_of_before_gets_what_it_has_not(self):
        del self.model["carrying_us"]
        runs = {"launches": {"shm": [done(short_call_us=0.5)], "tcp": [done(short_call_us=8.5)]}}
        filled = coefficients.filled(self.model, {"machine": self.MACHINE, "runs": runs})
        self.assertEqual(filled["carrying_us"]["value"], 8)
        nothing = coefficients.filled(self.model, {"machine": self.MACHINE, "runs": {}})
        self.assertIsNone(nothing["carrying_us"]["value"])

    def test_the_shipped_carrying_is_that_of_its_report(self):
        report = json.loads((coefficients.MODEL.parents[1] / "reports/2026-11-h200-all-goals.json").read_text())
        [call] = [row["median"] for row in report["rows"] if row["metric"] == "short_call_us"]
        runs = {"launches": {mode: [done(short_call_us=call[mode])] for mode in ("shm", "tcp")}}
        filled = coefficients.filled(self.model, {"machine": report["machine"], "runs": runs})
        ours, shipped = filled["carrying_us"], self.model["carrying_us"]
        self.assertEqual(ours["value"], shipped["value"])
        self.assertEqual(ours["source"].split(", one repeat")[0], shipped["source"].split(", median of 5")[0])

    def test_a_network_is_kept_apart_from_one_machine(self):
        runs = {"gpt2": {"native": [done(8.0)], "tcp": [done(10.0)]}}
        link = {"round_trip_added_us": 50.2, "gbit_per_s_4_connections": 24.9}
        network = {"machine": self.MACHINE, "runs": runs, "network": {"measured": link}}
        model = coefficients.filled(self.model, {"machine": self.MACHINE, "runs": {}}, network)
        measured = model["workloads"]["generation"]["measured_slowdown"]
        self.assertEqual(measured["network"]["value"], 1.25)
        self.assertIn("50 us added, 25 Gbit/s", measured["network"]["source"])
        self.assertEqual(measured["tcp"], self.model["workloads"]["generation"]["measured_slowdown"]["tcp"])

    def test_the_committed_file_is_written_as_it_is(self):
        self.assertEqual(coefficients.written(self.model), coefficients.MODEL.read_text())


class Samples(unittest.TestCase):
    def difference(self, ours, theirs, rc=0):
        return samples.difference({"rc": 0, "said": ours}, {"rc": rc, "said": theirs})

    def test_numbers_spaces_and_order_do_not_matter(self):
        ours = "Device 0: 0x7f00 in 1.5e-3 ms\nResult = PASS\n[3, 0]: 10\n"
        self.assertIsNone(self.difference(ours, "[2, 1]: 10\nResult  = PASS\nDevice 1: 0x8a in 22 ms\n"))

    def test_that_a_worker_was_waited_for_does_not_matter(self):
        waited = "orion: tcp:127.0.0.1:7411 took the connection and has said nothing for 3 s; waiting up to 120 s\n"
        self.assertIsNone(self.difference("PASS\n", f"{waited}PASS\n"))

    def test_what_needs_more_than_cuda_is_left_out(self):
        names = ["simpleGL", "EGLStream_CUDA_Interop", "vulkanImageCUDA", "boxFilterNPP", "simpleMPI", "clock_nvrtc"]
        self.assertEqual([name for name in names if not samples.FOREIGN.search(name)], [])
        names = ["globalToShmemAsyncCopy", "simpleTemplates", "MC_SingleAsianOptionP", "vectorAdd", "alignedTypes"]
        self.assertEqual([name for name in names if samples.FOREIGN.search(name)], [])

    def test_what_differs_is_named(self):
        self.assertEqual(self.difference("Result = PASS\n", "Result = FAIL\n"), 'also "Result = FAIL"')
        self.assertEqual(self.difference("a\nb\n", "a\n"), 'without "b"')
        self.assertEqual(self.difference("a\na\n", "a\n"), 'without "a"')
        self.assertEqual(self.difference("a\n", "a\nwhy\n\n", rc=2), "ended with 2, not 0: why")


class Flame(unittest.TestCase):
    SAID = """
python3 11/12  1.5:
\t    7f01 futex_wake+0x5 ([kernel.kallsyms])
\t    7f02 entry_SYSCALL_64_after_hwframe ([kernel.kallsyms])
\t    7f03 a::post(int; char)+0x1f (/opt/orion/libcuda.so.1)
\t    7f04 [unknown] (/usr/lib/libc.so.6)
\t    7f05 [unknown] (/usr/lib/libc.so.6)
\t    7f06 start_thread (/usr/lib/libc.so.6)

oriond-worker 21/21  1.6:
\t    7f01 run (/opt/orion/oriond)
"""

    def test_stacks_are_folded_by_thread_from_the_outermost_frame_on(self):
        stacks = flame.fold(flame.parse(self.SAID), {11: "python3"})
        client = ("client: python3", "[libc.so.6]", "a::post(int: char)", "futex_wake")
        self.assertEqual(stacks, {client: 1, ("worker: oriond-worker", "run"): 1})

    def test_small_branches_count_to_their_parents(self):
        stacks = {("t", "a", "b"): 1, ("t", "a", "c"): 9, ("t", "d"): 1, ("u",): 1}
        self.assertEqual(flame.pruned(stacks, 2), {("t", "a"): 1, ("t", "a", "c"): 9, ("t",): 1, ("u",): 1})

    def test_the_family_of_a_process_is_found(self):
        with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE) as shell:
            child = int(shell.stdout.readline())
            family = flame.related(shell.pid)
            os.kill(child, signal.SIGKILL)
        self.assertEqual(family[shell.pid], "sh")
        self.assertIn(child, family)
        self.assertNotIn(os.getpid(), family)


class Everything(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.options = argparse.Namespace(
            out=Path(folder.name), budget_s=100, repeats=2, orion_run=Path("/x"), arch="a", prepare=5
        )
        self.calls, self.machine = [], {"commit": "a"}

    def go(self, **results):
        def step(name, result):
            return everything.Step(name, 50 if name == "long" else 1, lambda *_: (self.calls.append(name), result)[1])

        with unittest.mock.patch("sys.stderr", io.StringIO()), unittest.mock.patch("sys.stdout", io.StringIO()):
            steps = [step(name, result) for name, result in results.items()]
            return everything.go_on(steps, self.options, self.machine)

    def test_it_goes_on_where_it_stopped(self):
        self.assertEqual(self.go(first=True, second=None, third=True), everything.TRY_AGAIN)
        self.assertEqual(self.go(first=True, second=True, third=True), 0)
        self.assertEqual(self.calls, ["first", "second", "second", "third"])

    def test_what_is_missed_is_not_run_again_and_not_forgotten(self):
        self.assertEqual(self.go(first=False, second=True), 1)
        self.assertEqual(self.go(first=True, second=True), 1)
        self.assertEqual(self.calls, ["first", "second"])

    def test_results_of_another_commit_are_not_gone_on_with(self):
        self.go(first=True, second=None)
        self.machine = {"commit": "b"}
        with self.assertRaisesRegex(SystemExit, "say another --out"):
            self.go(first=True, second=True)

    def test_nothing_is_begun_that_has_no_time(self):
        self.options.budget_s = 40
        self.assertEqual(self.go(first=True, long=True), everything.TRY_AGAIN)
        self.assertEqual(self.calls, ["first"])

    def test_a_table_is_complete_with_every_repeat_of_every_mode(self):
        def table(repeats, met):
            one = [{}] * repeats
            rows = [{"workload": "gpt2_cold", "met": {"shm": met, "tcp": True}}]
            runs = {"gpt2_cold": {"native": one, "shm": one, "tcp": one}}
            (self.options.out / "speed.json").write_text(json.dumps({"rows": rows, "runs": runs}))

        cold = everything.goals(wanted=lambda name: name == "gpt2_cold")
        with unittest.mock.patch.object(everything, "tell"):
            self.assertIsNone(cold(self.options, 100))
            for repeats, met, result in [(1, True, None), (2, True, True), (2, False, False), (2, None, False)]:
                table(repeats, met)
                self.assertIs(cold(self.options, 100), result)


class Peers(unittest.TestCase):
    """Other people's tests: what is taken for a difference, and what a process that dies leaves behind."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def outcomes(self, runs):
        """Runs one file of tests, with what each start of pytest writes and how it ends."""
        starts = []

        def pytest(tests, dead, mode, root, options, scratch, log, piece):
            starts.append(list(dead))
            lines, rc = runs[len(starts) - 1]
            Path(log).write_text("".join(json.dumps(line) + "\n" for line in lines))
            return rc

        with unittest.mock.patch.object(peers, "pytest", pytest):
            return peers.run_tests(["test_a.py"], "shm", self.folder, None, self.folder), starts

    def test_a_test_that_takes_the_process_along_is_named_and_the_rest_runs(self):
        first = [["a", "began", ""], ["a", "passed", ""], ["b", "began", ""]]
        second = [["a", "began", ""], ["a", "passed", ""], ["c", "began", ""], ["c", "failed", "3 != 4"]]
        found, starts = self.outcomes([(first, -11), (second, 1)])
        self.assertEqual(found["b"], ("died", "the process ended with -11"))
        self.assertEqual((found["a"][0], found["c"]), ("passed", ("failed", "3 != 4")))
        self.assertEqual(starts, [[], ["b"]])

    def test_what_the_time_was_over_for_is_not_held_against_orion(self):
        found, _ = self.outcomes([([["test_a.py::x", "began", ""], ["test_a.py::x", "passed", ""],
                                    ["test_a.py::y", "began", ""]], peers.CUT)])
        self.assertEqual(found, {"test_a.py::x": ("passed", ""), "test_a.py": (peers.CUT, "--budget-s was over")})
        native = {"test_a.py::x": ("failed", ""), "test_a.py::y": ("passed", "")}
        self.assertEqual(peers.differing({"native": native, "shm": found}, "shm"), ["test_a.py::x"])

    def test_of_each_file_the_same_tests_are_drawn_in_every_mode(self):
        def drawn(names, sample, piece="0/1"):
            stub = types.SimpleNamespace(hookimpl=lambda **_: lambda function: function)
            environment = {"PEERS_OUTCOMES": os.devnull, "PEERS_SAMPLE": sample, "PEERS_PIECE": piece}
            with (unittest.mock.patch.dict(sys.modules, pytest=stub),
                  unittest.mock.patch.dict(os.environ, environment)):
                plugin = {}
                exec(peers.PLUGIN, plugin)
                items = [types.SimpleNamespace(nodeid=name) for name in names]
                config = unittest.mock.Mock()
                plugin["pytest_collection_modifyitems"](config, items)
                plugin["OUT"].close()
            return [item.nodeid for item in items]

        names = [f"test_a.py::x[{i}]" for i in range(100)] + [f"test_b.py::y[{i}]" for i in range(3)]
        some = drawn(names, "10 0")
        self.assertEqual(some, drawn(names, "10 0"))
        self.assertEqual(some, [name for name in names if name in some])
        self.assertEqual([sum(n.startswith(f) for n in some) for f in ("test_a", "test_b")], [10, 3])
        self.assertNotEqual(some, drawn(names, "10 1"))
        self.assertEqual(drawn([some[0]], "10 0"), [some[0]])
        self.assertEqual(drawn(names, ""), names)
        pieces = [drawn(names, "", f"{piece}/3") for piece in range(3)]
        self.assertTrue(all(pieces))
        self.assertEqual(sorted(sum(pieces, [])), sorted(names))
        self.assertEqual(sorted(sum((drawn(names, "10 0", f"{piece}/3") for piece in range(3)), [])), sorted(some))

    def test_a_file_that_says_nothing_is_not_taken_for_equal(self):
        found, _ = self.outcomes([([], 4)])
        self.assertEqual(found, {"test_a.py": ("not collected", "pytest ended with 4")})

    def report(self, **outcomes):
        with unittest.mock.patch("sys.stdout", io.StringIO()) as said:
            unequal = peers.report("cupy", outcomes, ["native", "shm"])
        return unequal, said.getvalue()

    def test_only_what_differs_is_named_with_its_reason(self):
        native = {"same": ("failed", "x"), "worse": ("passed", ""), "lost": ("passed", "")}
        unequal, said = self.report(native=native, shm={"same": ("failed", "y"), "worse": ("failed", "2 is not 3")})
        self.assertEqual(unequal, 2)
        self.assertIn("DIFFERS worse: failed, natively passed: 2 is not 3", said)
        self.assertIn("DIFFERS lost: not seen, natively passed", said)
        self.assertNotIn("same", said.replace("the same", ""))

    def test_what_native_does_not_agree_on_with_itself_is_not_held_against_orion(self):
        passed, failed = {"a": ("passed", "")}, {"a": ("failed", "")}
        unequal, said = self.report(**{"native": passed, "shm": failed, "native again": failed})
        self.assertEqual(unequal, 0)
        self.assertIn("varies a:", said)

    def torch(self, program, timeout=60):
        """What is found of PyTorch's samples when `program`, a few lines of Python, runs in place of PyTorch."""
        python = self.folder / "python"
        python.write_text(f"#!{sys.executable}\nimport json, sys, time\nargv = sys.argv\n"
                          "done = json.load(open(argv[argv.index('--done') + 1]))\n"
                          "out = open(argv[argv.index('--out') + 1], 'a', buffering=1)\n"
                          "say = lambda *line: out.write(json.dumps(line) + chr(10))\n" + program)
        python.chmod(0o755)
        options = argparse.Namespace(
            python=python, torch="forward", torch_samples=1, only="", deadline=None, timeout=timeout
        )
        return peers.torch_process("native", [], options, self.folder)

    def test_a_sample_that_takes_the_process_along_is_named_and_the_rest_runs(self):
        found = self.torch("if not done:\n    say('a', 'began', ''); say('a', '12', ''); say('b', 'began', '')\n"
                           "    sys.exit(3)\n"
                           "assert done == ['a', 'b']; say('c', 'began', ''); say('c', 'raised X', 'y')\n")
        self.assertEqual(found, {"a": ("12", ""), "b": ("died", "the process ended with 3: "), "c": ("raised X", "y")})

    def test_a_sample_that_does_not_end_is_named_and_the_rest_runs(self):
        # Time enough for a Python that starts on a busy machine.
        found = self.torch("if not done:\n    say('a', 'began', '')\n    time.sleep(60)\n"
                           "say('c', 'began', ''); say('c', '1', '')\n", timeout=5)
        self.assertEqual(found, {"a": ("died", "the process ended with no end after 5 s: "), "c": ("1", "")})

    def test_what_ggml_prints_is_read_by_case(self):
        program = self.folder / "test-backend-ops"
        program.write_text("#!/bin/sh\nprintf '  ADD(type=f32): \\033[1;32mOK\\033[0m\\n  MUL(n=1): FAIL\\n'")
        program.chmod(0o755)
        options = argparse.Namespace(modes=["native"], timeout=10)
        found = peers.run_ggml(program, options)["native"]
        self.assertEqual((found["ADD(type=f32)"][0], found["MUL(n=1)"][0]), ("OK", "FAIL"))


class Shares(unittest.TestCase):
    def test_a_pause_between_two_kernels_is_their_programs_and_one_between_programs_is_nobodys(self):
        def turn(begin_us):
            """Kernels of 48 us, 2 us apart, for 10 ms."""
            return [(1000 * (begin_us + i), 1000 * (begin_us + i + 48)) for i in range(0, 10_000, 50)]

        # 100 us pass from a turn to the next.
        turns = [turn(10_100 * i) for i in range(400)]
        programs = [sum(turns[which::2], []) for which in (0, 1)]
        kernels = shares.windows(programs)
        held = shares.windows([shares.with_pauses(stamps) for stamps in programs])
        for of_kernels, of_program in zip(kernels, held):
            self.assertGreater(len(of_kernels), 10)
            for had, has in zip(of_kernels, of_program):
                self.assertAlmostEqual(had, 47.5, delta=1)
                self.assertAlmostEqual(has, 49.5, delta=1)

    def test_a_kernel_that_was_taken_off_the_gpu_did_not_have_it_meanwhile(self):
        # The fourth waits for 20 ms for its other half.
        kernels = [(0, 50_000), (50_000, 100_000), (100_000, 150_000), (150_000, 20_200_000)]
        found = shares.without_interruptions(kernels)
        self.assertEqual(found, [*kernels[:3], (150_000, 175_000), (20_175_000, 20_200_000)])
        # Of long ones it is not known where they were.
        long = [(0, 5_000_000), (5_000_000, 10_000_000), (10_000_000, 30_000_000)]
        self.assertEqual(shares.without_interruptions(long), long)

    def test_turns_are_told_by_who_begins_a_kernel(self):
        first, second = [(10, 20), (20, 30), (60, 70)], [(32, 40), (40, 50)]
        self.assertEqual(shares.turns([first, second]), [[0, 0, 20], [1, 22, 40], [0, 50, 60]])


def main():
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
