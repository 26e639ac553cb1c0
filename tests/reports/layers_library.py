"""attn/layers.h through ctypes, as far as the case runner and the conformance adapter need it."""
import ctypes
import os
import sys
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]
import model_binding  # noqa: E402
from attn.library import Mask, View  # noqa: E402

DTYPE = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}
ACT = {"relu": 1, "silu": 2, "gelu_erf": 3, "gelu_tanh": 4}
ADD_ZERO = 2
NORM_RMS, NORM_LAYER = 0, 1


class LayerError(Exception):
    """A call of a layer failed; the text names field and value."""


def _struct(name, text):
    """A ctypes struct from lines of "type: names"."""
    types = {"size": c_size_t, "i32": c_int32, "i64": c_int64, "u64": c_uint64, "f64": c_double, "ptr": c_void_p,
             "mask": Mask, "view": View, "w": Weights if "Weights" in globals() else None}
    fields = []
    for line in text.strip().split("\n"):
        kind, names = line.split(":")
        fields += [(n, types[kind.strip()]) for n in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


WEIGHTS = "w_query w_key w_value w_out b_query b_key b_value b_out bias_k bias_v sinks"
Weights = _struct("Weights", "ptr: " + WEIGHTS)
Activation = _struct("Activation", "size: struct_size\ni32: dtype act\ni64: n\nptr: x up y")
Norm = _struct("Norm", "size: struct_size\ni32: dtype kind\ni64: rows n\nf64: eps offset\nptr: x\ni64: ldx\nptr: weight bias y\ni64: ldy")
Loss = _struct("Loss", "size: struct_size\ni32: dtype reserved\ni64: rows d_model vocab\nptr: x\ni64: ldx\nptr: weight bias targets\n"
               "i32: ignore_index reserved2\nf64: label_smoothing gradient_scale\nptr: loss n_counted n_correct row_loss")
LossGradients = _struct("LossGradients", "size: struct_size\nu64: flags\nptr: d_x\ni64: ld_dx\nptr: weight bias")
Mha = _struct("Mha", "size: struct_size\ni32: dtype reserved\ni64: batch seq_q seq_kv d_query d_key d_value n_heads n_kv_heads "
              "head_dim value_dim d_out\nptr: query\ni64: ld_query\nptr: key\ni64: ld_key\nptr: value\ni64: ld_value\nw: weights\n"
              "mask: mask\nf64: scale softcap\nu64: flags\nptr: rope\nf64: dropout_p\nu64: dropout_seed\nptr: out\ni64: ld_out\n"
              "ptr: weight_rows\ni64: n_weight_rows\nptr: row_weights mean_weights saved")
MhaGradients = _struct("MhaGradients", "size: struct_size\nu64: flags\nptr: d_out\ni64: ld_dout\nptr: d_query\ni64: ld_dquery\n"
                       "ptr: d_key\ni64: ld_dkey\nptr: d_value\ni64: ld_dvalue\nw: weights\nptr: d_relative\nview: d_bias")


def init(struct, /, **fields):
    args = struct()
    args.struct_size = ctypes.sizeof(struct)
    for name, value in fields.items():
        setattr(args, name, value)
    return args


def pointer(array):
    return None if array is None else array.ctypes.data


def view(array, shape, dtype):
    """A contiguous array seen with four axes; axes of extent 1 broadcast."""
    v = View()
    v.data, v.dtype = array.ctypes.data, dtype
    strides = np.cumprod([1] + list(shape[:0:-1]))[::-1]
    for i in range(4):
        v.shape[i], v.stride[i] = shape[i], int(strides[i])
    return v


class Layers:
    """One context of layers; arrays in, arrays out."""

    def __init__(self):
        library = model_binding._library
        if library is None or not hasattr(library, "attn_layers_create"):
            raise model_binding.Skipped("libattn_model is not built")
        self.library, self.handle = library, c_void_p()
        library.attn_layers_error.restype, library.attn_layers_error.argtypes = c_char_p, [c_void_p]
        library.attn_layers_create.restype = c_int
        library.attn_layers_create.argtypes = [c_void_p, POINTER(c_void_p)]
        if library.attn_layers_create(None, ctypes.byref(self.handle)):
            raise LayerError(library.attn_layers_error(None).decode())

    def call(self, name, *args):
        function = getattr(self.library, name)
        function.restype, function.argtypes = c_int, [c_void_p] + [c_void_p] * len(args)
        if function(self.handle, *[a if a is None else ctypes.addressof(a) for a in args]):
            raise LayerError(self.library.attn_layers_error(self.handle).decode())

    def activation(self, x, act):
        y = np.empty_like(x)
        self.call("attn_activation_forward", init(Activation, dtype=DTYPE[x.dtype], act=ACT[act], n=x.size, x=pointer(x),
                                                  y=pointer(y)))
        return y

    def norm(self, x, kind, eps, weight, bias=None):
        y = np.empty_like(x)
        rows = x.size // x.shape[-1]
        self.call("attn_norm_forward", init(Norm, dtype=DTYPE[x.dtype], kind=kind, rows=rows, n=x.shape[-1], eps=eps,
                                            x=pointer(x), weight=pointer(weight), bias=pointer(bias), y=pointer(y)))
        return y

    def cross_entropy(self, logits, targets, ignore_index, gradient_scale=0.0):
        """Sum of the losses, number of counted rows, gradient."""
        loss, counted = np.zeros(1), np.zeros(1, np.int64)
        targets = np.ascontiguousarray(targets, np.int32).reshape(-1)
        d = np.empty_like(logits)
        n = logits.shape[-1]
        args = init(Loss, dtype=DTYPE[logits.dtype], rows=targets.size, d_model=n, vocab=n, x=pointer(logits),
                    targets=pointer(targets), ignore_index=ignore_index, gradient_scale=gradient_scale, loss=pointer(loss),
                    n_counted=pointer(counted))
        self.call("attn_cross_entropy", args, init(LossGradients, d_x=pointer(d)))
        return loss[0], int(counted[0]), d

    def mha(self, q, k, v, n_heads, head_dim, weights, bias=None, allow=None, add_zero=False, d_out=None, d_bias=None,
            average=None):
        """Rows q, k, v are [batch, seq, width]. weights: name of WEIGHTS to array. Returns a dict of arrays: out, weights
        (average: None for none), and with d_out all gradients (d_bias: an array of four axes to fill)."""
        dtype = DTYPE[q.dtype]
        q, k, v = (np.ascontiguousarray(x) for x in (q, k, v))
        weights = {n: np.ascontiguousarray(w) for n, w in weights.items()}
        batch, seq_q, seq_kv = q.shape[0], q.shape[1], k.shape[1]
        keys = seq_kv + ("bias_k" in weights) + bool(add_zero)
        width = weights["w_out"].shape[0] if "w_out" in weights else n_heads * head_dim
        result = {"out": np.empty((batch, seq_q, width), q.dtype)}
        args = init(Mha, dtype=dtype, batch=batch, seq_q=seq_q, seq_kv=seq_kv, d_query=q.shape[2], d_key=k.shape[2],
                    d_value=v.shape[2], n_heads=n_heads, head_dim=head_dim, d_out=width, query=pointer(q), key=pointer(k),
                    value=pointer(v), flags=ADD_ZERO if add_zero else 0, out=pointer(result["out"]))
        for name, w in weights.items():
            setattr(args.weights, name, pointer(w))
        if bias is not None:
            args.mask.bias = view(bias, bias.shape, dtype)
        if allow is not None:
            args.mask.allow = view(allow, allow.shape, 5)
        if average is True:
            result["weights"] = np.empty((batch, seq_q, keys), q.dtype)
            args.mean_weights = pointer(result["weights"])
        elif average is False:
            result["weights"] = np.empty((batch, n_heads, seq_q, keys), q.dtype)
            args.row_weights = pointer(result["weights"])
        size = c_size_t()
        self.call("attn_mha_saved_bytes", args, size)
        memory = np.empty(size.value + 64, np.uint8)
        args.saved = (memory.ctypes.data + 63) // 64 * 64
        self.call("attn_mha_forward", args)
        if d_out is None:
            return result
        d_out = np.ascontiguousarray(d_out)
        grads = init(MhaGradients, d_out=pointer(d_out))
        for name, x in (("query", q), ("key", k), ("value", v)):
            result["d_" + name] = np.empty_like(x)
            setattr(grads, "d_" + name, pointer(result["d_" + name]))
        for name, w in weights.items():
            result["d_" + name] = np.zeros_like(w)
            setattr(grads.weights, name, pointer(result["d_" + name]))
        if d_bias is not None:
            grads.d_bias = view(d_bias, d_bias.shape, dtype)
        self.call("attn_mha_backward", args, grads)
        return result
