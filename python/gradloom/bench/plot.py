"""Time against the roof as a picture: a row a case, one mark each for gradloom and its peers."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gradloom.bench.race import Result

# Colours that differ for every kind of sight, and other marks besides.
_LOOKS = {"gradloom": ("#0072B2", "o", 56), "PyTorch": ("#D55E00", "D", 34), "JAX": ("#CC79A7", "^", 38), "numpy": ("#7F7F7F", "s", 32)}


def _times(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def draw(results: Sequence[Result], machine: str, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ops = [(op, list(of_op)) for op, of_op in groupby(results, lambda result: result.case.op)]
    gap = 0.4
    rows, titles, y = [], [], 0.0
    for op, of_op in ops:
        titles.append((y, op))
        for result in of_op:
            y += 1
            rows.append((y, result))
        y += 1 + gap
    height = 1.5 + 0.28 * (y + 1)
    figure, axes = pyplot.subplots(figsize=(10, height))
    largest = 1.0
    for y, result in rows:
        ratios = {}
        for who in result.seconds:
            if (seconds := result.median(who)) is not None:
                ratios[who] = seconds / result.roof
        axes.plot([min(*ratios.values(), 1), max(ratios.values())], [y, y], color="#DDDDDD", lw=1.2, zorder=1)
        for who, ratio in ratios.items():
            color, mark, size = _LOOKS[who]
            axes.scatter(ratio, y, s=size, c=color, marker=mark, zorder=3, linewidths=0)
        largest = max(largest, *ratios.values())
    axes.axvline(1, color="black", lw=1, zorder=2)
    axes.set_xscale("log")
    left = min(0.8, 0.9 * min((result.median("gradloom") or 0) / result.roof for _, result in rows))
    axes.set_xlim(left, largest * 1.25)
    axes.set_ylim(y + 0.8, -0.6)
    axes.set_yticks([y for y, _ in rows], [result.case.name for _, result in rows])
    axes.tick_params(axis="y", length=0)
    beside: Any = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8, "color": "#444444"}
    for y, result in rows:
        ours = result.median("gradloom") or 0.0
        axes.text(1.01, y, f"{_times(ours)}, roof {_times(result.roof)}", **beside)
    axes.text(1.01, 0, "gradloom's time", **beside)
    for y, op in titles:
        axes.text(-0.19, y, op, transform=axes.get_yaxis_transform(), va="center", fontsize=9, fontweight="bold")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="#EEEEEE", zorder=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    label = "time as a multiple of the roof: all compulsory bytes at memory speed (GRUGrad: multiply-add peak)"
    axes.set_xlabel(label, fontsize=9)
    shown = [who for who in _LOOKS if any(who in result.seconds for _, result in rows)]
    for who in shown:
        color, mark, size = _LOOKS[who]
        axes.scatter([], [], s=size, c=color, marker=mark, linewidths=0, label=who)
    axes.plot([], [], color="black", lw=1, label="roof")
    top = 0.62 / height
    title = "Gradient ops against this machine's roof"
    figure.suptitle(title, x=0.02, y=1 - 0.12 / height, ha="left", va="top", fontsize=13)
    figure.text(0.02, 1 - 0.42 / height, machine, ha="left", va="top", fontsize=8.5, color="#444444")
    figure.legend(loc="upper right", ncols=len(shown) + 1, frameon=False, fontsize=9)
    figure.subplots_adjust(left=0.15, right=0.83, top=1 - top - 0.12 / height, bottom=0.62 / height)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
