"""A CUDA tensor handed to another process (CUDA IPC): both see what the other writes."""

from report import Report, deterministic_torch, digest, require

require("shared_tensor", "torch")
torch = deterministic_torch()
import torch.multiprocessing as multiprocessing  # noqa: E402


def child(inbox, outbox):
    tensor = inbox.get()
    outbox.put(("sum", float(tensor.sum())))
    tensor.mul_(2)
    torch.cuda.synchronize()
    outbox.put(("doubled", digest(tensor)))
    inbox.get()
    # Before the parent frees what this refers to.
    del tensor


def main():
    report = Report("shared_tensor")
    with report.section("share"):
        context = multiprocessing.get_context("spawn")
        inbox, outbox = context.Queue(), context.Queue()
        process = context.Process(target=child, args=(inbox, outbox))
        process.start()
        tensor = torch.arange(100_000, dtype=torch.float32, device="cuda") / 3
        inbox.put(tensor)
        for _ in range(2):
            name, value = outbox.get(timeout=60)
            report.exact(name, value)
        report.exact("seen_by_owner", digest(tensor))
        inbox.put(None)
        process.join(60)
        report.exact("exit_code", process.exitcode)
    report.finish()


if __name__ == "__main__":
    main()
