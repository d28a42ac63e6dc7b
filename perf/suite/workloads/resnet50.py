"""ResNet-50: training in bf16 or fp32, training on a pageable batch each step, and inference of one image."""

import sys

from report import Report, deterministic_torch, digest, digest_all, require

kind = next((arg for arg in sys.argv[1:] if not arg.startswith("-")), "bf16")
torchvision = require(f"resnet50_{kind}", "torch", "torchvision")[1]
torch = deterministic_torch()
report = Report(f"resnet50_{kind}")


def train(precision, pageable):
    model = torchvision.models.resnet50()
    generator = torch.Generator().manual_seed(1)
    batch_host = torch.randn(32, 3, 224, 224, generator=generator)
    labels = torch.randint(0, 1000, (32,), generator=generator)
    report.gate()
    model, labels = model.cuda(), labels.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batch_resident = batch_host.cuda()
    losses = []

    def step():
        batch = batch_host.cuda() if pageable else batch_resident
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    report.steady_ms = report.time(step, report.count(8, speed=40), torch.cuda.synchronize, warmup=3, window=4)
    report.finish_if_speed()
    # The first losses only: training on one batch amplifies the last bits of each step.
    report.close("losses", torch.stack(losses[:4]), rtol=2e-2)
    report.exact("losses_exact", digest(torch.stack(losses)))
    report.exact("weights", digest_all(model.parameters()))
    report.extra(max_memory_mib=torch.cuda.max_memory_allocated() >> 20)


def infer():
    model = torchvision.models.resnet50().eval()
    report.gate()
    model = model.cuda()
    image = torch.randn(1, 3, 224, 224, device="cuda")
    with torch.inference_mode():
        result = model(image)
        report.close("logits", result[0, :64], rtol=1e-3, atol=1e-4)
        report.exact("logits_exact", digest(result))

        def step():
            model(image)
            torch.cuda.synchronize()

        report.steady_ms = report.time(step, report.count(50, speed=300), torch.cuda.synchronize, warmup=10)


with report.section(kind):
    if kind == "batch1":
        infer()
    else:
        train("fp32" if kind == "fp32" else "bf16", pageable=kind == "pageable")

report.finish()
