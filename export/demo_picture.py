"""The demo's picture: the loss curve, the held-out accuracy, and the digits that were misread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..stage.primitive import Array
from ._lazy import matplotlib_figure

_MOST_SHOWN = 24


def draw(path: Path, losses: Sequence[float], accuracies: Sequence[float], images: Array, labels: Array, predicted: Array) -> None:
    """Write a PNG: on the left loss by step and accuracy by epoch, on the right up to 24 misread images with their true digits."""
    figure = matplotlib_figure.Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    _curves(left, losses, accuracies)
    _misread(right, images, labels, predicted)
    figure.savefig(path, dpi=120, format="png")


def _curves(figure: Any, losses: Sequence[float], accuracies: Sequence[float]) -> None:
    epochs = np.arange(1, len(accuracies) + 1)
    steps = np.arange(1, len(losses) + 1) * (len(accuracies) / len(losses))
    loss_axes = figure.subplots()
    loss_axes.plot(steps, losses, color="tab:blue", alpha=0.3, linewidth=0.6)
    loss_axes.plot(epochs, [np.mean(part) for part in np.array_split(losses, len(accuracies))], color="tab:blue", label="training loss")
    loss_axes.set(xlabel="epoch", ylabel="loss", yscale="log", title="Training")
    accuracy_axes = loss_axes.twinx()
    accuracy_axes.plot(epochs, np.multiply(accuracies, 100), color="tab:orange", label="held-out accuracy")
    accuracy_axes.set(ylabel="held-out accuracy in %", ylim=(90, 100))
    lines = [*loss_axes.get_lines()[1:], *accuracy_axes.get_lines()]
    loss_axes.legend(lines, [line.get_label() for line in lines], loc="center right")


def _misread(figure: Any, images: Array, labels: Array, predicted: Array) -> None:
    wrong = np.flatnonzero(labels != predicted)
    figure.suptitle(f"{len(wrong)} of {len(labels)} held-out digits misread")
    if not len(wrong):
        return
    shown = wrong[:_MOST_SHOWN]
    columns = math.ceil(math.sqrt(1.5 * len(shown)))
    grid = figure.subplots(math.ceil(len(shown) / columns), columns, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, i in zip(grid, shown, strict=False):
        axes.imshow(images[i].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes.set_title(f"read {predicted[i]}, is {labels[i]}", fontsize=9)
