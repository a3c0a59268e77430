#!/usr/bin/env python3
"""Trains train_gru's model again, in numpy and float64, from the same start weights and batches, and compares the losses.

    train_gru --losses losses.txt
    python3 reference.py losses.txt        # exit status 1 when the final losses differ by more than 1 %
    python3 reference.py --check-torch     # this file's own gradient against PyTorch's autograd

Shares no code with train_gru: settings come from the losses file, chance from splitmix64, written here anew.
"""

import argparse
import sys

import numpy as np

ALLOWED = 0.01
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Random:
    """splitmix64, many values at a time."""

    def __init__(self, seed):
        self.state = seed

    def next(self, count):
        golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
        z = np.uint64(self.state) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(golden)
        self.state = (self.state + count * golden) & mask
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    def uniform(self, count):
        return (self.next(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def start(random, vocabulary, embedding, hidden):
    """The start weights, in the order in which they are drawn; rounded to float32, as train_gru holds them."""
    bound = 1 / np.sqrt(hidden)
    shapes = {
        "table": ((vocabulary, embedding), 1.0),
        "w": ((3 * hidden, embedding), bound),
        "r": ((3 * hidden, hidden), bound),
        "b": ((6 * hidden,), bound),
        "v": ((vocabulary, hidden), bound),
        "c": ((vocabulary,), bound),
    }
    draw = lambda shape, bound: (
        (bound * (2 * random.uniform(int(np.prod(shape))) - 1)).astype(np.float32).astype(np.float64)
    )
    return {name: draw(shape, bound).reshape(shape) for name, (shape, bound) in shapes.items()}


def logistic(x):
    return 1 / (1 + np.exp(-x))


def loss_and_gradient(p, tokens, targets):
    """tokens, targets: [steps, windows]. Gates in the order z, r, candidate; the reset gate acts after the recurrent product."""
    steps, windows = tokens.shape
    hidden = p["r"].shape[1]
    wb, rb = p["b"][: 3 * hidden], p["b"][3 * hidden :]
    x = p["table"][tokens]
    from_input = x @ p["w"].T + wb
    h = np.zeros((windows, hidden))
    before, gates, states = [], [], []
    for s in range(steps):
        from_state = h @ p["r"].T + rb
        z, r = (
            logistic(from_input[s][:, g * hidden : (g + 1) * hidden] + from_state[:, g * hidden : (g + 1) * hidden])
            for g in (0, 1)
        )
        recurrent = from_state[:, 2 * hidden :]
        candidate = np.tanh(from_input[s][:, 2 * hidden :] + r * recurrent)
        before.append(h)
        h = (1 - z) * candidate + z * h
        gates.append((z, r, candidate, recurrent))
        states.append(h)
    states = np.stack(states)

    logits = states @ p["v"].T + p["c"]
    logits -= logits.max(axis=-1, keepdims=True)
    exps = np.exp(logits)
    total = exps.sum(axis=-1, keepdims=True)
    at = np.arange(steps)[:, None], np.arange(windows)[None, :], targets
    loss = np.mean(np.log(total[..., 0]) - logits[at])
    dlogits = exps / total
    dlogits[at] -= 1
    dlogits /= tokens.size

    g = {name: np.zeros_like(value) for name, value in p.items()}
    g["v"] = np.einsum("snv,snh->vh", dlogits, states, optimize=True)
    g["c"] = dlogits.sum(axis=(0, 1))
    dstates = dlogits @ p["v"]
    dh = np.zeros((windows, hidden))
    dinput, dstate = np.zeros_like(from_input), np.zeros_like(from_input)
    for s in reversed(range(steps)):
        z, r, candidate, recurrent = gates[s]
        dh = dh + dstates[s]
        dz = dh * (before[s] - candidate) * z * (1 - z)
        dcandidate = dh * (1 - z) * (1 - candidate**2)
        dr = dcandidate * recurrent * r * (1 - r)
        dinput[s] = np.concatenate([dz, dr, dcandidate], axis=1)
        dstate[s] = np.concatenate([dz, dr, dcandidate * r], axis=1)
        dh = dh * z + dstate[s] @ p["r"]
    g["w"] = np.einsum("sng,sne->ge", dinput, x, optimize=True)
    g["r"] = np.einsum("sng,snh->gh", dstate, np.stack(before), optimize=True)
    g["b"] = np.concatenate([dinput.sum(axis=(0, 1)), dstate.sum(axis=(0, 1))])
    np.add.at(g["table"], tokens, dinput @ p["w"])
    return loss, g


def read_losses(path):
    settings, losses = {}, []
    for line in open(path):
        if line.startswith("# "):
            key, value = line[2:].rstrip("\n").split(" ", 1)
            settings[key] = value if key == "text" else float(value) if key == "rate" else int(value)
        else:
            losses.append(float(line))
    return settings, losses


def train(settings):
    text = np.frombuffer(open(settings["text"], "rb").read(), dtype=np.uint8)
    characters, tokens = np.unique(text, return_inverse=True)
    random = Random(settings["seed"])
    p = start(random, len(characters), settings["embedding"], settings["hidden"])
    mean = {name: np.zeros_like(value) for name, value in p.items()}
    square = {name: np.zeros_like(value) for name, value in p.items()}
    length, steps = settings["sequence"], settings["steps"]
    for step in range(steps):
        starts = (random.next(settings["batch"]) % np.uint64(len(tokens) - length)).astype(np.int64)
        places = starts[None, :] + np.arange(length)[:, None]
        loss, g = loss_and_gradient(p, tokens[places], tokens[places + 1])
        rate = settings["rate"] * (1 - step / steps)
        for name in p:
            mean[name] = BETA1 * mean[name] + (1 - BETA1) * g[name]
            square[name] = BETA2 * square[name] + (1 - BETA2) * g[name] ** 2
            corrected = square[name] / (1 - BETA2 ** (step + 1))
            p[name] -= rate * (mean[name] / (1 - BETA1 ** (step + 1))) / (np.sqrt(corrected) + EPSILON)
        yield loss


def compare(path):
    settings, theirs = read_losses(path)
    if len(theirs) != settings["steps"]:
        sys.exit(
            f"reference.py: {path} holds {len(theirs)} losses; it must hold {settings['steps']}: was the training interrupted?"
        )
    ours = []
    for loss in train(settings):
        ours.append(loss)
        if len(ours) == 1 or len(ours) * 20 // settings["steps"] != (len(ours) - 1) * 20 // settings["steps"]:
            print(
                f"step {len(ours)} of {settings['steps']}: reference {loss:.6f}, train_gru {theirs[len(ours) - 1]:.6f}",
                flush=True,
            )
    last = settings["averaged"]
    final, reference = np.mean(theirs[-last:]), np.mean(ours[-last:])
    print(
        f"mean of the last {min(last, len(ours))} steps: reference {reference:.6f}, train_gru {final:.6f}, ratio {final / reference:.6f}"
    )
    return abs(final / reference - 1) <= ALLOWED


def check_torch():
    import torch

    vocabulary, embedding, hidden, steps, windows = 11, 5, 7, 9, 4
    random = Random(1)
    p = start(random, vocabulary, embedding, hidden)
    tokens, targets = (
        (random.next(2 * steps * windows) % np.uint64(vocabulary)).astype(np.int64).reshape(2, steps, windows)
    )
    loss, g = loss_and_gradient(p, tokens, targets)

    t = {name: torch.tensor(value, requires_grad=True) for name, value in p.items()}
    order = lambda a: torch.cat(
        [a[hidden : 2 * hidden], a[:hidden], a[2 * hidden :]]
    )  # PyTorch's gates are r, z, candidate
    weights = {
        "weight_ih_l0": order(t["w"]),
        "weight_hh_l0": order(t["r"]),
        "bias_ih_l0": order(t["b"][: 3 * hidden]),
        "bias_hh_l0": order(t["b"][3 * hidden :]),
    }
    gru = torch.nn.GRU(embedding, hidden, dtype=torch.float64)
    states, _ = torch.func.functional_call(gru, weights, (t["table"][torch.from_numpy(tokens)],))
    logits = states @ t["v"].T + t["c"]
    wanted = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), torch.from_numpy(targets).reshape(-1))
    wanted.backward()
    errors = {"loss": abs(loss - wanted.item())} | {name: np.abs(g[name] - t[name].grad.numpy()).max() for name in p}
    for name, error in errors.items():
        print(f"{name}: largest difference from PyTorch {error:.1e}")
    return max(errors.values()) < 1e-12


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("losses", nargs="?", help="what `train_gru --losses FILE` wrote")
    parser.add_argument(
        "--check-torch", action="store_true", help="instead: this file's gradient against PyTorch's autograd"
    )
    arguments = parser.parse_args()
    if not arguments.check_torch and not arguments.losses:
        parser.error("give a losses file, or --check-torch")
    return 0 if (check_torch() if arguments.check_torch else compare(arguments.losses)) else 1


if __name__ == "__main__":
    sys.exit(main())
