"""Writes embedding_bag_grad__*.json, index_grad__*.json and sparse_gather_grad__*.json: what PyTorch's autograd gives in
float64. Needs torch; run from this folder."""

import json

import torch

SOURCE = f"PyTorch {torch.__version__} autograd, float64 (make_torch_sparse_cases.py)"


def tensor(t):
    return {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "data": t.detach().flatten().tolist()}


def ints(values):
    return tensor(torch.tensor(values, dtype=torch.int64))


def write(file, name, op, attributes, inputs, outputs):
    while inputs[-1] is None:
        inputs.pop()
    case = {
        "name": f"{file}/{name}",
        "op": op,
        "attributes": attributes,
        "inputs": inputs,
        "outputs": outputs,
        "tolerance": {"rtol": 1e-12, "atol": 1e-13},
        "source": SOURCE,
    }
    with open(f"{file}__{name}.json", "w") as out:
        json.dump(case, out, separators=(",", ":"))
        out.write("\n")


def bag(name, mode, *, offsets=(0, 3, 3, 8), count=12, rows=9, columns=5, weights=False, dtype=torch.int64, **options):
    torch.manual_seed(len(name))
    offsets = torch.tensor([*offsets, count] if options.get("include_last_offset") else offsets, dtype=dtype)
    indices = torch.randint(0, rows, (count,), dtype=dtype)
    table = torch.randn(rows, columns, dtype=torch.float64, requires_grad=True)
    psw = torch.randn(count, dtype=torch.float64) if weights else None
    full, _, _, chosen = torch.embedding_bag(
        table,
        indices,
        offsets,
        options.get("scale_grad_by_freq", False),
        ["sum", "mean", "max"].index(mode),
        False,
        psw,
        options.get("include_last_offset", False),
        options.get("padding_idx"),
    )
    up = torch.randn_like(full)
    full.backward(up)
    attributes = {"mode": mode, **{key: int(value) for key, value in options.items()}}
    write(
        "embedding_bag_grad",
        name,
        "EmbeddingBagGrad",
        attributes,
        [
            ints(table.shape),
            tensor(indices),
            tensor(offsets),
            tensor(up),
            tensor(psw) if weights else None,
            tensor(chosen) if mode == "max" else None,
        ],
        [tensor(table.grad)],
    )


def index(name, shape, axes, shapes, dtype=torch.int64):
    torch.manual_seed(len(name))
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    indices = [torch.randint(-shape[a], shape[a], s, dtype=dtype) for a, s in zip(axes, shapes)]
    where = [slice(None)] * len(shape)
    for a, i in zip(axes, indices):
        where[a] = i.long()
    y = x[tuple(where)]
    up = torch.randn_like(y)
    y.backward(up)
    attributes = {} if axes == list(range(len(axes))) else {"axes": axes}
    write(
        "index_grad", name, "IndexGrad", attributes, [ints(shape), tensor(up), *map(tensor, indices)], [tensor(x.grad)]
    )


def sparse(name, shape, index_shape, padding=None):
    torch.manual_seed(len(name))
    table = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    indices = torch.randint(0, shape[0], index_shape)
    y = torch.nn.functional.embedding(indices, table, padding_idx=padding, sparse=True)
    up = torch.randn_like(y)
    y.backward(up)
    grad = table.grad.coalesce()
    attributes = {} if padding is None else {"padding_idx": padding}
    write(
        "sparse_gather_grad",
        name,
        "SparseGatherGrad",
        attributes,
        [ints(shape), tensor(indices), tensor(up)],
        [tensor(grad.indices()[0]), tensor(grad.values())],
    )


bag("sum", "sum")
bag("mean", "mean", dtype=torch.int32)
bag("max", "max")
bag("weights", "sum", weights=True, padding_idx=2)
bag("mean_padding", "mean", padding_idx=-3, include_last_offset=True)
bag("max_padding", "max", padding_idx=1, offsets=(0, 1, 2, 3, 4), count=9, rows=3)
bag("by_frequency", "sum", scale_grad_by_freq=True, rows=4)
bag("mean_by_frequency", "mean", scale_grad_by_freq=True, rows=4, padding_idx=0)
bag("no_bags", "sum", offsets=(), count=0)
bag("empty_bags", "mean", offsets=(0, 0, 0), count=0)
index("two", [4, 5, 3], [0, 1], [(7,), (7,)])
index("elements", [4, 5], [0, 1], [(3, 1), (4,)], torch.int32)
index("apart", [4, 3, 5], [0, 2], [(2, 1), (3,)])
index("inner", [2, 4, 5, 3], [1, 2], [(6,), (1,)])
index("last", [3, 4, 5], [1, 2], [(2, 3), (3,)])
index("one", [6, 3], [0], [(4, 2)])
index("three", [3, 4, 5], [0, 1, 2], [(9,), (9,), (9,)])
index("no_indices", [3, 4], [0, 1], [(0,), (0,)])
sparse("embedding", [50, 4], (3, 5))
sparse("padding", [6, 4], (12,), padding=2)
sparse("nothing", [6, 4], (0,))
