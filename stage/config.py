"""Process options: `ons.config.threads = 1`, or `with ons.config(threads=1): ...`, or ONSTAGE_THREADS=1 in the environment.

The variables are read once, when onstage is imported. An assignment holds for the whole process; a `with` block for the
code inside, on its thread or task. Inside a block an assignment changes the block's options and ends with it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from .errors import OnstageError

PROVIDERS: Final = ("auto", "cpu", "cuda")
OPTIMIZATIONS: Final = ("auto", "none", "basic", "extended", "all")
_PREFIX: Final = "ONSTAGE_"


@dataclass(frozen=True)
class Options:
    """How programs run.

    provider: "auto" takes CUDA where a CUDA session really works, else the CPU; "cuda" raises ProviderError where none does,
    unless fallback. device: the CUDA device's number. threads: of one run, None for all the process may use. optimization:
    ONNX Runtime's level, "auto" by the size of the graph. check_numerics: raise at the first NaN or infinity, naming its
    line; verify_shapes: hold every value's shape and dtype against what was inferred (both run on the reference interpreter).
    cache_dir, cache_size: where execution models are kept, None for the user's cache directory, and how many bytes of them.
    sessions: how many ONNX Runtime sessions are kept in memory.
    """

    provider: str = "auto"
    device: int = 0
    threads: int | None = None
    optimization: str = "auto"
    fallback: bool = False
    check_numerics: bool = False
    verify_shapes: bool = False
    cache_dir: str | None = None
    cache_size: int = 1 << 30
    sessions: int = 128

    def __post_init__(self) -> None:
        _check("provider", self.provider, self.provider in PROVIDERS, f"one of {', '.join(PROVIDERS)}")
        _check(
            "optimization",
            self.optimization,
            self.optimization in OPTIMIZATIONS,
            f"one of {', '.join(OPTIMIZATIONS)}",
        )
        _check("device", self.device, _is_int(self.device) and self.device >= 0, "an int >= 0")
        _check(
            "threads",
            self.threads,
            self.threads is None or (_is_int(self.threads) and self.threads > 0),
            "an int > 0 or None",
        )
        _check(
            "cache_size",
            self.cache_size,
            _is_int(self.cache_size) and self.cache_size >= 0,
            "an int >= 0, in bytes",
        )
        _check("sessions", self.sessions, _is_int(self.sessions) and self.sessions > 0, "an int > 0")
        _check(
            "cache_dir",
            self.cache_dir,
            self.cache_dir is None or isinstance(self.cache_dir, str | os.PathLike),
            "a path or None",
        )
        for name in ("fallback", "check_numerics", "verify_shapes"):
            _check(name, getattr(self, name), isinstance(getattr(self, name), bool), "True or False")


class ConfigError(OnstageError, ValueError):
    """An option that does not exist, or a value it cannot have."""


def _check(name: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ConfigError(f"ons.config: {name} is {expected}, got {value!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_FIELDS: Final = {field.name: field for field in dataclasses.fields(Options)}
_WORDS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def read_environment(environment: Mapping[str, str]) -> Options:
    """Options with the values of ONSTAGE_PROVIDER, ONSTAGE_THREADS, ...; ConfigError naming the variable that is wrong."""
    values: dict[str, Any] = {}
    for name, field in _FIELDS.items():
        variable = _PREFIX + name.upper()
        text = environment.get(variable)
        if text is None or not text.strip():
            continue
        try:
            values[name] = _parse(text.strip(), str(field.type))
            Options(**values)
        except ValueError as error:
            raise ConfigError(f"the environment variable {variable}={text!r} is wrong: {error}") from None
    return Options(**values)


def _parse(text: str, kind: str) -> Any:
    if kind == "bool":
        if text.lower() not in _WORDS:
            raise ValueError(f"expected one of {', '.join(_WORDS)}")
        return _WORDS[text.lower()]
    if kind.startswith("int"):
        return None if text.lower() == "none" else int(text)
    return text


def _changed(options: Options, changes: Mapping[str, Any]) -> Options:
    for name in changes:
        if name not in _FIELDS:
            raise ConfigError(f"ons.config has no option {name!r}; it has {', '.join(_FIELDS)}")
    return dataclasses.replace(options, **changes)


class _Process:
    """The options that hold where no block sets others."""

    options: Options


_process = _Process()
_process.options = read_environment(os.environ)
_block: ContextVar[Options | None] = ContextVar("onstage_config", default=None)


def current_options() -> Options:
    """The options that hold here; the same object until one changes."""
    return _block.get() or _process.options


class Config:
    """The face of the options: attributes, and a context manager when called."""

    @contextmanager
    def __call__(self, **changes: Any) -> Generator[None]:
        token = _block.set(_changed(current_options(), changes))
        try:
            yield
        finally:
            _block.reset(token)

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise AttributeError(f"ons.config has no option {name!r}; it has {', '.join(_FIELDS)}")
        return getattr(current_options(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        new = _changed(current_options(), {name: value})
        if _block.get() is None:
            _process.options = new
        else:
            _block.set(new)

    def __dir__(self) -> list[str]:
        return sorted(_FIELDS)

    def __repr__(self) -> str:
        return f"<ons.config {current_options()!r}>"


config = Config()
