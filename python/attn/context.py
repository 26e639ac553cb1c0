"""Contexts: the threads, memory and kernels that calls use."""
from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Dict, List, Optional

from . import library
from .arrays import integer
from .errors import InvalidArgument, raise_status
from .library import lib

# The same function without argument types, which ctypes calls a third faster: its arguments are ctypes objects already.
_forward = lib["attn_sdpa_forward"]
_NO_BYTES = ctypes.c_size_t(0)
_generation: List[int] = [0]  # rises in a forked child, whose contexts have lost their threads
_revive_lock = [threading.Lock()]


def _after_fork() -> None:
    _generation[0] += 1
    _revive_lock[0] = threading.Lock()  # another thread may have held the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Context:
    """Threads, memory and the instruction-set level of calls.

    threads: 0 for ATTN_NUM_THREADS, else as many as the process may use. isa: "best", "scalar", "avx2", "avx512",
    "avx512bf16", "neon", "neondot" or "neonbf16". One call runs at a time; a second thread waits. In a forked child it
    makes itself anew.
    """

    handle: Optional[ctypes.c_void_p]

    def __init__(self, threads: int = 0, isa: str = "best") -> None:
        if not isinstance(isa, str) or isa not in library.ISA_LEVELS:
            raise InvalidArgument("isa is %r; known are %s" % (isa, ", ".join(library.ISA_LEVELS)))
        self._options = library.args_init(library.CtxOptions)
        self._options.n_threads = integer(threads, "threads", 32)
        self._options.max_isa = library.ISA_LEVELS[isa]
        self._asked = threads, isa
        self._lock = threading.RLock()  # a signal handler may call attention while this thread is in a call
        self.handle = None
        self._create()

    def _create(self) -> None:
        handle = ctypes.c_void_p()
        status = lib.attn_ctx_create(ctypes.byref(self._options), ctypes.byref(handle))
        if status:
            raise_status(status, lib.attn_ctx_error(None).decode())
        self.handle, self._generation = handle, _generation[0]

    def call(self, function: Any, *arguments: Any) -> None:
        """Runs function(ctx, *arguments) and raises what it reports."""
        if self._generation != _generation[0]:
            self._revive()
        with self._lock:
            status = function(self.handle, *arguments)
            if status:
                raise_status(status, lib.attn_ctx_error(self.handle).decode())

    def forward(self, arguments: Any) -> None:
        """call(attn_sdpa_forward, arguments, None, 0), the call that has to cost least. arguments: byref of an SdpaArgs."""
        if self._generation != _generation[0]:
            self._revive()
        with self._lock:
            status = _forward(self.handle, arguments, None, _NO_BYTES)
            if status:
                raise_status(status, lib.attn_ctx_error(self.handle).decode())

    def _revive(self) -> None:
        with _revive_lock[0]:
            if self._generation != _generation[0]:
                self._lock = threading.RLock()
                self._create()  # the parent's context is left alone: its threads do not exist here

    @property
    def isa(self) -> str:
        """The level in use: "scalar", "avx2", ..."""
        return str(lib.attn_ctx_isa(self.handle).decode())

    @property
    def threads(self) -> int:
        """Threads that a call may use, the calling one included."""
        return int(lib.attn_ctx_threads(self.handle))

    def __del__(self, generation: List[int] = _generation, destroy: Any = lib.attn_ctx_destroy) -> None:
        if getattr(self, "handle", None) and self._generation == generation[0]:  # as Python ends, globals are gone
            destroy(self.handle)

    def __reduce__(self) -> Any:
        """A copy, or what arrives in another process, is a new context of the same options."""
        return Context, self._asked

    def __repr__(self) -> str:
        return "Context(threads=%d, isa=%r)" % (self.threads, self.isa)


_local = threading.local()
_default: Dict[str, Any] = {"threads": 0, "isa": "best", "version": 0}


def set_default(threads: Optional[int] = None, isa: Optional[str] = None) -> None:
    """Changes what contexts made from now on use where a call names none."""
    Context(_default["threads"] if threads is None else threads, _default["isa"] if isa is None else isa)  # raises before a change
    if threads is not None:
        _default["threads"] = threads
    if isa is not None:
        _default["isa"] = isa
    _default["version"] += 1


def chosen(context: Optional[Context]) -> Context:
    """The context that a call names; None: this thread's own."""
    if context is None:
        return default_context()
    if not isinstance(context, Context):
        raise InvalidArgument("context is a %s; an attn.Context is expected" % type(context).__name__)
    return context


def context_version() -> int:
    """Changes whenever set_default() changes what default_context() gives."""
    return _default["version"]  # type: ignore[no-any-return]


def default_context() -> Context:
    """This Python thread's own context."""
    if getattr(_local, "version", None) != _default["version"]:
        _local.context = Context(_default["threads"], _default["isa"])
        _local.version = _default["version"]
    return _local.context  # type: ignore[no-any-return]
