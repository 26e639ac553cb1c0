"""The Python package against plain NumPy formulas: values, layouts, types, errors, threads, fork."""
import copy
import ctypes
import os
import pickle
import signal
import threading
import unittest

import numpy as np

import attn
from attn import arrays, plans

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


def softmax_attention(q, k, v, allowed=None, scale=None):
    """softmax(scale q k^T) v in float64; rows without keys are 0."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
    s = np.einsum("bhid,bhjd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s if allowed is None else np.where(allowed, s, -np.inf)
    m = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(m), 0, m))
    total = e.sum(axis=-1, keepdims=True)
    w = e / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + m)[..., 0]
    return w @ v, lse, w


def problem(seed=0, batch=2, n_heads=4, n_kv_heads=2, seq_q=5, seq_kv=7, dim=8, value_dim=6, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((batch, n_heads, seq_q, dim)).astype(dtype),
            rng.standard_normal((batch, n_kv_heads, seq_kv, dim)).astype(dtype),
            rng.standard_normal((batch, n_kv_heads, seq_kv, value_dim)).astype(dtype))


class Values(unittest.TestCase):
    def test_forward_and_lse(self):
        q, k, v = problem()
        out, lse = attn.attention(q, k, v, return_lse=True)
        want, want_lse, _ = softmax_attention(q, k, v)
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-6)
        self.assertEqual((out.dtype, lse.dtype), (np.float32, np.float32))

    def test_types(self):
        for dtype, bound in ((np.float64, 1e-12), (np.float16, 2e-3)) + (((ml_dtypes.bfloat16, 2e-2),) if ml_dtypes else ()):
            q, k, v = problem(dtype=dtype)
            out, lse = attn.attention(q, k, v, return_lse=True)
            self.assertEqual(out.dtype, dtype)
            self.assertEqual(lse.dtype, np.float64 if dtype is np.float64 else np.float32)
            np.testing.assert_allclose(np.asarray(out, np.float64), softmax_attention(q, k, v)[0], rtol=bound, atol=bound)

    def test_uint16_is_bfloat16(self):
        q, k, v = (np.ascontiguousarray(a).view(np.uint32) >> 16 for a in problem())
        q, k, v = (a.astype(np.uint16) for a in (q, k, v))
        wide = [(a.astype(np.uint32) << 16).view(np.float32) for a in (q, k, v)]
        out = attn.attention(q, k, v)
        self.assertEqual(out.dtype, np.uint16)
        np.testing.assert_allclose((out.astype(np.uint32) << 16).view(np.float32), softmax_attention(*wide)[0], rtol=1e-2, atol=1e-2)

    def test_strides_without_copies(self):
        q, k, v = problem()
        want = attn.attention(q, k, v)
        layouts = {"transposed": lambda a: np.ascontiguousarray(a.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
                   "negative": lambda a: np.ascontiguousarray(a[:, :, ::-1, ::-1])[:, :, ::-1, ::-1],
                   "last stride 2": lambda a: np.repeat(a, 2, axis=3)[..., ::2]}
        for name, change in layouts.items():
            out = np.full((2, 5, 4, 12), np.nan, np.float32).transpose(0, 2, 1, 3)[..., ::2]
            given = [change(a) for a in (q, k, v)]
            self.assertIs(attn.attention(*given, out=out), out)
            np.testing.assert_allclose(out, want, rtol=1e-6, atol=1e-6, err_msg=name)
            self.assertTrue(np.isnan(out.base.reshape(2, 5, 4, 12)[..., 1::2]).all(), "wrote between elements")

    def test_rules(self):
        q, k, v = problem()
        i, j = np.arange(5)[:, None], np.arange(7)[None]
        cases = [({"causal": True, "query_offset": 2}, j <= i + 2), ({"causal": True, "query_offset": [2, -1]},
                 np.stack([j <= i + 2, j <= i - 1])[:, None]), ({"window": (1, 2), "query_offset": 0}, (j >= i - 1) & (j <= i + 2)),
                 ({"kv_len": [7, 3]}, np.stack([j + 0 * i < 7, j + 0 * i < 3])[:, None]), ({"mask": j != i}, j != i)]
        for rules, allowed in cases:
            np.testing.assert_allclose(attn.attention(q, k, v, **rules), softmax_attention(q, k, v, allowed)[0],
                                       rtol=1e-5, atol=1e-6, err_msg=str(rules))

    def test_torch_semantics(self):
        q, k, v = problem(n_kv_heads=4)
        top_left = np.tril(np.ones((5, 7), bool))
        np.testing.assert_allclose(attn.scaled_dot_product_attention(q, k, v, is_causal=True),
                                   softmax_attention(q, k, v, top_left)[0], rtol=1e-5, atol=1e-6)
        flat = attn.scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0])
        self.assertEqual(flat.shape, (5, 6))
        np.testing.assert_allclose(flat, softmax_attention(q, k, v)[0][0, 0], rtol=1e-5, atol=1e-6)
        # Batch axes broadcast, five axes too.
        deep = attn.scaled_dot_product_attention(np.stack([q, q + 1]), k[:1], v)
        for n, shifted in enumerate((q, q + 1)):
            np.testing.assert_allclose(deep[n], softmax_attention(shifted, np.repeat(k[:1], 2, 0), v)[0], rtol=1e-5, atol=1e-6)
        with self.assertRaisesRegex(attn.InvalidArgument, "exclude each other"):
            attn.scaled_dot_product_attention(q, k, v, np.ones((5, 7), bool), is_causal=True)
        with self.assertRaisesRegex(attn.InvalidArgument, "enable_gqa"):
            attn.scaled_dot_product_attention(q, k[:, :2], v[:, :2])
        self.assertEqual(attn.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True).shape, (2, 4, 5, 6))

    def test_five_axes_return_lse_with_mask(self):
        q, k, v = problem(n_kv_heads=4)
        mask = np.random.default_rng(1).random((2, 2, 1, 5, 7)) < 0.7
        out, lse = attn.scaled_dot_product_attention(np.stack([q, q]), np.stack([k, k]), np.stack([v, v]), mask, return_lse=True)
        for n in range(2):
            want, want_lse, _ = softmax_attention(q, k, v, mask[n])
            np.testing.assert_allclose(out[n], want, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(lse[n], want_lse, rtol=1e-5, atol=1e-6)

    def test_backward_against_differences(self):
        q, k, v = problem(dtype=np.float64, seq_q=3, seq_kv=4)
        bias = np.random.default_rng(3).standard_normal((1, 4, 3, 4))
        rules = {"bias": bias, "sinks": [0.1, -0.2, 0.3, 0.4], "softcap": 3.0}
        d_out = np.random.default_rng(2).standard_normal((2, 4, 3, 6))
        out, lse = attn.attention(q, k, v, return_lse=True, **rules)
        found = attn.attention_backward(d_out, q, k, v, out, lse, want_bias=True, want_sinks=True, **rules)

        def loss():
            return (attn.attention(q, k, v, **rules) * d_out).sum()
        for array, gradient in ((q, found.query), (k, found.key), (v, found.value), (bias, found.bias)):
            for flat in (0, array.size // 2, array.size - 1):
                at = np.unravel_index(flat, array.shape)
                kept, step = array[at], 1e-6
                array[at] = kept + step
                above = loss()
                array[at] = kept - step
                below = loss()
                array[at] = kept
                self.assertAlmostEqual(gradient[at], (above - below) / (2 * step), delta=1e-8)

    def test_looking_in(self):
        q, k, v = problem(seq_q=6, seq_kv=6)
        rules = {"causal": True}
        _, lse, w = softmax_attention(q, k, v, np.tril(np.ones((6, 6), bool)))
        which = [(0, 0, 5), (1, 3, 0), (1, 2, 4)]
        np.testing.assert_allclose(attn.rows(q, k, which, **rules), [w[r] for r in which], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(attn.rows(q, k, which, lse=lse.astype(np.float32), **rules), [w[r] for r in which],
                                   rtol=1e-5, atol=1e-6)
        indices, weights = attn.topk(q, k, 3, **rules)
        self.assertEqual(indices.shape, (2, 4, 6, 3))
        np.testing.assert_array_equal(indices[..., 5, :], np.argsort(-w[..., 5, :], axis=-1)[..., :3])
        self.assertEqual(list(indices[0, 0, 0]), [0, -1, -1])
        np.testing.assert_allclose(weights[..., 5, :], -np.sort(-w[..., 5, :], axis=-1)[..., :3], rtol=1e-5)
        np.testing.assert_allclose(attn.key_mass(q, k, **rules), w.sum(axis=2), rtol=1e-5, atol=1e-6)
        stats = attn.row_stats(q, k, **rules)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(w > 0, w * np.log(w), 0).sum(axis=-1)
        np.testing.assert_allclose(stats["entropy"], entropy, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(stats["max_key"], w.argmax(axis=-1))

    def test_merge(self):
        q, k, v = problem()
        parts = [attn.attention(q, k[:, :, a:b], v[:, :, a:b], return_lse=True) for a, b in ((0, 3), (3, 3), (3, 7))]
        out, lse = attn.merge([p[0] for p in parts], [p[1] for p in parts])
        want, want_lse, _ = softmax_attention(q, k, v)
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-6)

    def test_rope(self):
        x = np.random.default_rng(0).standard_normal((2, 3, 5, 8))
        positions = np.arange(5) + 3
        angle = positions[:, None] * 10000.0 ** (-np.arange(4) / 4.0)
        a, b = x[..., :4], x[..., 4:]
        want = np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], axis=-1)
        np.testing.assert_allclose(attn.rope(x, position_offset=3), want, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(attn.rope(attn.rope(x, positions=positions), positions=positions, inverse=True), x, atol=1e-12)

    def test_decode_equals_the_full_pass(self):
        q, k, v = problem(seq_q=11, seq_kv=11)
        want = attn.attention(q, k, v, causal=True)
        for storage in ({}, {"block_size": 4}):
            cache = attn.KVCache(2, 2, 16, 8, 6, **storage)
            steps = [cache.decode(q[:, :, a:b], k[:, :, a:b], v[:, :, a:b]) for a, b in ((0, 6), (6, 7), (7, 11))]
            np.testing.assert_allclose(np.concatenate(steps, axis=2), want, rtol=1e-5, atol=1e-6)
            self.assertEqual(list(cache.lengths), [11, 11])
            cache.truncate(6)
            again = cache.decode(q[:, :, 6:7], k[:, :, 6:7], v[:, :, 6:7])
            self.assertEqual(again.tobytes(), steps[1].tobytes())
        with self.assertRaises(attn.InvalidArgument):
            cache.decode(np.zeros((2, 4, 20, 8), np.float32), np.zeros((2, 2, 20, 8), np.float32), np.zeros((2, 2, 20, 6), np.float32))

    def test_int8_and_ring_caches(self):
        q, k, v = problem(seq_q=24, seq_kv=24)
        small = attn.KVCache(2, 2, 24, 8, 6, np.int8)
        got = np.concatenate([small.decode(q[:, :, a:a + 8], k[:, :, a:a + 8], v[:, :, a:a + 8]) for a in (0, 8, 16)], axis=2)
        np.testing.assert_allclose(got, attn.attention(q, k, v, causal=True), atol=0.05)
        window = {"window": (5, 0)}
        ring = attn.KVCache(2, 2, 8, 8, 6, ring=True)
        got = np.concatenate([ring.decode(q[:, :, a:a + 1], k[:, :, a:a + 1], v[:, :, a:a + 1], **window) for a in range(24)], axis=2)
        np.testing.assert_allclose(got, attn.attention(q, k, v, causal=True, **window), rtol=1e-5, atol=1e-6)

    def test_repeated_calls_see_new_arrays(self):
        rng = np.random.default_rng(4)
        for rules in ({}, {"mask": True}, {"bias": True}, {"window": (1, 1), "query_offset": 1}, {"causal": True, "query_offset": 2}):
            for _ in range(3):  # the second and third are kept calls, with arrays elsewhere
                q, k, v = problem(seed=int(rng.integers(1000)))
                i, j = np.arange(5)[:, None], np.arange(7)[None]
                allowed = np.ones((5, 7), bool)
                given = dict(rules)
                if "mask" in rules:
                    given["mask"] = allowed = rng.random((2, 1, 5, 7)) < 0.6
                if "bias" in rules:
                    allowed = rng.random((5, 7)) < 0.6
                    given = {"mask": np.where(allowed, 0, -np.inf).astype(np.float32)}
                if "window" in rules:
                    allowed = (j >= i) & (j <= i + 2)
                if "causal" in rules:
                    allowed = j <= i + 2
                want = softmax_attention(q, k, v, allowed)
                for out in (None, np.empty((2, 4, 5, 6), np.float32)):
                    got = attn.attention(q, k, v, out=out, **given) if out is not None else attn.attention(q, k, v, **given)
                    np.testing.assert_allclose(got, want[0], rtol=1e-5, atol=1e-6, err_msg=str(rules))
                got, lse = attn.attention(q, k, v, return_lse=True, **given)
                np.testing.assert_allclose(lse, want[1], rtol=1e-5, atol=1e-6)
        # Two operators with the same arrays and different rules for unequal lengths.
        q, k, v = problem(n_kv_heads=4)
        for _ in range(2):
            attn.scaled_dot_product_attention(q, k, v, is_causal=True)
            with self.assertRaises(attn.InvalidArgument):
                attn.attention(q, k, v, causal=True)

    def test_kept_calls_with_every_keyword(self):
        """A second call of the same kind, with other arrays, is the kept one: it equals a call made from nothing, bit for bit."""
        rng = np.random.default_rng(5)
        floats = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
        integers = lambda *values: np.array(values, np.int64)  # noqa: E731
        kinds = {
            "lengths": lambda: {"kv_len": rng.integers(0, 8, 2), "q_len": rng.integers(0, 6, 2)},
            "a list": lambda: {"kv_len": [7, 3], "softcap": 2.0},
            "offsets": lambda: {"causal": True, "query_offset": rng.integers(0, 3, 2)},
            "slopes": lambda: {"alibi_slopes": np.abs(floats(4)), "bias_offset": rng.integers(0, 3, 2)},
            "table": lambda: {"relative": floats(4, 5), "relative_left": 2, "bias_offset": 1},
            "sinks": lambda: {"sinks": floats(4), "scale": -0.3}, "mask": lambda: {"mask": rng.random((2, 1, 5, 7)) < 0.6},
            "bytes": lambda: {"mask": (rng.random((5, 7)) < 0.6).astype(np.uint8)},
            "both": lambda: {"mask": rng.random((5, 7)) < 0.6, "bias": floats(4, 1, 7)},
            "dropout": lambda: {"dropout_p": 0.4, "dropout_seed": int(rng.integers(1 << 62))},
            "keep": lambda: {"dropout_p": 0.4, "keep": rng.random((2, 4, 5, 7)) < 0.6},
            "context": lambda: {"context": attn.Context(isa="scalar"), "window": (1, 2), "query_offset": 1},
            "packed": lambda: {"cu_seqlens_q": integers(0, rng.integers(1, 4), 5), "cu_seqlens_k": integers(0, rng.integers(1, 6), 7)}}
        for name, make in kinds.items():
            batch = 1 if name == "packed" else 2
            for n in range(3):
                q, k, v = problem(seed=n, batch=batch)
                rules = make()
                want = attn.prepare(q, k, v, return_lse=True, **rules)()
                before = len(plans._plans.kept)
                got = attn.attention(q, k, v, return_lse=True, **rules)
                self.assertEqual(len(plans._plans.kept) - before, 1 if n == 0 else 0, name)
                for g, w in zip(got, want):
                    self.assertEqual(g.tobytes(), w.tobytes(), name)
        # int8 keys and values in pages
        table = np.array([[2, 0], [3, 1]], np.int32)
        pages = [rng.integers(-100, 100, (4, 2, 4, width)).astype(np.int8) for width in (8, 6)]
        for n in range(3):
            q, scales = problem(seed=n)[0], [np.abs(floats(4, 2, 4, 1)) for _ in range(2)]
            rules = {"block_table": table[::-1].copy() if n == 1 else table, "seq_kv": 7, "key_scale": scales[0],
                     "value_scale": scales[1]}
            self.assertEqual(attn.attention(q, *pages, **rules).tobytes(),
                             attn.prepare(q, *pages, return_lse=False, **rules)().tobytes())

    def test_prepared_call_sees_new_contents(self):
        q, k, v = problem()
        call = attn.prepare(q, k, v)
        first = call()[0].copy()
        q += 1
        np.testing.assert_allclose(call()[0], softmax_attention(q, k, v)[0], rtol=1e-5, atol=1e-6)
        self.assertFalse(np.array_equal(first, call.out))


class DLPackOnly:
    """Something that only speaks DLPack, over a NumPy array."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **version):
        return self.array.__dlpack__(**version)

    def __dlpack_device__(self):
        return (1, 0)


class Sources(unittest.TestCase):
    def test_jax(self):
        try:
            import jax.numpy as jnp
        except ImportError:
            self.skipTest("jax is not installed")
        q, k, v = problem()
        for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
            given = [jnp.asarray(a, dtype) for a in (q, k, v)]
            out, lse = attn.attention(*given, return_lse=True)
            self.assertEqual((type(out), out.dtype, lse.dtype), (type(given[0]), dtype, jnp.float32))
            np.testing.assert_allclose(np.asarray(out, np.float32), softmax_attention(*(np.asarray(a, np.float64) for a in given))[0],
                                       atol=1e-5 if dtype == jnp.float32 else 2e-2)
            with self.assertRaises(attn.InvalidArgument):
                attn.attention(*given, out=given[0])
            made, target = arrays.empty((2, 3), arrays.borrow(given[0]))
            self.assertEqual((made.unsafe_buffer_pointer(), made.dtype), (target.data, dtype))  # written in place
            self.assertIsInstance(attn.prepare(*given)()[0], np.ndarray)
            gradients = attn.attention_backward(out, *given, out, lse)
            self.assertEqual([type(g) for g in gradients[:3]], [type(out)] * 3)

    def test_dlpack_and_buffers(self):
        q, k, v = problem()
        want = attn.attention(q, k, v)
        self.assertEqual(attn.attention(DLPackOnly(q), DLPackOnly(k), DLPackOnly(v)).tobytes(), want.tobytes())
        self.assertEqual(attn.attention(memoryview(q), memoryview(k), memoryview(v)).tobytes(), want.tobytes())
        out = np.empty_like(want)
        attn.attention(q, k, v, out=DLPackOnly(out))
        self.assertEqual(out.tobytes(), want.tobytes())

    def test_read_only_sources(self):
        q, k, v = problem()
        want = attn.attention(q, k, v).tobytes()
        q.flags.writeable = False
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # DLPack 1, which can say so
            self.assertEqual(attn.attention(DLPackOnly(q), k, v).tobytes(), want)
            with self.assertRaisesRegex(attn.InvalidArgument, "out cannot be written"):
                attn.rope(k, out=DLPackOnly(q))
        else:
            with self.assertRaisesRegex(attn.Unsupported, "query: "):
                attn.attention(DLPackOnly(q), k, v)

    def test_addresses(self):
        for array in (np.zeros(4), np.zeros((3, 4))[1:, ::2], np.zeros((2, 3))[::-1], np.zeros((0, 4)), np.zeros(())):
            self.assertEqual(arrays.address(array), array.ctypes.data)

    def test_outputs_must_be_writable(self):
        q, k, v = problem()
        frozen = np.zeros((2, 4, 5, 6), np.float32)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(attn.InvalidArgument, "out cannot be written"):
            attn.attention(q, k, v, out=frozen)
        out, lse = attn.attention(q, k, v, return_lse=True)
        want = attn.attention_backward(out, q, k, v, out, lse)
        for array in (q, out, lse):
            array.flags.writeable = False  # inputs of the backward pass
        self.assertEqual(attn.attention_backward(out, q, k, v, out, lse).key.tobytes(), want.key.tobytes())

    def test_unknown_things(self):
        q, k, v = problem()
        with self.assertRaisesRegex(attn.InvalidArgument, "query is a list"):
            attn.attention([1.0], k, v)
        with self.assertRaisesRegex(attn.Unsupported, "key has dtype complex64"):
            attn.attention(q, k.astype(np.complex64), v)
        with self.assertRaisesRegex(attn.Unsupported, "value has dtype >f4"):
            attn.attention(q, k, v.astype(">f4"))
        with self.assertRaisesRegex(attn.Unsupported, "query is a masked array"):
            attn.attention(np.ma.masked_array(q), k, v)

    def test_numbers_are_not_bent(self):
        q, k, v = problem()
        for message, rules in (("kv_len has dtype float64", {"kv_len": [1.5, 2]}), ("kv_len has values", {"kv_len": np.array([2**64 - 1, 1], "u8")}),
                               ("kv_len has dtype object", {"kv_len": [2**70, 1]}), ("window is 3", {"window": 3}),
                               (r"window\[0\] is 1.5", {"window": (1.5, 0)}), ("does not fit 64 bits", {"window": (2**70, 0)}),
                               ("query_offset is 0.5", {"query_offset": 0.5}), ("scale is 'x'", {"scale": "x"}),
                               ("sinks is a str", {"sinks": "ab"}), ("block_table has values", {"block_table": [[2**32], [1]]}),
                               ("block_table has dtype", {"block_table": [[0.5], [1]]}), ("seq_kv is '7'", {"seq_kv": "7"})):
            with self.subTest(message), self.assertRaisesRegex(attn.InvalidArgument, message):
                attn.attention(q, k, v, **rules)
        for call in (lambda: attn.rope(q, positions=[0.5] * 5), lambda: attn.rope(q, out=q[0]), lambda: attn.rows(q, k, [(0.5, 0, 0)]),
                     lambda: attn.topk(q, k, -1), lambda: attn.Context("2")):
            self.assertRaises(attn.InvalidArgument, call)
        got = attn.attention(q, k, v, causal=True, query_offset=np.int32(2)).tobytes()
        self.assertEqual(got, attn.attention(q, k, v, causal=True, query_offset=[2, 2]).tobytes())

    def test_wrong_arguments_name_their_field(self):
        q, _, _ = problem = [np.ones((1, 2, 3, 4), np.float32)] * 3
        out, lse = attn.attention(*problem, return_lse=True)
        for message, call in (
                ("dropout_seed is 1.5", lambda: attn.attention(*problem, dropout_p=0.5, dropout_seed=1.5)),
                ("dropout_seed is %d, which" % 2**70, lambda: attn.attention(*problem, dropout_p=0.5, dropout_seed=2**70)),
                ("context is a str", lambda: attn.attention(*problem, context="two threads")),
                ("query_offset is 1.0", lambda: attn.attention(*problem, causal=True, query_offset=1.0)),
                ("kv_len has dtype float64", lambda: attn.attention(*problem, kv_len=[3.0])),
                ("d_lse is a str", lambda: attn.attention_backward(out, *problem, out, lse, d_lse="a")),
                ("there is no relative table", lambda: attn.attention_backward(out, *problem, out, lse, want_relative=True)),
                (r"rows is 5; a list of \(batch", lambda: attn.rows(q, q, 5)),
                (r"rows is \(0, 0, 1\)", lambda: attn.rows(q, q, (0, 0, 1))),
                (r"lses\[0\] is a list", lambda: attn.merge([out], [["a"]])),
                ("scaling is \\[\\]", lambda: attn.rope(q, scaling=[])),
                ("cos_table and sin_table go together", lambda: attn.rope(q, cos_table=np.ones((3, 2), np.float32))),
                ("n_threads is -5", lambda: attn.Context(threads=-5))):
            # What they are once equal values of the right type have been kept:
            attn.attention(*problem, causal=True, query_offset=1)
            attn.attention(*problem, kv_len=[3])
            with self.subTest(message), self.assertRaisesRegex(attn.InvalidArgument, message):
                call()
        with self.assertRaisesRegex(TypeError, "is_causal is no keyword of attention"):
            attn.attention(*problem, is_causal=True)
        with self.assertRaisesRegex(TypeError, "a Call cannot be copied"):
            copy.copy(attn.prepare(*problem))

    def test_names_of_the_other_operator(self):
        q, k, v = problem(n_heads=2, seq_kv=5)
        for name, given in (("causal", True), ("mask", np.ones((5, 5), bool))):
            with self.assertRaisesRegex(attn.InvalidArgument, "is_causal and attn_mask"):
                attn.scaled_dot_product_attention(q, k, v, **{name: given})

    def test_nothing_in_nothing_out(self):
        q, k, v = problem(value_dim=8)
        none = attn.attention(q, k[:, :, :0], v[:, :, :0], return_lse=True)
        self.assertTrue((none[0] == 0).all() and np.isneginf(none[1]).all())
        found = attn.attention_backward(q, q, k[:, :, :0], v[:, :, :0], *none)
        self.assertTrue((found.query == 0).all() and found.key.shape == (2, 2, 0, 8))
        self.assertEqual(attn.attention(q[:0], k[:0], v[:0]).shape, (0, 4, 5, 8))
        self.assertEqual(attn.rows(q, k, []).shape, (0, 7))


class Caches(unittest.TestCase):
    def test_misuse(self):
        q, k, v = problem(value_dim=8, n_heads=2)
        for message, sizes in (("batch is -1", (-1, 2, 8, 8)), ("block_size is 0", (2, 2, 8, 8, 8, "f4", 0)), ("capacity is 8.5", (2, 2, 8.5, 8))):
            with self.assertRaisesRegex(attn.InvalidArgument, message):
                attn.KVCache(*sizes)
        cache = attn.KVCache(2, 2, 8, 8)
        for bad in (lambda: cache.decode(q[0, 0], k[0, 0], v[0, 0]), lambda: cache.decode(q, None, None), lambda: cache.truncate(1),
                    lambda: cache.truncate(0, 2), lambda: cache.truncate(0, -1), lambda: cache.truncate(0.5),
                    lambda: cache.decode(q, k, v, new_len=[1.5, 2]), lambda: attn.decode(q, k, v, k[0], v[0], [0, 0])):
            self.assertRaises(attn.InvalidArgument, bad)
        self.assertEqual(cache.lengths.tolist(), [0, 0])

    def test_pages_are_kept_where_there_are_not_enough(self):
        q, k, v = problem(value_dim=8, n_heads=2, seq_kv=5)
        cache = attn.KVCache(2, 2, 8, 8, block_size=4, n_blocks=3)
        with self.assertRaisesRegex(attn.InvalidArgument, "no free block for sequence 1 at token 4"):
            cache.decode(q, k, v)
        self.assertTrue((cache.block_table == -1).all())
        cache.decode(q[:, :, :4], k[:, :, :4], v[:, :, :4])
        self.assertEqual(cache.lengths.tolist(), [4, 4])


class Errors(unittest.TestCase):
    def test_text_of_the_library(self):
        q, k, v = problem()
        with self.assertRaisesRegex(attn.InvalidArgument, "seq_q 5 and seq_kv 7"):
            attn.attention(q, k, v, causal=True)
        with self.assertRaises(ValueError):
            attn.attention(q, k[..., :4], v)
        with self.assertRaises(attn.AttnError) as caught:
            attn.attention(q, k, v, kv_len=[8, 1])
        self.assertEqual(caught.exception.status, -1)
        self.assertIn("kv_len", str(caught.exception))

    def test_outputs_untouched(self):
        q, k, v = problem()
        out = np.full((2, 4, 5, 6), 7, np.float32)
        with self.assertRaises(attn.InvalidArgument):
            attn.attention(q, k, v, out=out, causal=True)
        self.assertTrue((out == 7).all())

    def test_context_options(self):
        with self.assertRaises(attn.InvalidArgument):
            attn.Context(isa="mmx")
        with self.assertRaises(attn.InvalidArgument):
            attn.Context(threads=-1)
        self.assertEqual(attn.Context(threads=3).threads, 3)
        self.assertEqual(attn.Context(isa="scalar").isa, "scalar")
        with self.assertRaises(attn.InvalidArgument):
            attn.set_default(isa="mmx")
        self.assertNotEqual(attn.default_context().isa, "mmx")

    def test_a_copy_is_a_context_of_its_own(self):
        context = attn.Context(1, "scalar")
        for made in (copy.copy(context), copy.deepcopy(context), pickle.loads(pickle.dumps(context))):
            self.assertEqual((made.isa, made.threads), ("scalar", 1))
            self.assertNotEqual(made.handle.value, context.handle.value)


class Processes(unittest.TestCase):
    def test_threads_give_the_same_bits(self):
        q, k, v = problem(seq_q=64, seq_kv=64)
        want = attn.attention(q, k, v).tobytes()
        shared = attn.Context(threads=2)
        wrong = []

        def work(context):
            for _ in range(20):
                if attn.attention(q, k, v, context=context).tobytes() != want:
                    wrong.append(context)
        workers = [threading.Thread(target=work, args=(c,)) for c in (None, None, shared, shared)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        self.assertEqual(wrong, [])

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_after_fork(self):
        q, k, v = problem(seq_q=64, seq_kv=64)
        context = attn.Context(threads=2)
        want = attn.attention(q, k, v, context=context).tobytes()
        attn.attention(q, k, v)
        child = os.fork()
        if child == 0:
            good = attn.attention(q, k, v, context=context).tobytes() == want and attn.attention(q, k, v).tobytes() == want
            os._exit(0 if good else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(attn.attention(q, k, v, context=context).tobytes(), want)

    @unittest.skipUnless(hasattr(signal, "setitimer"), "needs signals")
    def test_a_signal_handler_may_call_too(self):
        q, k, v = problem(seq_q=512, seq_kv=512, dim=64, value_dim=64)
        calls = []
        before = signal.signal(signal.SIGALRM, lambda *_: calls.append(attn.attention(q[:, :, :8], k, v)))
        try:
            for _ in range(2000):
                signal.setitimer(signal.ITIMER_REAL, 0.001)  # arrives within the call, where its context is held
                attn.attention(q, k, v)
                if len(calls) >= 3:
                    break
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertGreaterEqual(len(calls), 3)

    def test_the_gil_is_released(self):
        self.assertIsInstance(attn.library.lib, ctypes.CDLL)  # CDLL releases the lock during a call; PyDLL would not
        self.assertNotIsInstance(attn.library.lib, ctypes.PyDLL)


if __name__ == "__main__":
    unittest.main()
