"""What PyTorch asks of NVIDIA's libraries beside cuBLAS and cuDNN's convolutions."""

from report import Report, deterministic_torch, digest, require

require("libraries", "torch")
torch = deterministic_torch()
report = Report("libraries")


def randn(*shape, seed=7, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", dtype=dtype, generator=torch.Generator(device="cuda").manual_seed(seed))


with report.section("fft"):
    x = randn(8, 4096)
    report.exact("rfft", digest(torch.fft.rfft(x)))
    report.exact("irfft", digest(torch.fft.irfft(torch.fft.rfft(x))))
    report.exact("fft2", digest(torch.fft.fft2(randn(4, 128, 128).to(torch.complex64))))
    report.exact("odd_length", digest(torch.fft.fft(randn(2, 1009))))
    report.exact("double", digest(torch.fft.fftn(randn(16, 16, 16, dtype=torch.float64))))
    report.close("fft_round_trip", (torch.fft.ifft(torch.fft.fft(x)).real - x).abs().max().item(), atol=1e-5)

with report.section("linalg"):
    a = randn(128, 128, dtype=torch.float64)
    spd = a @ a.T + 128 * torch.eye(128, device="cuda", dtype=torch.float64)
    u, s, vh = torch.linalg.svd(a)
    report.close("svd_values", s, rtol=1e-9)
    report.exact("svd", [digest(u), digest(s), digest(vh)])
    q, r = torch.linalg.qr(a)
    report.exact("qr", [digest(q), digest(r)])
    report.exact("cholesky", digest(torch.linalg.cholesky(spd)))
    report.exact("solve", digest(torch.linalg.solve(spd, a)))
    report.close("eigvalsh", torch.linalg.eigvalsh(spd), rtol=1e-9)
    report.close("determinant", torch.linalg.slogdet(spd)[1].item(), rtol=1e-9)
    report.exact("inverse_batched", digest(torch.linalg.inv(spd.float().view(1, 128, 128).repeat(4, 1, 1))))
    report.exact("lstsq", digest(torch.linalg.lstsq(spd, a[:, :4]).solution))
    try:
        torch.linalg.cholesky(-spd)
        report.exact("cholesky_of_negative", "no error")
    except torch.linalg.LinAlgError as error:
        report.exact("cholesky_of_negative", str(error)[:120])

with report.section("sparse"):
    dense = randn(512, 512)
    dense = torch.where(dense.abs() > 2, dense, torch.zeros_like(dense))
    csr = dense.to_sparse_csr()
    report.exact("csr", [digest(csr.crow_indices()), digest(csr.col_indices()), digest(csr.values())])
    report.close("csr_matmul_error", (csr @ dense - dense @ dense).abs().max().item(), atol=1e-3)
    report.exact("csr_matmul", digest(csr @ randn(512, 64)))
    report.exact("csr_matvec", digest(csr @ randn(512)))
    coo = dense.to_sparse_coo().coalesce()
    report.exact("coo_matmul", digest(torch.sparse.mm(coo, randn(512, 64))))

with report.section("lstm"):
    lstm = torch.nn.LSTM(64, 128, num_layers=2, batch_first=True, bidirectional=True).cuda()
    x = randn(8, 50, 64).requires_grad_()
    out, (hidden, _) = lstm(x)
    out.square().mean().backward()
    report.close("lstm_mean", out.abs().mean().item(), rtol=1e-4)
    report.exact("lstm", [digest(out), digest(hidden), digest(x.grad)])
    gru = torch.nn.GRU(64, 128).cuda()
    report.exact("gru", digest(gru(randn(20, 4, 64))[0]))

with report.section("sort"):
    keys = torch.randint(0, 1 << 20, (1 << 20,), device="cuda", generator=torch.Generator(device="cuda").manual_seed(9))
    values, order = torch.sort(keys, stable=True)
    report.exact("sort", [digest(values), digest(order)])
    report.exact("unique", [digest(x) for x in torch.unique(keys, return_counts=True)])
    report.exact("topk", [digest(x) for x in torch.topk(randn(64, 5000), 17)])
    report.exact("cumsum", digest(keys.cumsum(0)))
    report.exact("bincount", digest(torch.bincount(keys % 97)))
    report.exact("searchsorted", digest(torch.searchsorted(values, keys[:1000])))
    report.exact("median", randn(10001).median().item())

with report.section("random"):
    torch.manual_seed(1234)
    report.exact("randn", digest(torch.randn(100_000, device="cuda")))
    report.exact("rand", digest(torch.rand(100_001, device="cuda")))
    report.exact("randint", digest(torch.randint(0, 1000, (9999,), device="cuda")))
    report.exact("randperm", digest(torch.randperm(5000, device="cuda")))
    report.exact("bernoulli", digest(torch.empty(1000, device="cuda").bernoulli_(0.3)))
    report.exact("normal_bf16", digest(torch.randn(1000, device="cuda", dtype=torch.bfloat16)))
    report.exact("multinomial", digest(torch.multinomial(torch.rand(100, device="cuda"), 50)))
    report.exact("dropout", digest(torch.nn.functional.dropout(torch.ones(10000, device="cuda"), 0.5)))
    report.exact("state", digest(torch.cuda.get_rng_state()))

report.finish()
