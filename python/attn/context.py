"""Contexts: the threads, memory and kernels that calls use."""
import ctypes
import os
import threading

from . import library
from .errors import InvalidArgument, raise_status
from .library import lib

_generation = [0]  # rises in a forked child, whose contexts have lost their threads
_revive_lock = [threading.Lock()]


def _after_fork():
    _generation[0] += 1
    _revive_lock[0] = threading.Lock()  # another thread may have held the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Context:
    """Threads, memory and the instruction-set level of calls.

    threads: 0 for ATTN_NUM_THREADS, else as many as the process may use. isa: "best", "scalar", "avx2", "avx512",
    "avx512bf16" or "neon". One call runs at a time; a second thread waits. In a forked child it makes itself anew.
    """

    def __init__(self, threads=0, isa="best"):
        if isa not in library.ISA_LEVELS:
            raise InvalidArgument("isa is %r; known are %s" % (isa, ", ".join(library.ISA_LEVELS)))
        self._options = library.args_init(library.CtxOptions)
        self._options.n_threads = threads
        self._options.max_isa = library.ISA_LEVELS[isa]
        self._lock = threading.Lock()
        self.handle = None
        self._create()

    def _create(self):
        handle = ctypes.c_void_p()
        status = lib.attn_ctx_create(ctypes.byref(self._options), ctypes.byref(handle))
        if status:
            raise_status(status, lib.attn_ctx_error(None).decode())
        self.handle, self._generation = handle, _generation[0]

    def call(self, function, *arguments):
        """Runs function(ctx, *arguments) and raises what it reports."""
        if self._generation != _generation[0]:
            self._revive()
        with self._lock:
            status = function(self.handle, *arguments)
            if status:
                raise_status(status, lib.attn_ctx_error(self.handle).decode())

    def _revive(self):
        with _revive_lock[0]:
            if self._generation != _generation[0]:
                self._lock = threading.Lock()
                self._create()  # the parent's context is left alone: its threads do not exist here

    @property
    def isa(self):
        return lib.attn_ctx_isa(self.handle).decode()

    @property
    def threads(self):
        return lib.attn_ctx_threads(self.handle)

    def __del__(self):
        if getattr(self, "handle", None) and self._generation == _generation[0]:
            lib.attn_ctx_destroy(self.handle)

    def __repr__(self):
        return "Context(threads=%d, isa=%r)" % (self.threads, self.isa)


_local = threading.local()
_default = {"threads": 0, "isa": "best", "version": 0}


def set_default(threads=None, isa=None):
    """Changes what contexts made from now on use where a call names none."""
    if threads is not None:
        _default["threads"] = threads
    if isa is not None:
        _default["isa"] = isa
    _default["version"] += 1


def context_version():
    """Changes whenever set_default() changes what default_context() gives."""
    return _default["version"]


def default_context():
    """This Python thread's own context."""
    if getattr(_local, "version", None) != _default["version"]:
        _local.context = Context(_default["threads"], _default["isa"])
        _local.version = _default["version"]
    return _local.context
