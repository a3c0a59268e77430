"""Writes gru_*__torch_*.json: what PyTorch's nn.GRU (linear_before_reset = 1) and its autograd give in float64, for directions and sequence lengths that
ORT's training kernels refuse. Needs torch; run from this folder."""

import json

import torch

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 3
TO_ONNX = [1, 0, 2]  # torch keeps the gates r, z, n; ONNX z, r, h


def gates(t):  # [3H, ...] between the two orders
    return torch.cat([t.reshape(3, HIDDEN, *t.shape[1:])[g] for g in TO_ONNX])


def tensor(t):
    return {
        "dtype": "int32" if t.dtype == torch.int32 else "float64",
        "shape": list(t.shape),
        "data": t.detach().flatten().tolist(),
    }


def make(direction, lens):
    torch.manual_seed(len(direction) + (1 if lens else 0))
    gru = torch.nn.GRU(INPUTS, HIDDEN, bidirectional=True).double()
    for p in gru.parameters():
        torch.nn.init.uniform_(p, -0.9, 0.9)
    used = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[direction]
    names = ["", "_reverse"]
    x = torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64, requires_grad=True)
    h0 = torch.randn(2, BATCH, HIDDEN, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor(lens or [STEPS] * BATCH)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    packed_all, last = gru(packed, h0)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(packed_all, total_length=STEPS)
    states = padded.reshape(STEPS, BATCH, 2, HIDDEN).permute(0, 2, 1, 3)[:, used]
    last = last[used]
    up_all, up_last = torch.randn_like(states), torch.randn_like(last)
    ((states * up_all).sum() + (last * up_last).sum()).backward()

    def stack(kind, grad=False):
        parts = [getattr(gru, kind + "_l0" + names[d]) for d in used]
        return torch.stack([gates(p.grad if grad else p) for p in parts])

    w, r = stack("weight_ih"), stack("weight_hh")
    b = torch.cat([stack("bias_ih"), stack("bias_hh")], 1)
    zrh = torch.zeros(STEPS, len(used), BATCH, 3 * HIDDEN, dtype=torch.float64)
    for i, d in enumerate(used):
        for n in range(BATCH):
            h = h0[d, n]
            for step in range(lengths[n]):
                p = lengths[n] - 1 - step if d == 1 else step
                wx = w[i] @ x[p, n] + b[i, : 3 * HIDDEN]
                rh = r[i] @ h + b[i, 3 * HIDDEN :]
                z, g = torch.sigmoid(wx + rh)[: 2 * HIDDEN].split(HIDDEN)
                c = torch.tanh(wx[2 * HIDDEN :] + g * rh[2 * HIDDEN :])
                zrh[p, i, n] = torch.cat([z, g, c])
                h = states[p, i, n]
    inputs = [
        tensor(x),
        tensor(w),
        tensor(r),
        tensor(b),
        tensor(torch.tensor(lens, dtype=torch.int32)) if lens else None,
        tensor(h0[used]),
    ]
    head = {
        "attributes": {"hidden_size": HIDDEN, "linear_before_reset": 1, "direction": direction},
        "tolerance": {"rtol": 1e-10, "atol": 1e-12},
        "source": f"PyTorch {torch.__version__} nn.GRU and autograd, float64 (make_torch_cases.py)",
    }
    name = f"torch_{direction}" + ("_lens" if lens else "")
    grads = [
        x.grad,
        stack("weight_ih", True),
        stack("weight_hh", True),
        torch.cat([stack("bias_ih", True), stack("bias_hh", True)], 1),
        h0.grad[used],
    ]
    write("gru_training", name, head, "GRUTraining", inputs, [tensor(states), tensor(last), tensor(zrh)])
    write(
        "gru_grad",
        name,
        head,
        "GRUGrad",
        inputs + [tensor(states), tensor(zrh), tensor(up_all), tensor(up_last)],
        [tensor(g) for g in grads],
    )


def write(prefix, name, head, op, inputs, outputs):
    with open(f"{prefix}__{name}.json", "w") as file:
        json.dump(
            {"name": f"{prefix}/{name}", "op": op, **head, "inputs": inputs, "outputs": outputs},
            file,
            separators=(",", ":"),
        )


for direction, lens in [
    ("forward", [5, 2, 3]),
    ("reverse", None),
    ("reverse", [4, 5, 1]),
    ("bidirectional", None),
    ("bidirectional", [1, 5, 3]),
]:
    make(direction, lens)
