"""PyTorch's release wheels up to 1.5.1 carry PTX of their kernels. These compute what the CPU computes, and train.

cuBLAS, cuDNN and cuFFT are in the wheel as machine code alone. So matrices are multiplied by products and sums here,
and convolutions are depthwise, of which PyTorch has kernels of its own."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

if torch.cuda.get_device_name(0) != "Orion software GPU":
    sys.exit(f"FAIL PyTorch shows {torch.cuda.get_device_name(0)}")
torch.backends.cudnn.enabled = False
numbers = torch.Generator().manual_seed(1)
x = torch.randn(64, 257, generator=numbers)
rows = torch.randint(64, (500,), generator=numbers)
picture = torch.randn(2, 8, 16, 16, generator=numbers)

CALLS = {
    "add, multiply, exp, sin": lambda x, rows, picture: (x * 2 + 1).sin() * x.exp(),
    "sum, mean, std": lambda x, rows, picture: torch.stack([x.sum(1), x.mean(1), x.std(1)]),
    "sum of all": lambda x, rows, picture: x.sum(),
    "max, argmax": lambda x, rows, picture: x.max(1)[0] + x.argmax(1).float(),
    "sort": lambda x, rows, picture: x.sort(1)[0],
    "topk": lambda x, rows, picture: x.topk(5)[0],
    "cumsum": lambda x, rows, picture: x.cumsum(1),
    "index_select": lambda x, rows, picture: x.index_select(0, rows),
    "index_add": lambda x, rows, picture: torch.zeros_like(x).index_add(0, rows, x[rows]),
    "where, masked_select": lambda x, rows, picture: torch.where(x > 0, x, -x).masked_select(x > 1),
    "unique": lambda x, rows, picture: rows.unique().float(),
    "softmax, log_softmax": lambda x, rows, picture: x.softmax(1) + F.log_softmax(x, 1),
    "layer_norm": lambda x, rows, picture: F.layer_norm(x, (257,)),
    "batch_norm": lambda x, rows, picture: F.batch_norm(picture, None, None, training=True),
    "max_pool2d, avg_pool2d": lambda x, rows, picture: F.max_pool2d(picture, 2) + F.avg_pool2d(picture, 2),
    "interpolate": lambda x, rows, picture: F.interpolate(picture, size=32, mode="bilinear", align_corners=True),
    "embedding": lambda x, rows, picture: F.embedding(rows, x),
    "gelu": lambda x, rows, picture: F.gelu(x),
    "half": lambda x, rows, picture: (x.half() * 2).float() if x.is_cuda else (x.half().float() * 2),
    "double": lambda x, rows, picture: x.double().sqrt().abs().sum(0),
}


def near(there, here):
    there, here = there.cpu().double(), here.double()
    there, here = [torch.where(v == v, v, torch.zeros_like(v)) for v in (there, here)]
    return there.shape == here.shape and bool(((there - here).abs() <= 1e-5 * (1 + here.abs())).all())


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return (x.unsqueeze(1) * self.weight).sum(2) + self.bias


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(4, 16, 3, padding=1, groups=4)
        self.norm = nn.BatchNorm2d(16)
        self.hidden, self.out = Linear(16 * 16, 32), Linear(32, 4)

    def forward(self, x):
        x = self.norm(self.convolution(x.expand(-1, 4, -1, -1).contiguous()))
        return self.out(torch.tanh(self.hidden(F.max_pool2d(F.relu(x), 2).flatten(1))))


def pictures(count):
    """Noise, and a line: one of two columns, or one of two rows."""
    kinds = torch.randint(4, (count,), generator=numbers)
    noise = torch.rand(count, 1, 8, 8, generator=numbers) * 0.5
    for picture, kind in zip(noise, kinds.tolist()):
        at = kind % 2 * 4 + 1
        if kind < 2:
            picture[0, :, at] += 1
        else:
            picture[0, at] += 1
    return noise, kinds


def train(device, data):
    torch.manual_seed(0)
    net = Net().to(device)
    data, kinds = (tensor.to(device) for tensor in data)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    losses = []
    for _ in range(6):
        for at in range(0, len(data), 64):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(data[at : at + 64]), kinds[at : at + 64])
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses, (net(data).argmax(1) == kinds).float().mean().item()


for name, call in CALLS.items():
    there = call(x.cuda(), rows.cuda(), picture.cuda())
    print("PASS" if near(there, call(x, rows, picture)) else "FAIL", name, flush=True)
draws = torch.rand(100000, device="cuda"), torch.randn(100000, device="cuda")
is_random = abs(draws[0].mean().item() - 0.5) < 0.01 and abs(draws[1].std().item() - 1) < 0.02
print("PASS" if is_random else "FAIL", "rand, randn")
data = pictures(256)
(there, right), (here, _) = train("cuda", data), train("cpu", data)
is_same = all(abs(a - b) < 1e-4 * (1 + abs(b)) for a, b in zip(there, here))
print("PASS" if is_same and right > 0.99 and there[-1] < there[0] / 4 else "FAIL", f"training: {right} right")
for epoch, (a, b) in enumerate(zip(there, here)):
    print(f"epoch {epoch}: loss {a:.4f}, {b:.4f} on the CPU")
