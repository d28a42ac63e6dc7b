"""Out of memory raises what PyTorch raises natively, and the process goes on."""

from report import Report, deterministic_torch, digest, require

require("out_of_memory", "torch")
torch = deterministic_torch()
report = Report("out_of_memory")


def refused(bytes_asked):
    try:
        torch.empty(bytes_asked, dtype=torch.uint8, device="cuda")
        return "no error"
    except torch.OutOfMemoryError as error:
        return str(error).split(". GPU 0")[0]


with report.section("far_too_much"):
    report.exact("two_tebibytes", refused(1 << 41))
    x = torch.arange(10000, device="cuda", dtype=torch.float32)
    report.exact("goes_on", digest(x * x))

with report.section("limit"):
    # A fraction of the device, so that others on it are left alone.
    torch.cuda.set_per_process_memory_fraction(0.03)
    blocks = []
    try:
        while len(blocks) < 10000:
            blocks.append(torch.ones(256 << 20, dtype=torch.uint8, device="cuda"))
        report.exact("limit", "no error")
    except torch.OutOfMemoryError as error:
        report.exact("limit", str(error)[:45])
    report.exact("blocks", len(blocks))
    report.exact("last_byte", int(blocks[-1][-1].item()))
    del blocks
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)

with report.section("after"):
    report.exact("two_tebibytes_again", refused(1 << 41))
    report.exact("matmul", digest(torch.ones(64, 64, device="cuda") @ torch.eye(64, device="cuda")))
    report.exact("allocated", torch.cuda.memory_allocated())

report.finish()
