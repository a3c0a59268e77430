# numpy and PyTorch beside the demo's calls. Started by `gradloom demo` with the number of threads: says on a line which
# versions are there, then answers each call, a line of JSON, with their milliseconds. null: not there, or no such call.
import importlib, json, os, sys, time

threads = sys.argv[1]
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = threads


def module(name):
    try:
        return importlib.import_module(name)
    except Exception:  # a broken installation is none
        return None


np, torch = module("numpy"), module("torch")
if torch:
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)


def ms(call, seconds):
    """The median of calls for so long, the first not counted; that one alone where it takes as long itself."""
    samples, begin = [], time.perf_counter()
    while not samples or (time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        call()
        samples.append(1000 * (time.perf_counter() - start))
    samples = sorted(samples[1:] or samples)
    return samples[len(samples) // 2]


def numpy_indices(c):
    given = c["indices"]
    if isinstance(given, list):
        return np.array(given, dtype=np.int64).reshape(c["indices_shape"])
    return np.random.default_rng(1).integers(0, given, c["indices_shape"])


def torch_indices(c):
    given = c["indices"]
    return torch.tensor(given).reshape(c["indices_shape"]) if isinstance(given, list) else torch.randint(given, c["indices_shape"])


def places(c):
    all_axes = [slice(None)] * len(c["output"])
    for axis, start, end, step in zip(c["axes"], c["starts"], c["ends"], c["steps"]):
        all_axes[axis] = slice(start, end, step)
    return tuple(all_axes)


def numpy_call(c):
    if c["op"].startswith("GRU"):
        return numpy_gru(c)
    dy = np.random.default_rng(2).standard_normal(c["values"], dtype=np.float32)
    if c["op"] == "BroadcastGrad":
        summed = tuple(d for d in range(dy.ndim) if ([1] * dy.ndim + c["output"])[-dy.ndim :][d] == 1)
        return lambda: dy.sum(axis=summed)
    if c["op"] == "silu_grad":
        x = np.random.default_rng(3).standard_normal(c["values"], dtype=np.float32)

        def silu():
            s = 1 / (1 + np.exp(-x))
            return dy * (s * (1 + x * (1 - s)))

        return silu
    if c["op"] == "SliceGrad":

        def assign():
            dx = np.zeros(c["output"], np.float32)
            dx[places(c)] = dy
            return dx

        return assign
    index = numpy_indices(c)
    if c["op"] == "GatherElementsGrad":
        where = list(np.ogrid[tuple(slice(n) for n in index.shape)])
        where[c["axis"]] = index
        index = tuple(where)

    def add():
        dx = np.zeros(c["output"], np.float32)
        np.add.at(dx, index, dy)
        return dx

    return add


def numpy_gru(c):
    steps, batch, inputs, hidden = c["sizes"]
    draw = lambda *dims: np.random.default_rng(4).standard_normal(dims, dtype=np.float32) / np.float32(hidden**0.5)
    x, w, r, b, dy = draw(steps, batch, inputs), draw(3 * hidden, inputs), draw(3 * hidden, hidden), draw(6 * hidden), draw(steps, batch, hidden)
    logistic = lambda v: 1 / (1 + np.exp(-v))
    gate = lambda a, g: a[..., g * hidden : (g + 1) * hidden]
    saved = []

    def forward():
        saved.clear()
        from_input = x @ w.T + b[: 3 * hidden]
        h = np.zeros((batch, hidden), np.float32)
        for s in range(steps):
            from_state = h @ r.T + b[3 * hidden :]
            z, reset = logistic(gate(from_input[s], 0) + gate(from_state, 0)), logistic(gate(from_input[s], 1) + gate(from_state, 1))
            candidate = np.tanh(gate(from_input[s], 2) + reset * gate(from_state, 2))
            saved.append((h, z, reset, candidate, gate(from_state, 2)))
            h = (1 - z) * candidate + z * h

    def backward():
        dinput, dstate = np.empty((2, steps, batch, 3 * hidden), np.float32)
        dh = np.zeros((batch, hidden), np.float32)
        for s in reversed(range(steps)):
            before, z, reset, candidate, recurrent = saved[s]
            dh = dh + dy[s]
            dz, dcandidate = dh * (before - candidate) * z * (1 - z), dh * (1 - z) * (1 - candidate**2)
            dreset = dcandidate * recurrent * reset * (1 - reset)
            dinput[s] = np.concatenate([dz, dreset, dcandidate], axis=1)
            dstate[s] = np.concatenate([dz, dreset, dcandidate * reset], axis=1)
            dh = dh * z + dstate[s] @ r
        rows = lambda a: a.reshape(steps * batch, -1)
        before = np.stack([kept[0] for kept in saved])
        return dinput @ w, rows(dinput).T @ rows(x), rows(dstate).T @ rows(before), dinput.sum(axis=(0, 1)), dstate.sum(axis=(0, 1)), dh

    forward()
    return forward if c["op"] == "GRUTraining" else backward


def torch_call(c):
    if c["op"].startswith("GRU"):
        steps, batch, inputs, hidden = c["sizes"]
        net = torch.nn.GRU(inputs, hidden)
        x, h0 = torch.randn(steps, batch, inputs, requires_grad=True), torch.randn(1, batch, hidden, requires_grad=True)
        if c["op"] == "GRUTraining":
            return lambda: net(x, h0)
        y, leaves = net(x, h0)[0], [x, h0, *net.parameters()]
        dy = torch.randn_like(y)
        return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)
    dy = torch.randn(c["values"])
    if c["op"] == "BroadcastGrad":
        return lambda: dy.sum_to_size(c["output"])
    if c["op"] == "silu_grad":
        x = torch.randn(c["values"])
        return lambda: torch.ops.aten.silu_backward(dy, x)
    if c["op"] == "SliceGrad":

        def assign():
            dx = torch.zeros(c["output"])
            dx[places(c)] = dy
            return dx

        return assign
    index = torch_indices(c)
    if c["op"] == "GatherElementsGrad":
        return lambda: torch.zeros(c["output"]).scatter_add_(c["axis"], index, dy)
    return lambda: torch.ops.aten.embedding_dense_backward(dy, index, c["output"][0], -1, False)


def answer(c):
    times = {}
    for name, there, make in ("numpy", np, numpy_call), ("torch", torch, torch_call):
        try:
            times[name] = ms(make(c), c["seconds"]) if there else None
        except Exception:  # an old version without the call, or not enough memory
            times[name] = None
    return times


print(json.dumps({name: getattr(there, "__version__", None) for name, there in (("numpy", np), ("torch", torch))}), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
