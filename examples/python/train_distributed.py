#!/usr/bin/env python3
"""Trains with PyTorch's DistributedDataParallel over gloo, gradients by gradloom.

Alone, it starts the processes on this machine, twice, and one process with the same batches, and compares:
  python3 examples/python/train_distributed.py --processes 2
On several machines, torchrun starts it on each; --nnodes 1 --standalone: on this one:
  torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 train_distributed.py
"""

import argparse
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from models import TASKS, digest, start, train
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

import gradloom.torch

Trained = dict[str, Any]  # by task: its losses, and a digest of the parameters' bits


def train_tasks(tasks: list[str], steps: int, rank: int, processes: int) -> Trained:
    """The mean over all processes of each step's loss is that of the whole batch: all have equal shares of it."""
    trained: Trained = {}
    for name in tasks:
        task = TASKS[name]()
        model = start(task, gradloom.torch.nn)
        parallel = DistributedDataParallel(model) if processes > 1 else model
        losses = torch.stack(list(train(task, parallel, steps, rank, processes)))
        if processes > 1:
            dist.all_reduce(losses)
            losses /= processes
        trained[name] = losses.tolist(), digest(model)
    return trained


def check_shares(tasks: list[str], processes: int) -> None:
    for name in tasks:
        if (examples := TASKS[name]().examples) % processes:
            sys.exit(f"train_distributed: {processes} processes cannot share the {examples} examples of {name} equally")


def process(rank: int, options: argparse.Namespace, port: int, result: str) -> None:
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=options.processes)
    trained = train_tasks(options.task, options.steps, rank, options.processes)
    dist.destroy_process_group()
    if rank == 0:
        torch.save(trained, result)


def together(options: argparse.Namespace) -> Trained:
    """Trains with processes of this machine, new ones each time."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        result = str(Path(folder, "trained"))
        # Forked: this process has no threads yet, and children need not import everything.
        start_processes(process, (options, port, result), options.processes, start_method="fork")
        trained: Trained = torch.load(result)
    return trained


def compare(options: argparse.Namespace) -> bool:
    first, second = together(options), together(options)
    torch.set_num_threads(options.threads)
    alone = train_tasks(options.task, options.steps, 0, 1)
    fine = True
    print(f"{'task':<12}{'first loss':>12}{'last loss':>12}{'of one process':>16}{'differ by':>12}  two runs")
    for name in options.task:
        (losses, bits), (losses_again, bits_again), (wanted, _) = first[name], second[name], alone[name]
        apart = max(abs(loss - want) / want for loss, want in zip(losses, wanted, strict=True))
        same = losses == losses_again and bits == bits_again
        fine = fine and same and apart <= options.within
        print(
            f"{name:<12}{losses[0]:>12.6f}{losses[-1]:>12.6f}{wanted[-1]:>16.6f}{apart:>12.1e}  "
            f"{'the same bits' if same else 'DIFFERENT BITS'}{'' if apart <= options.within else ', LOSSES DIFFER'}"
        )
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2, help="on this machine; torchrun says itself how many")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument(
        "--within", type=float, default=1e-4, help="how far losses may be from one process's: rounding grows with steps"
    )
    options = parser.parse_args()
    if "LOCAL_RANK" not in os.environ:
        check_shares(options.task, options.processes)
        return 0 if compare(options) else 1
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    check_shares(options.task, dist.get_world_size())
    rank = dist.get_rank()
    for name, (losses, bits) in train_tasks(options.task, options.steps, rank, dist.get_world_size()).items():
        if rank == 0:
            print(f"{name}: loss {losses[0]:.6f}, after {len(losses)} steps {losses[-1]:.6f}; parameters {bits[:16]}")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
