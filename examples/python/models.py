"""What the examples here train: two models, and their data from the licences that Debian has."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

LICENCES = Path("/usr/share/common-licenses")

Batch = tuple[Tensor, Tensor]


class CharacterModel(torch.nn.Module):
    """What character comes next: embedding, GRU, output layer. `nn` is torch.nn or gradloom.torch.nn."""

    def __init__(self, nn: Any, vocabulary: int, width: int = 64, hidden: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, hidden)
        self.output = torch.nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:  # [steps, windows]
        states, _ = self.gru(self.embedding(tokens))
        scores: Tensor = self.output(states)
        return scores.flatten(0, 1)


class Classifier(torch.nn.Module):
    """Which licence a piece of text is from: the mean of the embeddings of its words and pairs of words."""

    def __init__(self, nn: Any, classes: int, rows: int, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(rows, width)
        self.output = torch.nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:  # [pieces, tokens of a piece]
        scores: Tensor = self.output(self.embedding(tokens).mean(1))
        return scores


class Characters:
    """Windows from random places of a text. Batch `step` is the same in every process."""

    def __init__(self, path: Path = LICENCES / "GPL-3", steps: int = 64, windows: int = 32) -> None:
        data = path.read_bytes()
        self.letters = sorted(set(data))
        place = {letter: k for k, letter in enumerate(self.letters)}
        self.tokens = torch.tensor([place[letter] for letter in data])
        self.steps, self.windows = steps, windows

    def batch(self, step: int) -> Batch:
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(self.tokens) - self.steps, (self.windows,), generator=generator)
        places = torch.arange(self.steps)[:, None] + starts
        return self.tokens[places], self.tokens[places + 1]

    def share(self, batch: Batch, rank: int, processes: int) -> Batch:
        """The windows of one process."""
        tokens, targets = batch
        return tokens[:, rank::processes].contiguous(), targets[:, rank::processes].contiguous()

    @property
    def examples(self) -> int:
        """In a batch."""
        return self.windows

    def model(self, nn: Any) -> torch.nn.Module:
        return CharacterModel(nn, len(self.letters))

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)


class Pieces:
    """Pieces of the licences, each word and each pair of neighbours a row of a table by its hash."""

    def __init__(self, folder: Path = LICENCES, rows: int = 50_000, pieces: int = 64, words: int = 32) -> None:
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
        self.licences: list[Tensor] = []
        for path in files:
            text = path.read_text(errors="replace").split()
            if len(text) > 2 * words:
                pairs = (" ".join(pair) for pair in zip(text, text[1:], strict=False))
                both = zip(text, pairs, strict=False)
                hashes = [[zlib.crc32(part.encode()) % rows for part in parts] for parts in both]
                self.licences.append(torch.tensor(hashes))
        self.rows, self.pieces, self.words = rows, pieces, words

    def batch(self, step: int) -> Batch:
        generator = torch.Generator().manual_seed(step)
        targets = torch.randint(len(self.licences), (self.pieces,), generator=generator)
        tokens = []
        for target in targets.tolist():
            licence = self.licences[target]
            start = int(torch.randint(len(licence) - self.words, (1,), generator=generator))
            tokens.append(licence[start : start + self.words].flatten())
        return torch.stack(tokens), targets

    def share(self, batch: Batch, rank: int, processes: int) -> Batch:
        tokens, targets = batch
        return tokens[rank::processes].contiguous(), targets[rank::processes].contiguous()

    @property
    def examples(self) -> int:
        return self.pieces

    def model(self, nn: Any) -> torch.nn.Module:
        return Classifier(nn, len(self.licences), self.rows)

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=10.0)


TASKS: dict[str, Callable[[], Characters | Pieces]] = {"characters": Characters, "licences": Pieces}


def start(task: Characters | Pieces, nn: Any) -> torch.nn.Module:
    """A new model: the same parameters in every process, with either `nn`."""
    torch.manual_seed(1)
    return task.model(nn)


def train(
    task: Characters | Pieces, model: torch.nn.Module, steps: int, rank: int = 0, processes: int = 1
) -> Iterator[Tensor]:
    """The loss of each step, as this process has it, once the step is done."""
    optimizer = task.optimizer(model)
    for step in range(steps):
        tokens, targets = task.share(task.batch(step), rank, processes)
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens), targets.flatten())
        torch.autograd.backward(loss)
        optimizer.step()
        yield loss.detach()


def digest(model: torch.nn.Module) -> str:
    """Of the parameters' bits."""
    bits = hashlib.sha256()
    for parameter in model.parameters():
        bits.update(parameter.detach().view(torch.uint8).numpy().tobytes())
    return bits.hexdigest()
