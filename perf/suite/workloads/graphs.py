"""CUDA graphs by hand: captured inference, a captured training step, and callables made into graphs."""

from report import Report, deterministic_torch, digest, digest_all, require

require("graphs", "torch")
torch = deterministic_torch()
report = Report("graphs")
report.gate()


def layers():
    torch.manual_seed(0)
    pairs = [(torch.nn.Linear(256, 256), torch.nn.Tanh()) for _ in range(40)]
    return torch.nn.Sequential(*[layer for pair in pairs for layer in pair]).cuda()


def warm_up(function):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)


with report.section("inference"), torch.no_grad():
    model, x = layers(), torch.randn(64, 256, device="cuda")
    warm_up(lambda: model(x))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x)
    for seed in range(3):
        x.copy_(torch.randn(64, 256, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        report.exact(f"replay_{seed}", digest(out))
        report.exact(f"replay_{seed}_is_eager", torch.equal(out, model(x)))
    report.steady_ms = report.time(graph.replay, report.count(200, speed=3000), torch.cuda.synchronize, window=20)

report.finish_if_speed()

with report.section("train"):
    model = layers()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x, y = torch.randn(64, 256, device="cuda"), torch.randn(64, 256, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for _ in range(10):
        graph.replay()
        losses.append(loss.item())
    report.close("losses", losses, rtol=1e-5)
    report.exact("weights", digest_all(model.parameters()))

with report.section("random"):
    # The generator's offset must advance from replay to replay.
    torch.cuda.manual_seed(7)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        noise = torch.randn(1000, device="cuda")
    draws = []
    for _ in range(3):
        graph.replay()
        draws.append(digest(noise))
    report.exact("draws", draws)
    report.exact("draws_differ", len(set(draws)) == 3)

with report.section("callables"):
    model = layers()
    sample = torch.randn(64, 256, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    out = graphed(torch.ones(64, 256, device="cuda", requires_grad=True))
    out.sum().backward()
    report.exact("graphed_out", digest(out))
    report.exact("graphed_gradient", digest_all(p.grad for p in model.parameters()))

report.finish()
