#!/usr/bin/env python3
"""How exactly sessions are kept to their shares of a GPU's time, and what that costs.

Each case is a pool of its own (orion-controller, orion-agent, oriond) on one GPU, and some programs with a share each
(`shares_load.py`). Who had the GPU when is read from stamps of the GPU's own clock that the programs' kernels have
written, not from anything that Orion counts: at each time the GPU is divided equally among the programs that have a
kernel under way, or are between two that follow each other within 20 us. A kernel that took longer than its program's
usually do was off the GPU meanwhile. The rates of all programs are compared
with those that each reaches alone, and NVML's process utilisation is shown where there is pynvml.

    python3 perf/suite/shares.py --bin target/release --out shares.json
    python3 perf/suite/shares.py --bin target/debug --driver soft --seconds 3 --only half,cap
"""

import argparse
import array
import bisect
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
SUITE = Path(__file__).resolve().parent
sys.path.insert(0, str(SUITE))
import server  # noqa: E402

WINDOW_NS = 1_000_000_000
STEP_NS = 100_000_000
#: Between two kernels of one program the GPU stands still for some microseconds, also where nobody else has any: of a
#: program that is alone the kernels of 50 us have 96 % of it. That is the program's time.
PAUSE_NS = 20_000
#: Of kernels up to this it is found out when others interrupted them.
INTERRUPTED_NS_MAX = 1_000_000
#: Of a run, before anything is judged.
LEAD_NS = 1_000_000_000


class Failed(Exception):
    """A case that could not be measured; the others go on."""


def program(kind, share, **options):
    return {"kind": kind, "share": share, **options}


#: Name, throttle level, programs, and what is done meanwhile.
CASES = [
    ("half", 100, [program("steady", 50), program("steady", 50)], {}),
    ("half-off", None, [program("steady", 50), program("steady", 50)], {"of": "half"}),
    ("quarter", 100, [program("steady", 75), program("steady", 25)], {}),
    ("tenth", 100, [program("steady", 90), program("steady", 10)], {}),
    # The question of HAMi's issue 2863, both ways: with work always queued, and with a wait behind each kernel.
    ("tenth-waiting", 100, [program("waiting", share, kernel_us=500) for share in (90, 10)], {}),
    ("three", 100, [program("steady", 50), program("steady", 30), program("steady", 20)], {}),
    ("four", 100, [program("steady", share) for share in (40, 30, 20, 10)], {}),
    ("half-capped", 0, [program("steady", 50), program("steady", 50)], {}),
    ("quarter-capped", 0, [program("steady", 75), program("steady", 25)], {}),
    ("four-capped", 0, [program("steady", share) for share in (40, 30, 20, 10)], {}),
    ("lent", 50, [program("steady", 30)], {}),
    ("lent-two", 50, [program("steady", 60), program("steady", 20)], {}),
    ("cap", 0, [program("steady", 30)], {}),
    ("caps", 0, [program("steady", 60), program("steady", 30, kernel_us=500)], {}),
    ("mixed", 100, [program("steady", 50, kernel_us=500), program("memset", 30), program("steady", 20)], {}),
    ("bursty", 100, [program("steady", 50), program("bursty", 50)], {}),
    ("bursty-capped", 0, [program("steady", 50), program("bursty", 50)], {}),
    ("spinner", 100, [program("steady", 50), program("waiting", 50, kernel_us=200_000)], {}),
    ("spinner-capped", 0, [program("steady", 70), program("waiting", 30, kernel_us=200_000)], {}),
    ("waiting", 100, [program("steady", 50, kernel_us=500), program("waiting", 50, kernel_us=100)], {}),
    ("graph", 100, [program("graph", 50, kernel_us=5), program("waiting", 50, kernel_us=500)], {}),
    ("cooperative", 100, [program("cooperative", 70), program("steady", 30)], {}),
    ("kill", 100, [program("steady", 50), program("steady", 50)], {"kill": True}),
    ("kill-long", 100, [program("waiting", 50, kernel_us=200_000)] * 2, {"kill": True}),
    ("gemm", 100, [program("gemm", 75), program("gemm", 25)], {"torch": True}),
    ("torch", 100, [program("gemm", 50), program("pointwise", 30), program("resnet", 20)], {"torch": True}),
]


class Pool:
    """A controller, an oriond and its agent in a folder."""

    def __init__(self, options, folder, level):
        self.options, self.folder, self.processes = options, folder, []
        port = server.free_port()
        conf = folder / "controller.yaml"
        conf.write_text(
            f"controller:\n  listen_ip: 127.0.0.1\n  listen_port: {port}\n  places_by_ratio: true\n"
            f"database:\n  data-dir: {folder / 'data'}\n"
        )
        self.controller = f"127.0.0.1:{port}"
        throttle = ["--computation-throttle", "off"]
        if level is not None:
            throttle = ["--throttle-level", level, "--throttle-turn-us", options.turn_us]
        self.start("orion-controller", "start", "--config-file", conf)
        oriond = ["serve", "--driver", options.driver, "--socket", folder / "s", "--pool", folder / "p"]
        self.oriond = self.start("oriond", *oriond, "--warm", "0", "--prestart", "3", *throttle, *options.serve)
        self.wait_for("oriond", "serving", 30)
        agent = ["--controller", self.controller, "--pool", folder / "p", "--address", f"unix:{folder / 's'}"]
        self.start("orion-agent", *agent, "--node", "n", "--vgpu-count", "4", "--reserve", "0")
        self.wait_for("oriond", "worker warm", 60, count=3)

    def start(self, name, *arguments):
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [str(self.options.bin / name), *map(str, arguments)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, name, words, seconds, count=1):
        deadline = time.monotonic() + seconds
        while self.log(name).count(words) < count:
            ended = [process.args[0] for process in self.processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise Failed(f"no {words!r} in the log of {name} ({ended or 'too late'}): {self.log(name)[-1500:]}")
            time.sleep(0.01)

    def workers(self):
        """Workers that serve somebody."""
        found = []
        for line in self.log("oriond").splitlines():
            if "session begins" in line and " worker=" in line:
                found.append(int(line.split(" worker=")[1].split()[0]))
        return found

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Program:
    """One session: a program that was started and waits for its signal."""

    def __init__(self, options, pool, number, what, seconds):
        self.what = what
        self.stamps_path = pool.folder / f"stamps{number}"
        self.errors = pool.folder / f"program{number}.log"
        command = [options.bin / "orion-run", "--controller", pool.controller, "--ratio", what["share"]]
        command += ["--gmem", options.gmem, "--wait", 20, "--", options.python, SUITE / "shares_load.py", what["kind"]]
        command += ["--seconds", seconds, "--turns-per-us", options.turns_per_us, "--stamps", self.stamps_path]
        for name in ("kernel_us", "on_ms", "off_ms", "nodes"):
            if name in what:
                command += ["--" + name.replace("_", "-"), what[name]]
        if "kernel_us" not in what:
            command += ["--kernel-us", options.kernel_us]
        if options.is_soft:
            command += ["--soft"]
        with self.errors.open("wb") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_ready(self):
        line = self.process.stdout.readline().strip()
        if line != "ready":
            raise Failed(f"{self.what['kind']} did not get ready ({line!r}): {self.said()}")

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def said(self):
        return self.errors.read_text(errors="replace")[-1500:]

    def answer(self, seconds):
        try:
            out, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"{self.what['kind']} did not end: {self.said()}") from None
        if self.process.returncode != 0 or not out.strip():
            raise Failed(f"{self.what['kind']} ended with {self.process.returncode}: {self.said()}")
        return json.loads(out.strip().splitlines()[-1])

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def intervals(self, answer):
        """When the GPU worked for it, as pairs of nanoseconds, in order."""
        stamps = array.array("Q")
        stamps.frombytes(self.stamps_path.read_bytes())
        pairs = list(zip(stamps[0::2], stamps[1::2]))[answer.get("first_slot", 0) :]
        if answer.get("marks"):
            pairs = [(pairs[i][0], pairs[i + 1][1]) for i in range(0, len(pairs) - 1, 2)]
        pairs = sorted(pair for pair in pairs if pair[0] and pair[1] >= pair[0])
        return pairs if answer.get("marks") else without_interruptions(pairs)


def without_interruptions(kernels):
    """When kernels that take all the same time were on the GPU. One that took much longer was off it in between: it was
    another program's time slice, or Orion took it off when its turn was over. Where it ran is known to half of what one
    takes, which of long kernels is too much: those are left as they are."""
    usual = statistics.median(end - begin for begin, end in kernels) if kernels else 0
    if usual > INTERRUPTED_NS_MAX:
        return kernels
    found = []
    for begin, end in kernels:
        if end - begin > usual * 1.5:
            found += [(begin, begin + int(usual / 2)), (end - int(usual / 2), end)]
        else:
            found.append((begin, end))
    return sorted(found)


def occupancy(all_intervals):
    """For each program the GPU's time so far at each of its changes: who has a kernel under way has an equal part."""
    events = []
    for which, intervals in enumerate(all_intervals):
        for begin, end in intervals:
            events.append((begin, 1, which))
            events.append((end, -1, which))
    events.sort(key=lambda event: (event[0], event[1]))
    count = [0] * len(all_intervals)
    used = [0.0] * len(all_intervals)
    times, marks, last = [], [], None
    for at, change, which in events:
        active = [i for i, n in enumerate(count) if n > 0]
        if last is not None and active and at > last:
            for i in active:
                used[i] += (at - last) / len(active)
        if last is None or at - (times[-1] if times else 0) >= 20_000:
            times.append(at)
            marks.append(list(used))
        count[which] += change
        last = at
    if last is not None:
        times.append(last)
        marks.append(list(used))
    return times, marks


def at_time(times, marks, at, which):
    i = bisect.bisect_left(times, at)
    if i == 0:
        return marks[0][which]
    if i == len(times):
        return marks[-1][which]
    (t0, t1), (m0, m1) = (times[i - 1], times[i]), (marks[i - 1][which], marks[i][which])
    return m0 + (m1 - m0) * (at - t0) / max(1, t1 - t0)


def with_pauses(intervals):
    """When a program had the GPU: kernels with what lies between one and the next, if it is short."""
    held = []
    for begin, end in intervals:
        if held and begin - held[-1][1] <= PAUSE_NS:
            held[-1] = (held[-1][0], max(held[-1][1], end))
        else:
            held.append((begin, end))
    return held


def windows(all_intervals):
    """Percent of the GPU that each program had in each window of a second in which all of them ran."""
    times, marks = occupancy(all_intervals)
    begin = max(intervals[0][0] for intervals in all_intervals) + LEAD_NS
    end = min(intervals[-1][1] for intervals in all_intervals)
    found = [[] for _ in all_intervals]
    while begin + WINDOW_NS <= end:
        for which in range(len(all_intervals)):
            had = at_time(times, marks, begin + WINDOW_NS, which) - at_time(times, marks, begin, which)
            found[which].append(100 * had / WINDOW_NS)
        begin += STEP_NS
    return found


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else None


def gaps_ms(intervals):
    """Longest times without a kernel of this program."""
    ends, longest = 0, []
    for begin, end in intervals:
        if ends and begin > ends:
            longest.append((begin - ends) / 1e6)
        ends = max(ends, end)
    return sorted(longest, reverse=True)[:3]


def idle_used_after_ms(steady, bursty):
    """After each burst, until the other's rate is that of a program alone: its first window of 5 ms nearly full."""
    ends = [end for (_, end), (begin, _) in zip(bursty, bursty[1:]) if begin - end > 50_000_000]
    times, marks = occupancy([steady])
    found = []
    for end in ends:
        for step in range(0, 200):
            at = end + step * 1_000_000
            if at_time(times, marks, at + 5_000_000, 0) - at_time(times, marks, at, 0) >= 0.85 * 5_000_000:
                found.append(step)
                break
        else:
            found.append(200)
    return found


class Utilisation:
    """What NVML says of processes, where there is pynvml and a GPU."""

    def __init__(self):
        self.nvml = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self.nvml, self.handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception:  # noqa: BLE001: whatever is lacking, this is beside the point
            return

    def of(self, pids):
        if self.nvml is None:
            return None
        try:
            samples = self.nvml.nvmlDeviceGetProcessUtilization(self.handle, 0)
        except Exception:  # noqa: BLE001: as above
            return None
        latest = {}
        for sample in samples:
            latest[sample.pid] = sample.smUtil
        return [latest.get(pid) for pid in pids]


def turns(all_intervals):
    """Who had the GPU from when to when: its number, and nanoseconds since the first of all began."""
    runs = []
    for begin, end, which in sorted((*pair, which) for which, pairs in enumerate(all_intervals) for pair in pairs):
        if runs and runs[-1][0] == which:
            runs[-1][2] = max(runs[-1][2], end)
        else:
            runs.append([which, begin, end])
    first = runs[0][1] if runs else 0
    return [[which, begin - first, end - first] for which, begin, end in runs]


def run_case(options, name, level, programs, extras, seconds):
    with tempfile.TemporaryDirectory(prefix="orion-shares-") as folder:
        running = []
        pool = None
        try:
            pool = Pool(options, Path(folder), level)
            running = [Program(options, pool, i, what, seconds) for i, what in enumerate(programs)]
            for one in running:
                one.wait_ready()
            for one in running:
                one.go()
            survivors, killed = running, None
            utilisation = None
            if extras.get("kill"):
                time.sleep(seconds / 2)
                killed = pool.workers()[0]
                os.kill(killed, signal.SIGKILL)
                gone = next((one for one in running if one.process.poll() is not None), None)
                deadline = time.monotonic() + 5
                while gone is None and time.monotonic() < deadline:
                    time.sleep(0.01)
                    gone = next((one for one in running if one.process.poll() is not None), None)
                survivors = [one for one in running if one is not gone]
            else:
                time.sleep(seconds * 0.8)
                utilisation = Utilisation().of(pool.workers())
            answers = [one.answer(seconds + 60) for one in survivors]
            intervals = [one.intervals(answer) for one, answer in zip(survivors, answers)]
            if not all(intervals):
                raise Failed("a program's kernels have left no stamps")
            result = judge(name, level, [one.what for one in survivors], answers, intervals, extras)
            result["nvml_sm_percent"] = utilisation
            if options.turns:
                result["turns"] = turns(intervals)
            lines = pool.log("oriond").splitlines()
            result["oriond_says"] = [line for line in lines if "WARN" in line or "ERROR" in line]
            if options.keep_logs:
                result["oriond_log"] = pool.log("oriond")
            return result
        finally:
            for one in running:
                one.kill()
            if pool is not None:
                pool.stop()


def judge(name, level, programs, answers, intervals, extras):
    found = windows([with_pauses(stamps) for stamps in intervals])
    rows = []
    for what, answer, parts, stamps in zip(programs, answers, found, intervals):
        off = [abs(part - what["share"]) for part in parts]
        rows.append(
            {
                "kind": what["kind"],
                "share": what["share"],
                "kernel_us": what.get("kernel_us"),
                "windows": len(parts),
                "percent": [round(part, 3) for part in parts],
                "mean": statistics.fmean(parts) if parts else None,
                "least": min(parts, default=None),
                "most": max(parts, default=None),
                "off_p95": quantile(off, 0.95),
                "off_most": max(off, default=None),
                "steps_per_s": answer["steps_per_s"],
                "longest_gaps_ms": gaps_ms(stamps),
                **{key: answer[key] for key in ("first_kernel_ms",) if key in answer},
            }
        )
    result = {"case": name, "level": level, "programs": rows}
    for key, parts_of_all in (("had_mean", found), ("busy_mean", windows(intervals))):
        sums = [sum(parts) for parts in zip(*parts_of_all)]
        result[key] = statistics.fmean(sums) if sums else None
    if [what["kind"] for what in programs] == ["steady", "bursty"]:
        result["idle_used_after_ms"] = idle_used_after_ms(*intervals)
    if extras.get("of"):
        result["of"] = extras["of"]
    return result


def alone(options, what, seconds, known):
    """The rate of a program without anybody else, through Orion and without an arbiter."""
    key = json.dumps({k: v for k, v in what.items() if k != "share"}, sort_keys=True)
    if key not in known:
        single = run_case(options, "alone", None, [dict(what, share=100)], {}, seconds)
        row = single["programs"][0]
        known[key] = {"steps_per_s": row["steps_per_s"], "busy": single["busy_mean"]}
    return known[key]


def number(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def show(result):
    level = "off" if result["level"] is None else result["level"]
    print(f"\n{result['case']} (level {level}): somebody had the GPU for "
          f"{number(result['had_mean'])} %, kernels were under way for {number(result['busy_mean'])} %")
    for row in result["programs"]:
        part = row.get("of_alone")
        print(
            f"  {row['kind']:<12} share {row['share']:>3} %: mean {number(row['mean'])}, least {number(row['least'])}, "
            f"most {number(row['most'])}, off P95 {number(row['off_p95'])}, off most {number(row['off_most'])} in "
            f"{row['windows']} windows; {number(row['steps_per_s'])}/s"
            + (f" = {100 * part:.1f} % of alone" if part else "")
            + f"; longest gaps {', '.join(number(gap) for gap in row['longest_gaps_ms'])} ms"
        )
        if row.get("first_kernel_ms"):
            first = row["first_kernel_ms"][1:] or row["first_kernel_ms"]
            middle, most = statistics.median(first), max(first)
            print(f"    first kernel of a burst back after {middle:.2f} ms, at most {most:.2f} ms")
    for key in ("idle_used_after_ms", "nvml_sm_percent"):
        if result.get(key):
            print(f"  {key}: {result[key]}")
    if result.get("total_of_off") is not None:
        print(f"  all together: {100 * result['total_of_off']:.1f} % of what the driver's own time slices reach")
    for line in result.get("oriond_says", [])[:5]:
        print(f"  oriond: {line}")
    sys.stdout.flush()


def calibrate(options):
    """Turns of the kernels' loop in a microsecond."""
    with tempfile.TemporaryDirectory(prefix="orion-shares-") as folder:
        pool = Pool(options, Path(folder), None)
        try:
            command = [options.bin / "orion-run", "--controller", pool.controller, "--wait", 20, "--", options.python]
            command += [SUITE / "shares_load.py", "calibrate"] + (["--soft"] if options.is_soft else [])
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                raise Failed(f"calibrating failed: {done.stderr[-2000:]}\n{pool.log('orion-agent')[-1000:]}")
            return json.loads(done.stdout.strip().splitlines()[-1])["turns_per_us"]
        finally:
            pool.stop()


def compare_with_off(results):
    by_name = {result["case"]: result for result in results if "programs" in result}
    for off in [result for result in results if result.get("of") in by_name]:
        ours = by_name[off["of"]]
        total = [sum(row["steps_per_s"] for row in one["programs"]) for one in (ours, off)]
        ours["total_of_off"] = total[0] / total[1] if total[1] else None


def has_torch(options):
    asked = subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False)
    return asked.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path("target/release"), help="where Orion's programs are")
    parser.add_argument("--driver", help="path of NVIDIA's libcuda.so.1, or soft")
    parser.add_argument("--seconds", type=float, default=8, help="of each case")
    parser.add_argument("--only", help="cases, with commas between")
    parser.add_argument("--skip", default="", help="likewise")
    parser.add_argument("--budget-s", type=float, default=460, help="no case is begun later")
    parser.add_argument("--serve", action="append", default=[], metavar="ARGUMENT", help="one more of oriond serve")
    parser.add_argument("--turn-us", type=int, default=5000, help="oriond's --throttle-turn-us")
    parser.add_argument("--kernel-us", type=float, help="of kernels where the case says nothing")
    parser.add_argument("--gmem", type=int, help="MiB of device memory of each program")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-alone", action="store_true", help="do not measure programs alone")
    parser.add_argument("--turns", action="store_true", help="write to --out who had the GPU from when to when")
    parser.add_argument("--keep-logs", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(name for name, *_ in CASES))
        return
    options.bin = options.bin.resolve()
    options.driver = options.driver or server.find_driver()
    options.is_soft = options.driver == "soft"
    options.kernel_us = options.kernel_us or (2000 if options.is_soft else 50)
    options.gmem = options.gmem or (256 if options.is_soft else 8192)
    begun = time.monotonic()
    only = options.only.split(",") if options.only else None
    cases = [case for case in CASES if (only is None or case[0] in only) and case[0] not in options.skip.split(",")]
    if any(extras.get("torch") for *_, extras in cases) and (options.is_soft or not has_torch(options)):
        print("without PyTorch on a GPU its cases are left out")
        cases = [case for case in cases if not case[3].get("torch")]
    options.turns_per_us = calibrate(options)
    print(f"driver {options.driver}; {options.turns_per_us:.1f} turns a microsecond; turns of {options.turn_us} us")
    results, known, failed = [], {}, 0
    for name, level, programs, extras in cases:
        if time.monotonic() - begun > options.budget_s - options.seconds - 15:
            results.append({"case": name, "left_out": "the time is used up"})
            print(f"\n{name}: left out, the time is used up")
            continue
        try:
            result = run_case(options, name, level, programs, extras, options.seconds)
            results.append(result)
            is_time = time.monotonic() - begun < options.budget_s - 15 * len(cases)
            if not options.no_alone and is_time and not extras.get("kill"):
                for row, what in zip(result["programs"], programs):
                    row["of_alone"] = row["steps_per_s"] / alone(options, what, 3, known)["steps_per_s"]
            compare_with_off(results)
            show(result)
        except (Failed, OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
            failed += 1
            results.append({"case": name, "failed": str(error)})
            print(f"\n{name}: FAILED: {error}", flush=True)
        if options.out:
            table = {"options": vars_of(options), "alone": known, "cases": results}
            options.out.write_text(json.dumps(table, indent=1))
    for result in results:
        if result.get("total_of_off") is not None:
            print(f"\n{result['case']}: {100 * result['total_of_off']:.1f} % of the driver's own time slices, together")
    sys.exit(1 if failed else 0)


def vars_of(options):
    return {key: str(value) for key, value in vars(options).items()}


if __name__ == "__main__":
    main()
