"""A small CNN on digits that are drawn at random, reading the loss back at each step as beginners' scripts do."""

from report import Report, deterministic_torch, digest_all, require

require("mnist", "torch")
torch = deterministic_torch()
report = Report("mnist")
nn, functional = torch.nn, torch.nn.functional

model = nn.Sequential(
    nn.Conv2d(1, 32, 3),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Dropout(0.25),
    nn.Flatten(),
    nn.Linear(9216, 128),
    nn.ReLU(),
    nn.Dropout(0.5),
    nn.Linear(128, 10),
)
generator = torch.Generator().manual_seed(1)
steps = report.count(60, speed=300)
images = torch.randn(steps, 64, 1, 28, 28, generator=generator)
labels = torch.randint(0, 10, (steps, 64), generator=generator)
report.gate()
model = model.cuda()
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
losses, index = [], 0


def step():
    global index
    image, label = images[index % steps].cuda(), labels[index % steps].cuda()
    index += 1
    optimizer.zero_grad()
    loss = functional.nll_loss(functional.log_softmax(model(image), dim=1), label)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())


with report.section("train"):
    report.steady_ms = report.time(step, steps, torch.cuda.synchronize)
    report.finish_if_speed()
    report.close("losses", losses, rtol=1e-3, atol=1e-3)
    report.exact("losses_exact", [loss.hex() for loss in losses])
    report.exact("weights", digest_all(model.parameters()))

report.finish()
