"""Inference from eight threads at once, each on a stream of its own."""

from report import Report, at_once, deterministic_torch, digest, require

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
        stream = torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(stream):
            for _ in range(rounds):
                out = model(inputs[index].cuda(non_blocking=True))
                out.argmax(1).cpu()
            together[index] = digest(out)

    def all_threads():
        failures.extend(at_once(infer, THREADS))

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

    report.exact("gradient_failures", at_once(differentiate, THREADS))
    report.exact("gradients", gradients)

report.finish()
