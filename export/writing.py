"""Writing files so that each is there whole or not at all: temporary names in the same folder, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final

_CHUNK: Final = 1 << 24
# Threads that save to one path take turns, so that a model and what stands beside it belong together.
_committing = threading.Lock()


def check_target(path: str) -> None:
    """OSError (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) where a file cannot be put at `path`."""
    folder = os.path.dirname(path) or "."
    if not os.path.basename(path):
        raise IsADirectoryError(errno.EISDIR, "cannot save: a file name is needed, this is a directory", path)
    if not os.path.isdir(folder):
        os.stat(folder)  # says what is wrong where the folder is missing or may not be read
        raise NotADirectoryError(errno.ENOTDIR, "cannot save: not a directory", folder)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "cannot save: this is a directory", path)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, "cannot save: the directory is not writable", folder)


class Transaction:
    """Files of one folder that appear together: written under temporary names, then renamed in the order they were written.

    Used as a context manager: `commit` renames; leaving without it, by whatever exception, removes what was written and puts back
    what had been replaced.
    """

    def __init__(self) -> None:
        self._written: list[tuple[str, str]] = []  # (temporary name, final name)
        self._temporary: list[str] = []  # what has to go in any case
        self._renamed: list[tuple[str, str | None]] = []  # (final name, where the file is that stood there before)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for path, before in reversed(self._renamed):
            with contextlib.suppress(FileNotFoundError):
                if before is None:
                    os.unlink(path)
                else:
                    os.replace(before, path)
        for name in self._temporary:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def write(self, path: str, chunks: Iterable[Any]) -> str:
        """Write a file from bytes-like pieces under a temporary name, down to the disk; gives its SHA-256."""
        temporary = self._name(path)
        digest = hashlib.sha256()
        try:
            # Not tempfile: its files are for their owner alone, and these become the user's.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
            with open(descriptor, "wb", buffering=0) as file:
                for chunk in chunks:
                    view = memoryview(chunk)
                    for start in range(0, len(view), _CHUNK):
                        piece = view[start : start + _CHUNK]
                        digest.update(piece)
                        while piece:
                            piece = piece[file.write(piece) :]
                os.fsync(file.fileno())
        except OSError as error:
            # The system's error names the temporary file, or none.
            raise OSError(error.errno, f"cannot save: {error.strerror}", path) from error
        self._written.append((temporary, path))
        return digest.hexdigest()

    def commit(self) -> None:
        """Rename what was written, the last file last; when one cannot be, all is as before."""
        with _committing:
            *others, (last_temporary, last) = self._written
            for temporary, path in others:
                self._set_aside(path)
                os.replace(temporary, path)
            os.replace(last_temporary, last)
            self._renamed.clear()
        _sync_folder(os.path.dirname(last) or ".")

    def _set_aside(self, path: str) -> None:
        """Move what stands at `path` out of the way, and note how to undo it."""
        if os.path.lexists(path):
            before = self._name(path)
            self._renamed.append((path, before))
            try:
                os.replace(path, before)
            except FileNotFoundError:  # another process took it in this moment
                self._renamed[-1] = (path, None)
        else:
            self._renamed.append((path, None))

    def _name(self, path: str) -> str:
        folder, base = os.path.split(path)
        name = os.path.join(folder, f".{base}.{secrets.token_hex(6)}.tmp")
        self._temporary.append(name)
        return name


def _sync_folder(folder: str) -> None:
    """Make the new names last, where the system and the file system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not sync folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
