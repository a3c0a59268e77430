#!/usr/bin/env python3
"""PyTorch's times of the benchmark cases on a GPU: JSON lines of case, dtype, name and microseconds a call, several ops a case. Used by gpu_check."""

import json
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("gpu_torch: PyTorch is not installed for this Python")
if not torch.cuda.is_available():
    sys.exit("gpu_torch: this PyTorch sees no GPU")

device = "cuda"
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


def report(case, name, call, seconds=0.1, dtype=torch.float32):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = int(min(5000, max(5, seconds / 3 / max(time.perf_counter() - begin, 1e-6))))
    rounds = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) / count)
    named = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
    print(
        json.dumps(
            {"case": case, "dtype": named, "name": f"torch {torch.__version__} {name}", "us": sorted(rounds)[1] * 1e6}
        ),
        flush=True,
    )


def scatter(case, data, axis, indices, all_equal=False):
    index = (
        torch.full(indices, data[axis] // 2, device=device)
        if all_equal
        else torch.randint(data[axis], indices, device=device)
    )
    dy = torch.randn(indices, device=device)
    report(case, "zeros + scatter_add", lambda: torch.zeros(data, device=device).scatter_add_(axis, index, dy))


def zipf(rows, count):
    ranks = torch.arange(1, rows + 1, dtype=torch.float64)
    index = torch.multinomial(ranks.pow(-1.2), count, replacement=True)
    return torch.randperm(rows)[index].to(device)


def gather(case, rows, width, index):
    for dtype in torch.float32, torch.bfloat16:
        dy = torch.randn(index.numel(), width, device=device).to(dtype)
        report(
            case,
            "zeros + index_add",
            lambda: torch.zeros(rows, width, device=device, dtype=dtype).index_add_(0, index, dy),
            dtype=dtype,
        )
        report(
            case,
            "embedding_dense_backward",
            lambda: torch.ops.aten.embedding_dense_backward(dy, index, rows, -1, False),
            dtype=dtype,
        )


def slice_backward(case, shape, dim, start, end, step):
    shape = list(shape)
    extent = len(range(start, end, step))
    dy = torch.randn(shape[:dim] + [extent] + shape[dim + 1 :], device=device)
    report(case, "slice_backward", lambda: torch.ops.aten.slice_backward(dy, shape, dim, start, end, step))


def step2():
    dy = torch.randn(4096, 4096, device=device)

    def call():
        rows = torch.ops.aten.slice_backward(dy, [4096, 8192], 1, 0, 8192, 2)
        return torch.ops.aten.slice_backward(rows, [8192, 8192], 0, 0, 8192, 2)

    def assign():
        dx = torch.zeros(8192, 8192, device=device)
        dx[::2, ::2] = dy
        return dx

    report("sl_step2", "slice_backward twice", call)
    report("sl_step2", "zeros + assignment", assign)


def flipped(case, shape, dim, step):
    places = [slice(None)] * len(shape)
    places[dim] = slice((shape[dim] - 1) % step, None, step)
    dims = list(shape)
    dims[dim] = len(range((shape[dim] - 1) % step, shape[dim], step))
    dy = torch.randn(dims, device=device)

    def call():
        dx = torch.zeros(shape, device=device)
        dx[tuple(places)] = dy.flip(dim)
        return dx

    report(case, "zeros + flip + assignment", call)


def total(case, to):
    dy = torch.randn(64, 512, 768, device=device)
    report(case, "sum_to_size", lambda: dy.sum_to_size(to))


def gru(case, steps, batch, inputs, hidden):
    net = torch.nn.GRU(inputs, hidden, device=device)
    x = torch.randn(steps, batch, inputs, device=device, requires_grad=True)
    h0 = torch.randn(1, batch, hidden, device=device, requires_grad=True)
    y, _ = net(x, h0)
    dy = torch.randn_like(y)
    leaves = [x, h0, *net.parameters()]
    report(case, "GRU backward (cuDNN)", lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True), 0.3)


scatter("ge_ax0", [4096, 4096], 0, [4096, 4096])
scatter("ge_ax1", [4096, 4096], 1, [4096, 4096])
scatter("ge_ax0_one", [4096, 4096], 0, [4096, 4096], all_equal=True)
scatter("ge_ax1_one", [4096, 4096], 1, [4096, 4096], all_equal=True)
scatter("ge_3d", [64, 1024, 256], 1, [64, 128, 256])
scatter("ge_1d", [1 << 24], 0, [1 << 22])
gather("gg_uni", 50000, 768, torch.randint(50000, (4096,), device=device))
gather("gg_zipf", 50000, 768, zipf(50000, 4096))
gather("gg_one", 50000, 768, torch.full((4096,), 25000, device=device))
gather("gg_1m", 1000000, 64, torch.randint(1000000, (65536,), device=device))
gather("gg_1m_zipf", 1000000, 64, zipf(1000000, 65536))
gather("gg_32k", 32000, 4096, zipf(32000, 16384))
slice_backward("sl_mid", (64, 512, 768), 1, 1, 511, 1)
slice_backward("sl_inner", (64, 512, 768), 2, 64, 128, 1)
step2()
flipped("sl_negrow", (64, 512, 768), 1, 1)
flipped("sl_neginner", (4096, 4096), 1, 2)
total("bg_768", (768,))
total("bg_row", (64, 1, 768))
total("bg_col", (64, 512, 1))
total("bg_mid", (1, 512, 1))
gru("gru_a", 50, 32, 128, 256)
gru("gru_b", 128, 64, 512, 512)
gru("gru_c", 20, 1, 64, 128)
