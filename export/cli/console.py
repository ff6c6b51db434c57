"""What all verbs of the command share: --json and --quiet, progress lines, and errors as exit codes."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from ...stage.errors import MissingRuleError, OnstageError, UnsupportedError
from ...stage.source import Source, is_user_code

FAILED: Final = 1
USAGE: Final = 2
UNSUPPORTED: Final = 3
_TEXT: Final = "Exit codes: 0 ok, 1 a check failed, 2 usage, 3 unsupported operation."


class StagingFailed(Exception):
    """The user's own code raised; `source` is its innermost line."""

    def __init__(self, message: str, source: Source | None) -> None:
        super().__init__(message)
        self.source = source


class Console:
    """Where a verb writes: results to standard output, progress and warnings to standard error."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.warnings: list[str] = []

    @contextmanager
    def phase(self, what: str) -> Generator[None]:
        """A progress line, on a terminal only: what is being done, then how long it took."""
        shown = not self.quiet and sys.stderr.isatty()
        start = time.perf_counter()
        if shown:
            click.echo(f"{what} ...", err=True, nl=False)
        try:
            yield
        except BaseException:
            if shown:
                click.echo(" failed", err=True)
            raise
        if shown:
            click.echo(f" {time.perf_counter() - start:.2f} s", err=True)

    def warn(self, message: str) -> None:
        """Said on standard error even when quiet: it may change what the result is worth."""
        self.warnings.append(message)
        click.echo(f"warning: {message}", err=True)

    def result(self, data: Mapping[str, Any], text: str, *, ok: bool = True) -> None:
        """The verb's outcome: an object for --json, else text unless quiet. Numbers that JSON does not know become text."""
        if self.as_json:
            content = {"ok": ok, **data, "warnings": self.warnings}
            click.echo(json.dumps(_plain(content), indent=2, allow_nan=False))
        elif text and not (self.quiet and ok):
            click.echo(text)

    def fail(self, error: BaseException, code: int, source: Source | None = None) -> None:
        message = getattr(error, "message", None) or str(error)
        if source is not None:
            message += f"\n  at {_describe(source)}"
        if self.as_json:
            place = {} if source is None else {"file": source.file, "line": source.line}
            described = {"type": type(error).__name__, "message": getattr(error, "message", None) or str(error), **place}
            click.echo(json.dumps({"ok": False, "exit_code": code, "error": described, "warnings": self.warnings}, indent=2))
        click.echo(f"error: {message}", err=True)


def verb(function: Callable[..., bool | None]) -> Callable[..., None]:
    """Give a verb --json and --quiet, and its errors their exit codes.

    The function gets a Console first; when it returns False a check failed.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors and warnings.")
    @functools.wraps(function)
    def command(as_json: bool, quiet: bool, **options: Any) -> None:
        console = Console(as_json=as_json, quiet=quiet)
        code = 0
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, category, *place, **more: console.warn(str(message))
            try:
                code = FAILED if function(console, **options) is False else 0
            except (UnsupportedError, MissingRuleError) as error:
                code = UNSUPPORTED
                console.fail(error, code, error.source)
            except OnstageError as error:
                code = FAILED
                console.fail(error, code, error.source)
            except StagingFailed as error:
                code = FAILED
                console.fail(error, code, error.source)
            except OSError as error:
                code = USAGE
                name = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
                console.fail(OSError(f"{name}{error.strerror or error}"), code)
            except click.ClickException as error:
                code = error.exit_code
                if as_json:
                    described = {"type": type(error).__name__, "message": error.format_message()}
                    click.echo(json.dumps({"ok": False, "exit_code": code, "error": described}, indent=2))
                raise
        click.get_current_context().exit(code)

    command.__doc__ = f"{function.__doc__}\n\n    {_TEXT}"
    return command


def innermost(error: BaseException) -> Source | None:
    """The user's line that an exception was raised on, or that called what raised it."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return Source(error.filename, error.lineno or 0)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_code(f.filename)]
    return Source(frames[-1].filename, frames[-1].lineno or 0) if frames else None


def _describe(source: Source) -> str:
    """The user's line with a path that can be opened from here."""
    near = os.path.relpath(source.file)
    file = source.file if near.startswith(os.pardir) else near
    return source.describe().replace(source.label, f"{file}:{source.line}", 1)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Columns of text, the first to the left and numbers to the right."""
    cells = [header, *(tuple(str(c) for c in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    left = [i == 0 or any(isinstance(row[i], str) for row in rows) for i in range(len(header))]
    lines: list[str] = []
    for row in cells:
        padded = [c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(row, widths, left, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
