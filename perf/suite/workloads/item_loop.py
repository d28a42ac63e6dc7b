"""Reading one number back from the GPU, again and again."""

from report import Report, deterministic_torch, require

require("item_loop", "torch")
torch = deterministic_torch()
report = Report("item_loop")
READS = 500
report.gate()

with report.section("item"):
    x = torch.tensor(1.5, device="cuda")

    def read():
        for _ in range(READS):
            x.item()

    each_ms = report.time(read, report.count(10, speed=40), torch.cuda.synchronize) / READS
    report.steady_ms = each_ms
    report.extra(us_each=each_ms * 1e3)
    report.exact("value", x.item())

with report.section("launch_and_item"):
    counter = torch.zeros((), device="cuda", dtype=torch.int64)
    values = []

    def count():
        for _ in range(READS):
            counter.add_(1)
            values.append(counter.item())

    counted_ms = report.time(count, report.count(5, speed=20), torch.cuda.synchronize) / READS
    report.extra(us_each_after_launch=counted_ms * 1e3)
    report.exact("counted_in_order", values == list(range(1, len(values) + 1)))

report.finish_if_speed()

with report.section("small_reads"):
    table = torch.arange(1024, device="cuda")
    report.exact("tolist", sum(table.tolist()))
    report.exact("each", [int(table[i]) for i in range(0, 1024, 97)])

report.finish()
