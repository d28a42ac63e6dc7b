"""Two processes train on the GPU at once, each with its own seed, and neither disturbs the other."""

import json
import subprocess
import sys

from report import Report, deterministic_torch, digest_all, require


def main():
    require("two_processes", "torch")
    report = Report("two_processes")
    with report.section("children"):
        pipe = subprocess.PIPE
        command = [sys.executable, __file__, "child"]
        children = [subprocess.Popen([*command, str(seed)], stdin=pipe, stdout=pipe, text=True) for seed in (1, 2)]
        # Both are ready before either starts, so that they do run at once.
        for child in children:
            child.stdout.readline()
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        for seed, child in enumerate(children, start=1):
            said, _ = child.communicate(timeout=90)
            report.exact(f"child_{seed}", json.loads(said.splitlines()[-1]))
            report.exact(f"child_{seed}_rc", child.returncode)
    report.finish()


def child(seed):
    torch = deterministic_torch(seed)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(512, 256, device="cuda")
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(300):
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
    print(json.dumps([digest_all(model.parameters()), loss.item().hex()]), flush=True)


if __name__ == "__main__":
    child(int(sys.argv[2])) if sys.argv[1:2] == ["child"] else main()
