"""Exact, linear-memory attention on CPUs: a thin layer over libattn.

>>> import attn, numpy as np
>>> q = k = v = np.random.randn(1, 8, 128, 64).astype(np.float32)
>>> out = attn.scaled_dot_product_attention(q, k, v, is_causal=True)

NumPy, PyTorch, JAX and DLPack arrays go in and come out without copies; float32, float64, float16, bfloat16.
`python -m attn info` says what is in use.
"""
from __future__ import annotations

from contextlib import AbstractContextManager

from .cache import KVCache, decode
from .context import Context, default_context, set_default
from .errors import (AttnError, Cancelled, FileError, FormatError, InvalidArgument, ModelLibraryMissing, OutOfMemory,
                     Unsupported, WorkspaceTooSmall)
from .library import lib as _lib
from .model import Generation, Model, Tokenizer
from .operator import (Call, Gradients, attention, attention_backward, key_mass, merge, prepare, row_stats, rows,
                       scaled_dot_product_attention, topk)
from .rotary import rope


def install(dispatcher: bool = False) -> None:
    """torch.nn.functional.scaled_dot_product_attention on CPU tensors through libattn (see attn.torch_hooks)."""
    from . import torch_hooks
    torch_hooks.install(dispatcher)


def uninstall() -> None:
    """Undoes install()."""
    from . import torch_hooks
    torch_hooks.uninstall()


def installed(dispatcher: bool = False) -> AbstractContextManager[None]:
    """install() for a with block."""
    from . import torch_hooks
    return torch_hooks.installed(dispatcher)


__version__ = _lib.attn_version().decode()
__all__ = ["AttnError", "Call", "Cancelled", "Context", "FileError", "FormatError", "Generation", "Gradients",
           "InvalidArgument", "KVCache", "Model", "ModelLibraryMissing", "OutOfMemory", "Tokenizer", "Unsupported",
           "WorkspaceTooSmall", "attention", "attention_backward", "decode", "default_context", "install",
           "installed", "key_mass", "merge", "prepare", "rope", "row_stats", "rows", "scaled_dot_product_attention",
           "set_default", "topk", "uninstall"]
