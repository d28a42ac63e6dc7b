"""XGBoost grows the trees that it grows on the CPU. Features have few values, so both choose among the same cuts."""

import sys

import numpy as np
import xgboost

numbers = np.random.default_rng(0)


def check(name, got, wanted, tolerance):
    if not np.allclose(got, wanted, rtol=tolerance, atol=tolerance):
        sys.exit(f"FAIL {name}: {got}, on the CPU {wanted}")
    print(f"PASS {name}", flush=True)


def predictions(device, features, labels, **settings):
    data = xgboost.DMatrix(features, labels)
    settings |= {"device": device, "tree_method": "hist", "max_depth": 4}
    model = xgboost.train(settings, data, num_boost_round=8)
    if f'"device":"{device}' not in model.save_config().replace(" ", ""):
        sys.exit(f"FAIL {device} was asked for: {model.save_config()}")
    return model.predict(data)


features = numbers.integers(0, 20, (1500, 8)).astype(np.float32)
labels = features[:, 0] * 2 + np.sin(features[:, 1]) + features[:, 2] * features[:, 3] / 10
check("regression", predictions("cuda", features, labels), predictions("cpu", features, labels), 1e-4)

# Where the derivatives are no round numbers, the order of their sums decides between cuts that are nearly as good.
features[numbers.random(features.shape) < 0.1] = np.nan
is_large = labels > labels.mean()


def loss(device):
    chance = predictions(device, features, is_large, objective="binary:logistic")
    return -np.log(np.where(is_large, chance, 1 - chance)).mean()


check("classification with missing values", loss("cuda"), loss("cpu"), 1e-3)

classes = np.digitize(labels, np.quantile(labels, [0.3, 0.7]))


def loss_of_three(device):
    chances = predictions(device, features, classes, objective="multi:softprob", num_class=3)
    return -np.log(chances[np.arange(classes.size), classes]).mean()


check("three classes", loss_of_three("cuda"), loss_of_three("cpu"), 1e-3)
