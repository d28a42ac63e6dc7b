"""A PyTorch whose own kernels are there as PTX, cuBLAS and cuDNN included, computes what the CPU computes, and trains.

    pytorch_current.py

Each line is PASS or FAIL, what was tried, and how long it took. The capability has to be one that cuBLAS does not
know, since it holds machine code alone for those that it knows."""

import copy
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if torch.cuda.get_device_name(0) != "Orion software GPU":
    sys.exit(f"FAIL PyTorch shows {torch.cuda.get_device_name(0)}")
# TF32 would be right, but not to a hundred thousandth.
torch.backends.cudnn.allow_tf32 = False
# The CPU's threads would wait for each other, where the cores are those that the kernels run on.
torch.set_num_threads(1)
numbers = torch.Generator().manual_seed(1)
x = torch.randn(64, 257, generator=numbers)
w = torch.randn(257, 96, generator=numbers)
rows = torch.randint(64, (500,), generator=numbers)
picture = torch.randn(2, 8, 16, 16, generator=numbers)
filters = torch.randn(12, 8, 3, 3, generator=numbers)
square = torch.randn(24, 24, generator=numbers) + 8 * torch.eye(24)
heads = torch.randn(3, 2, 4, 40, 16, generator=numbers)


def gradient(call, *inputs):
    """Of the sum of what a call gives."""
    inputs = [i.detach().clone().requires_grad_() for i in inputs]
    call(*inputs).sum().backward()
    return torch.cat([i.grad.flatten() for i in inputs])


# What is computed where its tensors are, and how far from the CPU's it may be.
CALLS = {
    "add, multiply, exp, sin": lambda at: (at(x) * 2 + 1).sin() * at(x).exp(),
    "double, int64, bool": lambda at: torch.stack(
        [
            at(x).double().sqrt().nan_to_num().sum(),
            (at(rows) * 7 % 13).sum().double(),
            (at(x) > 0).sum().double(),
        ]
    ),
    "half, bfloat16": lambda at: (at(x).half() * 2).float() + at(x).bfloat16().float(),
    "erf, expm1, atan2, hypot, fmod": lambda at: torch.stack(
        [at(x).erf(), at(x).expm1(), at(x).atan2(at(x).flip(0)), at(x).hypot(at(x).flip(0)), at(x).fmod(0.7)]
    ),
    "sum, mean, std, norm": lambda at: torch.stack(
        [at(x).sum(1), at(x).mean(1), at(x).std(1), at(x).norm(dim=1)]
    ),
    "sum of all": lambda at: at(x).sum(),
    "max, argmax, median, mode": lambda at: at(x).max(1)[0]
    + at(x).argmax(1).float()
    + at(x).median(1)[0]
    + at(rows).mode()[0],
    "sort, argsort, topk, kthvalue": lambda at: torch.cat(
        [at(x).sort(1)[0], at(x).argsort(1), at(x).topk(5)[0], at(x).kthvalue(9, 1, True)[0]], 1
    ),
    "sort of 30,000": lambda at: at(x).repeat(2, 1).flatten().sort()[0],
    "cumsum, cumprod, logcumsumexp": lambda at: torch.stack(
        [at(x).cumsum(1), at(x).tanh().cumprod(1), at(x).logcumsumexp(1)]
    ),
    "indexing": lambda at: at(x)[at(rows)][:, ::3] + at(x).index_select(0, at(rows))[:, ::3],
    "index_put, index_add, scatter": lambda at: torch.zeros_like(at(x))
    .index_put((at(rows),), at(x)[at(rows)], accumulate=True)
    .index_add(0, at(rows), at(x)[at(rows)])
    .scatter(1, at(rows)[:64].view(64, 1), 3.0),
    "where, masked_select, nonzero": lambda at: torch.where(at(x) > 0, at(x), -at(x)).masked_select(at(x) > 1).sum()
    + at(x).gt(1).nonzero().sum(),
    "unique, bincount, histc, searchsorted": lambda at: torch.cat(
        [
            at(rows).unique().float(),
            at(rows).bincount().float(),
            at(x).histc(20, -3, 3),
            torch.searchsorted(at(x).flatten().sort()[0], at(x)[0]).float(),
        ]
    ),
    "cat, stack, flip, roll, tril, repeat": lambda at: torch.cat([at(x).flip(0), at(x).roll(3, 1).tril(), at(x)]),
    "softmax, log_softmax": lambda at: at(x).softmax(1) + F.log_softmax(at(x), 1),
    "layer_norm, group_norm": lambda at: F.layer_norm(at(x), (257,)).sum(1)[:32]
    + F.group_norm(at(picture), 4).flatten()[:32],
    "batch_norm": lambda at: F.batch_norm(at(picture), None, None, training=True),
    "max_pool2d, avg_pool2d, adaptive": lambda at: F.max_pool2d(at(picture), 2)
    + F.avg_pool2d(at(picture), 2)
    + F.adaptive_avg_pool2d(at(picture), 8),
    "interpolate, grid_sample, pad": lambda at: F.interpolate(at(picture), size=32, mode="bicubic")
    + F.grid_sample(
        F.pad(at(picture), (1, 2, 1, 2), mode="reflect"),
        F.affine_grid(at(torch.eye(2, 3)).expand(2, 2, 3), (2, 8, 32, 32), align_corners=False),
        align_corners=False,
    ),
    "embedding, embedding_bag": lambda at: F.embedding(at(rows), at(x)).sum(0)
    + F.embedding_bag(at(rows).view(5, 100), at(x)).sum(0),
    "gelu, silu, mish, elu": lambda at: F.gelu(at(x)) + F.silu(at(x)) + F.mish(at(x)) + F.elu(at(x)),
    "losses": lambda at: torch.stack(
        [
            F.cross_entropy(at(x), at(rows)[:64]),
            F.mse_loss(at(x), at(x).flip(0)),
            F.binary_cross_entropy_with_logits(at(x), at(x).sigmoid()),
            F.kl_div(at(x).log_softmax(1), at(x).flip(1).softmax(1), reduction="batchmean"),
            F.ctc_loss(
                at(x)[:, None].log_softmax(2), at(rows)[None, :20] + 1, torch.tensor([64]), torch.tensor([20])
            ),
        ]
    ),
    "cdist, renorm": lambda at: torch.cdist(at(x), at(x).flip(1)) + at(x).renorm(2, 0, 1)[:, :64],
    "matmul": lambda at: at(x) @ at(w),
    "matmul of doubles": lambda at: at(x).double() @ at(w).double(),
    "matmul of complex numbers": lambda at: torch.view_as_real(
        torch.complex(at(x), at(x).flip(0)) @ torch.complex(at(w), at(w).flip(1))
    ),
    "bmm, baddbmm, einsum": lambda at: torch.bmm(at(heads)[0].flatten(0, 1), at(heads)[1].flatten(0, 1).mT)
    + torch.einsum("bhik,bhjk->bhij", at(heads)[0], at(heads)[2]).flatten(0, 1),
    "matrix times vector, dot, outer": lambda at: at(x) @ at(x)[0]
    + at(x)[0].dot(at(x)[1])
    + at(x)[0].outer(at(x)[1])[9, 9],
    "linear with bias": lambda at: F.linear(at(x), at(w).T.contiguous(), at(w)[0]),
    "convolution": lambda at: F.conv2d(at(picture), at(filters), padding=1),
    "convolution with strides, groups, dilation": lambda at: torch.cat(
        [
            F.conv2d(at(picture), at(filters), stride=2).flatten(),
            F.conv2d(at(picture), at(filters)[:, :4], groups=2).flatten(),
            F.conv2d(at(picture), at(filters), dilation=2).flatten(),
        ]
    ),
    "convolution of one and three dimensions": lambda at: torch.cat(
        [
            F.conv1d(at(picture)[..., 0], at(filters)[..., 0]).flatten(),
            F.conv3d(at(picture)[None], at(filters)[:4, :2, None].expand(4, 2, 3, 3, 3)).flatten(),
        ]
    ),
    "transposed convolution": lambda at: F.conv_transpose2d(at(picture), at(filters).transpose(0, 1), stride=2),
    "gradient of a convolution": lambda at: gradient(
        lambda p, f: F.conv2d(p, f, padding=1).square(), at(picture), at(filters)
    ),
    "gradient of a product and softmax": lambda at: gradient(
        lambda a, b: (a @ b).softmax(1).square(), at(x), at(w)
    ),
    "gradient of norms and pools": lambda at: gradient(
        lambda p: F.max_pool2d(F.batch_norm(p, None, None, training=True), 2).square(), at(picture)
    ),
    "fft, rfft2, irfft": lambda at: torch.cat(
        [
            torch.view_as_real(torch.fft.fft(at(x))).flatten(),
            torch.view_as_real(torch.fft.rfft2(at(picture))).flatten(),
            torch.fft.irfft(torch.fft.rfft(at(x), dim=0), dim=0).flatten(),
        ]
    ),
    "solve, inverse, cholesky": lambda at: torch.cat(
        [
            torch.linalg.solve(at(square), at(x)[:24, :8]).flatten(),
            torch.linalg.inv(at(square)).flatten(),
            torch.linalg.cholesky(at(square) @ at(square).T).flatten(),
        ]
    ),
    "qr, svd, eigh, lstsq": lambda at: torch.cat(
        [
            torch.linalg.qr(at(square))[1].abs().flatten(),
            torch.linalg.svdvals(at(square)),
            torch.linalg.eigvalsh(at(square) + at(square).T),
            torch.linalg.lstsq(at(square), at(square)[:, :2])[0].flatten(),
        ]
    ),
    "sparse times dense": lambda at: (at(x) * (at(x) > 1)).to_sparse() @ at(w)
    + (at(x) * (at(x) > 1)).to_sparse_csr() @ at(w),
    "attention": lambda at: F.scaled_dot_product_attention(*at(heads), is_causal=True),
    "gradient of attention": lambda at: gradient(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v).square(), *at(heads)
    ),
    "lstm, gru": lambda at: torch.cat(
        [recurrent(nn.LSTM).to(at(x).device)(at(picture)[0])[0], recurrent(nn.GRU).to(at(x).device)(at(picture)[0])[0]]
    ),
    "nested tensors, vmap, jacobian": lambda at: torch.cat(
        [
            torch.nested.nested_tensor([at(x)[0], at(x)[1, :9]]).to_padded_tensor(0).flatten(),
            torch.vmap(torch.dot)(at(x), at(x).flip(0)),
            torch.func.jacrev(lambda v: v.sin() * v.sum())(at(x)[0, :9]).flatten(),
        ]
    ),
}


def recurrent(kind):
    torch.manual_seed(3)
    return kind(16, 24, 2, batch_first=True)


def near(there, here):
    there, here = there.detach().cpu().double(), here.detach().double()
    there, here = there.nan_to_num(), here.nan_to_num()
    return there.shape == here.shape and bool(((there - here).abs() <= 2e-4 * (1 + here.abs())).all())


def halves():
    """Products, convolutions and attention of half precision, whose sums the CPU does otherwise."""
    for kind in torch.float16, torch.bfloat16:
        low = [t.to(kind) for t in (x, w, picture, filters, heads)]
        a, b, p, f, h = (t.cuda() for t in low)
        there = a @ b, F.conv2d(p, f), F.scaled_dot_product_attention(*h)
        a, b, p, f, h = (t.float() for t in low)
        here = a @ b, F.conv2d(p, f), F.scaled_dot_product_attention(*h)
        for there, here in zip(there, here):
            assert there.dtype == kind
            if not bool(((there.cpu().float() - here).abs() <= 0.02 * (1 + here.abs())).all()):
                return False
    return True


def random_numbers():
    draws = torch.rand(100000, device="cuda"), torch.randn(100000, device="cuda")
    torch.manual_seed(5)
    first = torch.randint(1000, (50,), device="cuda"), torch.randperm(100, device="cuda")
    torch.manual_seed(5)
    again = torch.randint(1000, (50,), device="cuda"), torch.randperm(100, device="cuda")
    kept = F.dropout(torch.ones(100000, device="cuda"), 0.25).gt(0).float().mean().item()
    picked = torch.multinomial(torch.tensor([0.0, 1, 3], device="cuda"), 9999, replacement=True).float().mean().item()
    return (
        abs(draws[0].mean().item() - 0.5) < 0.01
        and abs(draws[1].std().item() - 1) < 0.02
        and all(bool((a == b).all()) for a, b in zip(first, again))
        and bool((first[1].sort()[0].cpu() == torch.arange(100)).all())
        and abs(kept - 0.75) < 0.01
        and abs(picked - 1.75) < 0.03
    )


def streams_and_events():
    side, begun, ended = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    pinned = x.pin_memory()
    with torch.cuda.stream(side):
        there = pinned.to("cuda", non_blocking=True)
        there = there * 2
        done = side.record_event()
    torch.cuda.current_stream().wait_event(done)
    back = torch.empty_like(x).pin_memory()
    back.copy_(there + 1, non_blocking=True)
    ended.record()
    ended.synchronize()
    return pinned.is_pinned() and bool((back == x * 2 + 1).all()) and begun.elapsed_time(ended) > 0


def captured_graph():
    net = nn.Sequential(nn.Linear(257, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    given = torch.zeros(64, 257, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            net(given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = net(given)
    for factor in 1, 2, 3:
        given.copy_(x.cuda() * factor)
        graph.replay()
        if not near(result, copy.deepcopy(net).cpu()(x * factor)):
            return False
    return True


def errors():
    """A launch that asserts fails in words, and ends the use of this GPU; so it is the last."""
    try:
        torch.ones(4, device="cuda")[torch.tensor([9], device="cuda")].cpu()
    except RuntimeError as error:
        return "device-side assert" in str(error)
    return False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.hidden, self.out = nn.Linear(8 * 16, 32), nn.Linear(32, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.convolution(x))), 2)
        return self.out(torch.tanh(self.hidden(x.flatten(1))))


class Reader(nn.Module):
    """Two layers of a transformer, which reads a picture in 16 words."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(16, 32), nn.Embedding(16, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        x = (F.max_pool2d(x, 2).flatten(1) * 8).long().clamp(0, 15)
        x = self.words(x) + self.places(torch.arange(16, device=x.device))
        return self.out(self.layers(x).mean(1))


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


data = pictures(256)


def train(device, kind, optimizer, epochs, workers):
    torch.manual_seed(0)
    net = kind().to(device)
    loader = DataLoader(TensorDataset(*data), 64, num_workers=workers, pin_memory=device == "cuda")
    optimizer = optimizer(net.parameters())
    losses = []
    for _ in range(epochs):
        for batch, kinds in loader:
            batch, kinds = batch.to(device, non_blocking=True), kinds.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(batch), kinds)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        losses.append(loss.item())
    return losses


def trains(kind, optimizer, epochs, workers=0):
    there, here = (train(device, kind, optimizer, epochs, workers) for device in ("cuda", "cpu"))
    print("    losses", *(f"{a:.5f}/{b:.5f}" for a, b in zip(there, here)))
    return all(abs(a - b) < 1e-3 * (1 + abs(b)) for a, b in zip(there, here)) and there[-1] < there[0]


TRIES = {name: lambda call=call: near(call(lambda t: t.cuda()), call(lambda t: t)) for name, call in CALLS.items()} | {
    "products, convolutions, attention of half precision": halves,
    "random numbers, dropout, multinomial": random_numbers,
    "streams, events, pinned copies": streams_and_events,
    "a captured graph": captured_graph,
    "training by SGD": lambda: trains(Net, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 4),
    "training by Adam, batches from two processes": lambda: trains(Net, lambda p: torch.optim.Adam(p, 0.01), 4, 2),
    "training of a transformer by fused AdamW": lambda: trains(
        Reader, lambda p: torch.optim.AdamW(p, 0.003, fused=True), 3
    ),
    "an assertion in a kernel": errors,
}

chosen = sys.argv[1:]
for name, attempt in TRIES.items():
    if chosen and not any(part in name for part in chosen):
        continue
    began = time.monotonic()
    try:
        verdict, why = "PASS" if attempt() else "FAIL", ""
    except Exception as error:
        verdict, why = "FAIL", f": {type(error).__name__}: {str(error)[:300]}"
    print(f"{verdict} {name}{why}", flush=True)
    print(f"    {time.monotonic() - began:.1f} s", flush=True)
