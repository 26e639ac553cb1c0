"""Rotary position embedding (Su et al. 2021)."""
from __future__ import annotations

from ctypes import byref
from typing import Any, Optional

import numpy as np

from . import library
from .arrays import ArrayLike, borrow, empty, finish, floats, integer, integers, number, wants_gradients, writable
from .context import Context, chosen
from .errors import InvalidArgument
from .library import lib


def rope(x: ArrayLike, *, rotary_dim: int = 0, interleaved: bool = False, inverse: bool = False, base: float = 0.0,
         position_offset: int = 0, positions: Any = None, scaling: str = "plain", factor: float = 0.0,
         low_freq_factor: float = 0.0, high_freq_factor: float = 0.0, beta_fast: float = 0.0, beta_slow: float = 0.0,
         attention_factor: float = 0.0, original_length: int = 0, cos_table: Any = None, sin_table: Any = None,
         out: Optional[ArrayLike] = None, context: Optional[Context] = None) -> Any:
    """Rotates pairs of each head's vector by position * frequency; x [batch, heads, seq, head_dim], same shape out.

    Pairs are (i, i + rotary_dim/2), or (2i, 2i+1) when interleaved; the first rotary_dim of head_dim turn (0: all of it).
    positions: [seq] or [batch, seq], else position_offset + index. scaling: plain, linear, ntk, llama3, yarn. cos_table and
    sin_table [rows, rotary_dim/2], row = position, replace base and scaling. inverse rotates back (the gradient).
    out may be x itself. A PyTorch tensor that requires a gradient gets one (of x; not with out).
    """
    if wants_gradients(x, out):
        given = {name: value for name, value in locals().items() if name not in ("x", "out")}
        if out is not None:
            raise InvalidArgument("out is given and a gradient is to be recorded: leave it out, or use torch.no_grad()")
        from . import torch_ops
        return torch_ops.differentiable_rope(rope, x, given)
    source = borrow(x, "x")
    if source.ndim != 4:
        raise InvalidArgument("x has shape %s; [batch, heads, seq, head_dim] is expected" % (source.shape,))
    if not isinstance(scaling, str) or scaling not in library.ROPE_SCALING:
        raise InvalidArgument("scaling is %r; known are %s" % (scaling, ", ".join(library.ROPE_SCALING)))
    made, target = (out, writable(out, "out")) if out is not None else empty(source.shape, source)
    if target.ndim != 4:
        raise InvalidArgument("out has shape %s, expected %s" % (target.shape, source.shape))
    args = library.args_init(library.RopeArgs)
    source.fill(args.x)
    target.fill(args.out)
    args.rotary_dim = rotary_dim = integer(rotary_dim, "rotary_dim")
    args.flags = (library.ROPE_INTERLEAVED if interleaved else 0) | (library.ROPE_INVERSE if inverse else 0)
    args.position_offset, args.scaling = integer(position_offset, "position_offset"), library.ROPE_SCALING[scaling]
    args.original_length = integer(original_length, "original_length")
    for name, value in (("base", base), ("factor", factor), ("low_freq_factor", low_freq_factor),
                        ("high_freq_factor", high_freq_factor), ("beta_fast", beta_fast), ("beta_slow", beta_slow),
                        ("attention_factor", attention_factor)):
        setattr(args, name, number(value, name))
    if positions is not None:
        positions = integers(positions, "positions", ndim=2 if np.ndim(positions) == 2 else 1)
        batch, seq = source.shape[0], source.shape[2]
        if positions.shape not in ((seq,), (1, seq), (batch, seq)):
            raise InvalidArgument("positions has shape %s, expected (%d,) or (%d, %d)" % (positions.shape, seq, batch, seq))
        args.positions = positions.ctypes.data
        args.positions_stride = seq if positions.ndim == 2 and positions.shape[0] > 1 else 0
    if cos_table is not None or sin_table is not None:
        if cos_table is None or sin_table is None:
            raise InvalidArgument("cos_table and sin_table go together")
        half = (rotary_dim or source.shape[3]) // 2
        tables = [floats(t, n) for t, n in ((cos_table, "cos_table"), (sin_table, "sin_table"))]
        for table, name in zip(tables, ("cos_table", "sin_table")):
            if table.ndim != 2 or table.shape[1] != half or table.shape != tables[0].shape:
                raise InvalidArgument("%s has shape %s, expected [rows, %d]" % (name, table.shape, half))
        args.cos_table, args.sin_table = tables[0].ctypes.data, tables[1].ctypes.data
        args.table_rows = tables[0].shape[0]
    chosen(context).call(lib.attn_rope, byref(args))
    return finish(made, source)
