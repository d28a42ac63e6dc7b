"""Inception-v3 training, with its auxiliary head: many small kernels of many shapes."""

from report import Report, deterministic_torch, digest, digest_all, require

torchvision = require("inception", "torch", "torchvision")[1]
torch = deterministic_torch()
report = Report("inception")

with report.section("train"):
    # Its own initialisation draws truncated normals on the CPU for many seconds; the layers' defaults will do.
    model = torchvision.models.inception_v3(weights=None, init_weights=False)
    report.gate()
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(16, 3, 299, 299, device="cuda")
    labels = torch.randint(0, 1000, (16,), device="cuda")
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            main, auxiliary = model(images)
            loss = torch.nn.functional.cross_entropy(main, labels)
            loss = loss + 0.4 * torch.nn.functional.cross_entropy(auxiliary, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    report.steady_ms = report.time(step, report.count(8, speed=40), torch.cuda.synchronize, warmup=2, window=4)
    report.finish_if_speed()
    report.close("losses", torch.stack(losses[:4]), rtol=2e-2)
    report.exact("losses_exact", digest(torch.stack(losses)))
    report.exact("weights", digest_all(model.parameters()))

report.finish()
