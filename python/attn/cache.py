"""A cache of keys and values for decoding and chunked prefill."""
from __future__ import annotations

from ctypes import byref
from typing import Any, List, Optional, Tuple

import numpy as np

from . import arrays, library
from .arrays import ArrayLike, empty, finish, integer, integers, refuse_gradients
from .context import Context, chosen
from .errors import InvalidArgument
from .library import lib
from .operator import _fill_common, _fill_mask, _four, _pointer, split_mask


def decode(query: ArrayLike, new_key: Optional[ArrayLike], new_value: Optional[ArrayLike], cache_key: ArrayLike,
           cache_value: ArrayLike, cache_len: Any, *, new_len: Any = None, block_table: Any = None, ring: bool = False,
           cache_key_scale: Optional[ArrayLike] = None, cache_value_scale: Optional[ArrayLike] = None,
           prefix_key: Optional[ArrayLike] = None, prefix_value: Optional[ArrayLike] = None, mask: Optional[ArrayLike] = None,
           bias: Optional[ArrayLike] = None, scale: Optional[float] = None, softcap: float = 0.0, sinks: Any = None,
           causal: bool = True, out: Optional[ArrayLike] = None, return_lse: bool = False, context: Optional[Context] = None,
           **rules: Any) -> Any:
    """Appends new_key and new_value to the cache arrays and attends with query to everything: one call.

    query [batch, n_heads, n_new, head_dim]; new_key, new_value [batch, n_kv_heads, n_new, ...] (None: appended already);
    cache arrays [batch, n_kv_heads, capacity, ...], or [n_blocks, n_kv_heads, block_size, ...] with block_table
    [batch, blocks]; cache_len [batch]: tokens before this call (not changed). Returns out, or (out, lse). It has no gradient,
    and refuses tensors that require one.
    """
    refuse_gradients("decode", query, new_key, new_value, cache_key, cache_value, mask, bias, sinks, *rules.values())
    q = _four(query, "query")
    args = library.args_init(library.DecodeArgs)
    kept: List[Any] = [q]
    made, target = (out, arrays.writable(out, "out")) if out is not None else \
        empty(q.shape[:3] + (_four(cache_value, "cache_value").shape[3],), q)
    for given, view, name in ((q, args.query, "query"), (new_key, args.new_key, "new_key"),
                              (new_value, args.new_value, "new_value"), (cache_key, args.cache_key, "cache_key"),
                              (cache_value, args.cache_value, "cache_value"),
                              (cache_key_scale, args.cache_key_scale, "cache_key_scale"),
                              (cache_value_scale, args.cache_value_scale, "cache_value_scale"),
                              (prefix_key, args.prefix_key, "prefix_key"), (prefix_value, args.prefix_value, "prefix_value"),
                              (target, args.out, "out")):
        if given is not None:
            array = _four(given, name)
            if name.startswith("cache"):
                arrays.writable(given, name)
            kept.append(array)
            array.fill(view)
    batch = q.shape[0]
    lengths = integers(cache_len, "cache_len", batch)
    kept.append(lengths)
    args.cache_len = _pointer(lengths)
    if new_len is not None:
        counts = integers(new_len, "new_len", batch)
        kept.append(counts)
        args.new_len = _pointer(counts)
    if block_table is not None:
        table = integers(block_table, "block_table", ndim=2, dtype=np.int32)
        kept.append(table)
        args.layout.block_table, args.layout.block_table_stride = _pointer(table), table.shape[1]
    args.layout.ring = 1 if ring else 0
    lse = None
    if return_lse:
        lse, lse_array = empty(q.shape[:3], q, q.base_dtype)
        args.lse = lse_array.data
    allow, float_mask = split_mask(mask)
    _fill_mask(args.mask, kept, q.shape[1], batch, causal=causal, allow=allow, bias=float_mask if bias is None else bias,
               **rules)
    _fill_common(args, kept, q.shape[1], scale, softcap, sinks)
    chosen(context).call(lib.attn_sdpa_decode, byref(args), None, 0)
    return (finish(made, q), finish(lse, q)) if return_lse else finish(made, q)


class KVCache:
    """Keys and values of `batch` sequences, and how long each is.

    capacity: tokens per sequence. dtype: float32, float64, float16, bfloat16 (ml_dtypes) or int8 (one float32 scale per
    token and kv head). block_size: pages of so many tokens, handed out as sequences grow, from n_blocks (default: enough for
    all). ring: keep the last `capacity` tokens only (the window must exclude older ones).
    """

    def __init__(self, batch: int, n_kv_heads: int, capacity: int, head_dim: int, value_dim: Optional[int] = None,
                 dtype: Any = np.float32, block_size: Optional[int] = None, n_blocks: Optional[int] = None,
                 ring: bool = False) -> None:
        value_dim = head_dim if value_dim is None else value_dim
        for name, given, least in (("batch", batch, 0), ("n_kv_heads", n_kv_heads, 0), ("capacity", capacity, 0),
                                   ("head_dim", head_dim, 0), ("value_dim", value_dim, 0), ("block_size", block_size, 1),
                                   ("n_blocks", n_blocks, 0)):
            if given is not None and integer(given, name) < least:
                raise InvalidArgument("%s is %d, must be %d or more" % (name, given, least))
        self.capacity, self.ring = capacity, ring
        self.block_size: Any = block_size
        self.lengths = np.zeros(batch, np.int64)
        self.block_table: Any = None
        self._free: List[int] = []
        self.key_scale: Any = None
        self.value_scale: Any = None
        lead: Tuple[int, ...] = (batch, n_kv_heads, capacity)
        if block_size is not None:
            per_sequence = -(-capacity // block_size)
            n_blocks = batch * per_sequence if n_blocks is None else n_blocks
            lead = (n_blocks, n_kv_heads, block_size)
            self.block_table = np.full((batch, per_sequence), -1, np.int32)
            self._free = list(range(n_blocks - 1, -1, -1))
        self.key = np.zeros(lead + (head_dim,), dtype)
        self.value = np.zeros(lead + (value_dim,), dtype)
        if self.key.dtype == np.int8:
            self.key_scale, self.value_scale = np.zeros(lead + (1,), np.float32), np.zeros(lead + (1,), np.float32)

    def _reserve(self, wanted: Any) -> None:
        """Gives each sequence the pages it needs to reach the wanted lengths; on an error none gets any."""
        missing: List[Tuple[int, int]] = []
        for b, length in enumerate(wanted):
            if length > self.capacity:
                raise InvalidArgument("sequence %d would have %d tokens; the capacity is %d" % (b, length, self.capacity))
            missing += [(b, page) for page in range(-(-int(length) // self.block_size)) if self.block_table[b, page] < 0]
        if len(missing) > len(self._free):
            b, page = missing[len(self._free)]
            raise InvalidArgument("no free block for sequence %d at token %d" % (b, page * self.block_size))
        for b, page in missing:
            self.block_table[b, page] = self._free.pop()

    def decode(self, query: ArrayLike, new_key: ArrayLike, new_value: ArrayLike, *, new_len: Any = None, **rules: Any) -> Any:
        """Appends and attends (see decode()); on success the sequences are longer by new_len (default: all of n_new)."""
        n_new = _four(new_key, "new_key").shape[2]
        added = np.full(len(self.lengths), n_new, np.int64) if new_len is None else integers(new_len, "new_len", len(self.lengths))
        if self.block_table is not None:
            self._reserve(self.lengths + added)
        result = decode(query, new_key, new_value, self.key, self.value, self.lengths, new_len=new_len,
                        block_table=self.block_table, ring=self.ring, cache_key_scale=self.key_scale,
                        cache_value_scale=self.value_scale, **rules)
        self.lengths += added
        return result

    def truncate(self, length: int, sequence: Optional[int] = None) -> None:
        """Forgets everything behind `length` tokens of one sequence or of all."""
        length, n = integer(length, "length"), len(self.lengths)
        chosen = range(n) if sequence is None else [integer(sequence, "sequence")]
        for b in chosen:
            if not 0 <= b < n:
                raise InvalidArgument("sequence is %d; the cache has %d" % (b, n))
            if not 0 <= length <= self.lengths[b]:
                raise InvalidArgument("length is %d; sequence %d has %d tokens" % (length, b, self.lengths[b]))
            self.lengths[b] = length
            if self.block_table is not None:
                for page in range(-(-length // self.block_size), self.block_table.shape[1]):
                    if self.block_table[b, page] >= 0:
                        self._free.append(int(self.block_table[b, page]))
                        self.block_table[b, page] = -1
