"""Training fed by a DataLoader with four worker processes and pinned memory."""

import time

from report import Report, deterministic_torch, digest, require

torchvision = require("dataloader", "torch", "torchvision")[1]
torch = deterministic_torch()

BATCH = 64


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count):
        self.pool = torch.randn(16, 3, 160, 160, generator=torch.Generator().manual_seed(2))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.pool[index % 16] + index * 1e-4, index % 100


def main():
    report = Report("dataloader")
    with report.section("train"):
        steps = report.count(12, speed=40)
        loader = torch.utils.data.DataLoader(
            Pictures(BATCH * steps), batch_size=BATCH, num_workers=4, pin_memory=True, persistent_workers=True
        )
        model = torchvision.models.resnet18(num_classes=100)
        report.gate()
        model = model.cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses, epoch_ms = [], []
        for _ in report.rounds(report.count(3, speed=4, quick=2)):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for images, labels in loader:
                pinned = images.is_pinned()
                images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = torch.nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            torch.cuda.synchronize()
            epoch_ms.append((time.perf_counter() - started) * 1e3 / steps)
        # The first epoch starts the workers and chooses algorithms.
        rest = sorted(epoch_ms[1:])
        report.steady_ms = rest[len(rest) // 2]
        # The loader's processes end here, not at some time during the next program's turn.
        del loader
        report.finish_if_speed()
        report.exact("pinned", pinned)
        report.close("losses", torch.stack(losses[:4]), rtol=2e-2)
        report.exact("losses_exact", digest(torch.stack(losses)))
    report.finish()


if __name__ == "__main__":
    main()
