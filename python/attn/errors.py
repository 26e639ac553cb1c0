"""The exceptions of this package, one for each status of the C library; the text is the C library's own."""
from __future__ import annotations

from typing import Dict, NoReturn, Optional, Type


class AttnError(Exception):
    """Base of all errors; `status` is the C status (a negative integer)."""

    status: Optional[int] = None


class InvalidArgument(AttnError, ValueError):
    """An argument breaks a rule; the text names the field and the value."""

    status = -1


class Unsupported(AttnError, NotImplementedError):
    """A valid request that no kernel here serves, or an instruction set that this machine lacks."""

    status = -2


class OutOfMemory(AttnError, MemoryError):
    """The allocator returned nothing."""

    status = -3


class WorkspaceTooSmall(AttnError):
    """A workspace is smaller than its query said."""

    status = -4


class FileError(AttnError, OSError):
    """A file cannot be opened, read or written."""

    status = -5


class FormatError(AttnError, ValueError):
    """Bytes that break their format."""

    status = -6


class Cancelled(AttnError):
    """A callback asked to stop."""

    status = -7


class ModelLibraryMissing(AttnError, ImportError):
    """attn.Model needs libattn_model, which is not here; the text says how to get it."""


BY_STATUS: Dict[Optional[int], Type[AttnError]] = {kind.status: kind for kind in (
    InvalidArgument, Unsupported, OutOfMemory, WorkspaceTooSmall, FileError, FormatError, Cancelled)}


def raise_status(status: int, text: str) -> NoReturn:
    """Raises the exception that belongs to a status other than 0."""
    error = BY_STATUS.get(status, AttnError)(text)
    if error.status is None:
        error.status = status
    raise error
