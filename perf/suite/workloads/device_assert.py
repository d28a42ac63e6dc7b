"""A device assert ends the process that caused it as natively, and nobody else."""

import json
import subprocess
import sys

from report import Report, digest, require


def main():
    require("device_assert", "torch")
    report = Report("device_assert")
    with report.section("sessions"):
        bystander = start("bystander")
        bystander.stdout.readline()
        victim = start("victim")
        said, complained = victim.communicate(timeout=60)
        after, bystander_complained = bystander.communicate("stop\n", timeout=60)
        sys.stderr.write(complained + bystander_complained)
        report.exact("victim", json.loads(said.splitlines()[-1]))
        report.exact("victim_rc", victim.returncode)
        report.exact("assert_text_on_stderr", "Assertion" in complained)
        report.exact("bystander", json.loads(after.splitlines()[-1])["digest"])
        report.exact("bystander_rc", bystander.returncode)
    report.finish()


def start(role):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, __file__, role], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def victim():
    import torch

    x = torch.zeros(10, device="cuda")
    index = torch.tensor([3, 12], device="cuda")
    errors = []
    for attempt in (lambda: x[index].cpu(), lambda: torch.ones(3, device="cuda").cpu(), torch.cuda.synchronize):
        try:
            attempt()
            errors.append("no error")
        except RuntimeError as error:
            errors.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
    print(json.dumps(errors), flush=True)


def bystander():
    import threading

    import torch

    torch.manual_seed(0)
    stop = threading.Event()
    x = torch.randn(512, 512, device="cuda")
    first = digest(x @ x)
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    rounds, equal = 0, True
    while not stop.is_set() or rounds < 10:
        equal &= digest(x @ x) == first
        rounds += 1
    print(json.dumps({"digest": [first, equal], "rounds": rounds}), flush=True)


if __name__ == "__main__":
    {"victim": victim, "bystander": bystander}.get(sys.argv[1] if len(sys.argv) > 1 else "", main)()
