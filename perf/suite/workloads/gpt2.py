"""GPT-2 small, greedy, one sequence: gpt2.py TOKENS [cold]

The first generation meets each sequence length for the first time, for each of which cuDNN may compile a kernel.
`cold` stops after it: the wall time of the whole process is what counts there.
"""

import time

from report import Report, digest, process_s, require, round_trips

torch, transformers = require("gpt2", "torch", "transformers")
# No deterministic mode here: it could choose another attention than users get. Inference repeats itself anyway.
torch.manual_seed(0)
report = Report("gpt2")
cold = "cold" in report.args
tokens = next((int(arg) for arg in report.args if arg.isdigit()), 40)
if not cold:
    # Each new length costs a compilation, natively too, and that is most of what this takes.
    tokens = report.count(tokens, speed=16)

with report.section("generate"):
    config = transformers.GPT2Config()
    model = transformers.GPT2LMHeadModel(config).to(torch.bfloat16).eval()
    report.gate()
    if cold:
        report.extra(before_cuda_s=process_s())
    model = model.cuda()
    prompt = torch.randint(0, 50000, (1, 32), generator=torch.Generator().manual_seed(1)).cuda()
    mask = torch.ones_like(prompt)

    def generate(new_tokens=tokens):
        started = time.perf_counter()
        with torch.inference_mode():
            ids = model.generate(
                prompt,
                attention_mask=mask,
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        torch.cuda.synchronize()
        return ids, (time.perf_counter() - started) * 1e3 / new_tokens

    if cold:
        report.begin()
    ids, first_ms = generate()
    report.exact("length", ids.shape[1])
    report.exact("tokens", digest(ids))
    with torch.inference_mode():
        logits = model(ids, attention_mask=torch.ones_like(ids)).logits[0, -1, :64]
    report.close("logits", logits.float(), rtol=2e-2, atol=2e-2)
    report.extra(first_token_ms=first_ms, round_trips_so_far=round_trips())
    if not cold:
        before = round_trips()
        generate(tokens // 2)
        of_half = round_trips() - before
        before = round_trips()
        timed = [generate() for _ in report.rounds(report.count(3, speed=9, quick=1))]
        of_one = (round_trips() - before) / len(timed)
        # A call of generate makes some of its own, whatever its length; so does the wait at the end of ours.
        per_token = (of_one - of_half) / (tokens - tokens // 2)
        per_call = max(0, of_one - 1 - per_token * tokens)
        report.extra(round_trips_per_step=per_token, round_trips_per_call=per_call)
        report.exact("same_tokens_again", all(torch.equal(ids, again) for again, _ in timed))
        report.steady_ms = sorted(ms for _, ms in timed)[len(timed) // 2]

report.finish()
