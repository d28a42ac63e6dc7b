"""torch.compile: a transformer block trained with Inductor's kernels. compile.py default|reduce-overhead"""

from report import Report, require

torch = require("compile", "torch")
report = Report("compile")
# What is imported here asks for a GPU.
report.gate()
# Otherwise loaded by the first call of what was compiled.
import torch._dynamo  # noqa: E402
import torch._inductor.compile_fx  # noqa: E402

mode = next(iter(report.args), "default")
report.workload = f"compile_{mode.replace('-', '_')}"
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = False


class Block(torch.nn.Module):
    def __init__(self, width=256, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


with report.section("train"):
    model = torch.nn.Sequential(Block(), Block()).cuda()
    compiled = torch.compile(model, mode=mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(8, 128, 256, device="cuda")
    eager_loss = model(x).square().mean().item()
    losses = []

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())

    # Compilation, then what reduce-overhead needs to warm up, record and replay its graphs.
    report.steady_ms = report.time(step, report.count(20, speed=200), torch.cuda.synchronize, warmup=6, window=5)
    report.close("eager_loss", eager_loss, rtol=1e-4)
    report.close("losses", torch.stack(losses), rtol=1e-3)
    report.exact("first_loss_near_eager", abs(losses[0].item() - eager_loss) < 1e-3 * abs(eager_loss))

report.finish_if_speed()

with report.section("counters"):
    from torch._dynamo.utils import counters

    report.exact("cudagraph_skips", counters["inductor"]["cudagraph_skips"])
    report.exact("graph_breaks", sum(counters["graph_break"].values()))

report.finish()
