"""What a session costs while it does nothing: CPU time of the process and of Orion's, and memory on the GPU.

Both are of the whole machine, so they mean something only while nothing else uses the GPU or Orion.
"""

import os
import subprocess
import threading
import time
from pathlib import Path

from report import Report, require

torch = require("footprint", "torch")
report = Report("footprint")
# The driver's threads wake up once in about a second: of one second it depends on chance how often.
IDLE_S = 3


def cpu_s():
    """CPU seconds so far of this process and of every process of Orion's, but for the thread that looks: it sleeps in
    between, and looking took 0.2 % of 3 s, the more the more threads there were."""
    nanoseconds, looks = 0, str(threading.get_native_id())
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")[0]
            if folder.name == str(os.getpid()) or b"orion" in os.path.basename(command):
                # In `stat` the time is rounded to 10 ms, which is 1 % of a second.
                for thread in (folder / "task").iterdir():
                    if thread.name == looks:
                        continue
                    nanoseconds += int((thread / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return nanoseconds / 1e9


def gpu_memory_mib():
    """Asked of the driver itself, not of what stands in front of it in this process."""
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    if os.environ.get("SUITE_LD_LIBRARY_PATH"):
        environment["LD_LIBRARY_PATH"] = os.environ["SUITE_LD_LIBRARY_PATH"]
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, env=environment, capture_output=True, text=True, timeout=20).stdout
        return int(said.splitlines()[0])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return None


report.gate()

with report.section("footprint"):
    before_mib = gpu_memory_mib()
    x = torch.ones(1000, device="cuda")
    report.exact("sum", (x + x).sum().item())
    report.extra(gpu_memory_before_mib=before_mib, gpu_memory_mib=gpu_memory_mib())
    # A session may poll for a moment after its last call.
    time.sleep(0.1)
    report.begin()
    started, busy = time.perf_counter(), cpu_s()
    time.sleep(IDLE_S)
    idle_s, busy = time.perf_counter() - started, cpu_s() - busy
    report.extra(idle_cpu_percent=100 * busy / idle_s)
    report.finish_if_speed()
    report.exact("sum_after_idling", (x * 3).sum().item())

report.finish()
