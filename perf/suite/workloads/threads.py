"""Inference from eight threads at once, each on a stream of its own."""

import threading

from report import Report, deterministic_torch, digest, require

torchvision = require("threads", "torch", "torchvision")[1]
torch = deterministic_torch()
report = Report("threads")
THREADS = 8

with report.section("inference"):
    model = torchvision.models.resnet18().cuda().eval()
    inputs = [torch.randn(4, 3, 128, 128, generator=torch.Generator().manual_seed(i)) for i in range(THREADS)]
    rounds = report.count(10, speed=40)
    with torch.inference_mode():
        alone = [digest(model(x.cuda())) for x in inputs]
    together, failures = [None] * THREADS, []

    def infer(index):
        try:
            stream = torch.cuda.Stream()
            with torch.inference_mode(), torch.cuda.stream(stream):
                for _ in range(rounds):
                    out = model(inputs[index].cuda(non_blocking=True))
                    out.argmax(1).cpu()
                together[index] = digest(out)
        except Exception as error:
            failures.append(repr(error))

    def all_threads():
        threads = [threading.Thread(target=infer, args=(index,)) for index in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    report.steady_ms = report.time(all_threads, 3, torch.cuda.synchronize, warmup=1) / rounds
    report.exact("failures", failures)
    report.exact("alone", alone)
    report.exact("together", together)

with report.section("autograd"):
    # Backward runs on the autograd engine's own thread.
    gradients = [None] * THREADS

    def differentiate(index):
        x = inputs[index].cuda().requires_grad_()
        (x.square().sum() * (index + 1)).backward()
        gradients[index] = digest(x.grad)

    threads = [threading.Thread(target=differentiate, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report.exact("gradients", gradients)

report.finish()
