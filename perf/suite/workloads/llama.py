"""One block of a language model's training: a small Llama in bf16 with fused AdamW."""

from report import Report, deterministic_torch, digest, require
from small_llama import small_llama

transformers = require("llama", "torch", "transformers")[1]
torch = deterministic_torch()
report = Report("llama")

with report.section("train"):
    model = small_llama(transformers)
    report.gate()
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, model.config.vocab_size, (4, 512), generator=torch.Generator().manual_seed(1)).cuda()
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())

    report.steady_ms = report.time(step, report.count(8, speed=60), torch.cuda.synchronize, warmup=2, window=4)
    report.finish_if_speed()
    # Only what is deterministic on the bare GPU is asked for bit by bit: the gradients of attention are not, and eight
    # native runs on an H200 gave five different second losses.
    report.exact("first_loss", digest(losses[0]))
    report.close("losses", torch.stack(losses).float(), rtol=1e-3)
    report.close("weights", [float(p.detach().float().norm()) for p in model.parameters()], rtol=1e-3)

report.finish()
