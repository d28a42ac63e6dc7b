"""One of many programs on a GPU: stays attached, and runs a workload for a while each time it is told to.

A line `WORKLOAD SECONDS START` on standard input, START by the machine's monotonic clock, so that all begin together;
the answer is a line of JSON: steps, the seconds they took, percentiles of a step in ms, and the program's CPU seconds.
`say` answers that it is ready.
"""

import json
import resource
import sys
import time


def eager(torch):
    x = torch.ones(64, device="cuda")

    def step():
        for _ in range(400):
            x.add_(1.0)
        torch.cuda.synchronize()

    return step


def mnist(torch):
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    ).cuda()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))

    def step():
        image, label = images.cuda(), labels.cuda()
        optimizer.zero_grad()
        loss = functional.nll_loss(functional.log_softmax(model(image), dim=1), label)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def resnet(torch):
    import torchvision

    model = torchvision.models.resnet50().eval().cuda()
    image = torch.randn(1, 3, 224, 224, device="cuda")

    def step():
        with torch.inference_mode():
            model(image).sum().item()

    return step


def training(torch):
    import torchvision

    model = torchvision.models.resnet50().cuda()
    batch, labels = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (64,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def sleep(_):
    """For tests without a GPU."""
    return lambda: time.sleep(0.001)


WORKLOADS = {function.__name__: function for function in (eager, mnist, resnet, training, sleep)}


def run(step, seconds, start):
    for _ in range(3):
        step()
    while time.monotonic() < start:
        time.sleep(min(0.05, max(0.0, start - time.monotonic())))
    times, before = [], resource.getrusage(resource.RUSAGE_SELF)
    began = last = time.monotonic()
    while last < began + seconds:
        step()
        now = time.monotonic()
        times.append(now - last)
        last = now
    after = resource.getrusage(resource.RUSAGE_SELF)
    times.sort()
    at = lambda part: 1e3 * times[min(len(times) - 1, int(part * len(times)))]  # noqa: E731
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"steps": len(times), "seconds": last - began, "p50": at(0.5), "p99": at(0.99), "cpu": cpu}


def main():
    torch = None
    if "--no-torch" not in sys.argv:
        import torch

        torch.set_num_threads(1)
        torch.backends.cudnn.benchmark = False
        torch.ones(1, device="cuda").item()
    prepared = {}
    for line in sys.stdin:
        match line.split():
            case ["say"]:
                answer = {"ready": True}
            case ["prepare", name]:
                # The models of other workloads would only fill the GPU.
                prepared.clear()
                if torch:
                    torch.cuda.empty_cache()
                prepared[name] = WORKLOADS[name](torch)
                run(prepared[name], 0.2, 0.0)
                answer = {"ready": True}
            case [name, seconds, start]:
                answer = run(prepared[name], float(seconds), float(start))
            case other:
                sys.exit(f"crowd_member: unknown line {other}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
