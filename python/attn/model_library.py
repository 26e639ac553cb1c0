"""Finds and loads libattn_model, and spells out the parts of attn/model.h and attn/tokenizer.h that attn.Model uses."""
from __future__ import annotations

import ctypes
import os
import threading
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32,
                    c_uint64, c_void_p)
from typing import Any, Dict, List, Tuple

from . import library
from .errors import ModelLibraryMissing

WEIGHTS = {"stored": 0, "f32": 1, "bf16": 2, "int8": 3}
LOAD_NO_TOKENIZER = 1
KINDS = ("decoder", "encoder", "encoder-decoder")
TEXT_NO_SPECIAL, TEXT_SKIP_SPECIAL, TEXT_PLAIN = 1, 2, 4
LOGITS_LAST, LOGITS_ALL = 0, 1
EDIT_HEAD, EDIT_KNOCKOUT, EDIT_REMOVE, EDIT_REPLACE = range(4)
SAMPLING_TOP_P_GIVEN, SAMPLING_PENALTY_GIVEN = 1, 2
GENERATE_IGNORE_EOS, GENERATE_ENCODE = 1, 2
CHAT_NO_PROMPT = 1
STOP_REASONS = ("length", "eos", "context", "callback", "text")
POOLING = {"default": 0, "mean": 1, "first": 2, "max": 3, "last": 4, "weighted": 5, "sqrt": 6}
ENCODE_NO_SPECIAL, ENCODE_SPECIALS_AS_TEXT = 1, 2

Progress = CFUNCTYPE(c_int, c_void_p, c_int64, c_int64)


class ModelOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("n_threads", c_int32), ("weights", c_int32), ("flags", c_uint32),
                ("reserved", c_int32), ("progress", c_void_p), ("progress_user", c_void_p)]


class ModelInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("family", c_char_p), ("name", c_char_p), ("file_format", c_char_p),
                ("weights", c_char_p), ("kind", c_int32), ("has_logits", c_int32), ("n_layers", c_int64),
                ("n_encoder_layers", c_int64), ("d_model", c_int64), ("d_ff", c_int64), ("n_heads", c_int64),
                ("n_kv_heads", c_int64), ("head_dim", c_int64), ("value_dim", c_int64), ("vocab_size", c_int64),
                ("context_length", c_int64), ("window", c_int64), ("n_parameters", c_int64), ("weight_bytes", c_int64),
                ("cache_bytes_per_token", c_int64), ("rope_base", c_double), ("embed_tokens", c_int64),
                ("embed_prompt", c_char_p), ("query_prompt", c_char_p)]


class SessionOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("batch", c_int64), ("capacity", c_int64), ("n_threads", c_int32),
                ("kv_dtype", c_int32), ("max_isa", c_int32), ("reserved", c_int32)]


class AttentionRow(Structure):
    _fields_ = [("layer", c_int64), ("entry", c_int64), ("head", c_int64), ("query", c_int64), ("kind", c_int32),
                ("reserved", c_int32)]


class Edit(Structure):
    _fields_ = [("layer", c_int64), ("entry", c_int64), ("head", c_int64), ("query", c_int64), ("key", c_int64),
                ("value", c_void_p), ("kind", c_int32), ("attention", c_int32)]


class ForwardArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("tokens", c_void_p), ("n_tokens", c_int64), ("keep", c_void_p),
                ("token_types", c_void_p), ("logits_rows", c_int32), ("n_edits", c_int32), ("logits", c_void_p),
                ("last_hidden", c_void_p), ("hidden_states", c_void_p), ("pooled", c_void_p), ("rows", c_void_p),
                ("n_rows", c_int64), ("row_weights", c_void_p), ("row_stride", c_int64), ("edits", c_void_p),
                ("hook", c_void_p), ("hook_user", c_void_p), ("progress", c_void_p), ("progress_user", c_void_p)]


class ChatMessage(Structure):
    _fields_ = [("role", c_char_p), ("content", c_char_p), ("n_bytes", c_size_t)]


class Sampling(Structure):
    _fields_ = [("struct_size", c_size_t), ("temperature", c_double), ("top_k", c_int64), ("top_p", c_double),
                ("min_p", c_double), ("repetition_penalty", c_double), ("seed", c_uint64), ("flags", c_uint32),
                ("reserved", c_uint32)]


class Generated(Structure):
    _fields_ = [("entry", c_int64), ("step", c_int64), ("token", c_int32), ("reserved", c_int32), ("logprob", c_double),
                ("text", c_void_p), ("n_bytes", c_size_t), ("logits", c_void_p)]


ProgressCallback = CFUNCTYPE(c_int, c_void_p, c_int64, c_int64)
TokenCallback = CFUNCTYPE(c_int, c_void_p, POINTER(Generated))


class GenerateArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("prompts", c_void_p), ("prompt_lengths", c_void_p), ("max_new", c_int64),
                ("sampling", Sampling), ("seeds", c_void_p), ("stop_tokens", c_void_p), ("n_stop_tokens", c_int64),
                ("stop_texts", POINTER(c_char_p)), ("n_stop_texts", c_int64), ("flags", c_uint32), ("reserved", c_uint32),
                ("callback", c_void_p), ("callback_user", c_void_p), ("tokens", c_void_p), ("token_stride", c_int64),
                ("n_generated", c_void_p), ("stop_reasons", c_void_p)]


class EmbedArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("tokens", c_void_p), ("lengths", c_void_p), ("n_texts", c_int64),
                ("pooling", c_int32), ("no_normalize", c_int32), ("embeddings", c_void_p), ("progress", c_void_p),
                ("progress_user", c_void_p)]


class EncodeOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("flags", c_uint32), ("reserved", c_int32), ("max_length", c_int64)]


STRUCTS = {"attn_model_options": ModelOptions, "attn_model_info": ModelInfo, "attn_session_options": SessionOptions,
           "attn_attention_row": AttentionRow, "attn_edit": Edit, "attn_sampling": Sampling, "attn_generated": Generated, "attn_chat_message": ChatMessage,
           "attn_generate_args": GenerateArgs, "attn_embed_args": EmbedArgs, "attn_encode_options": EncodeOptions}

_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "attn_model_load": (c_int, [c_char_p, POINTER(ModelOptions), POINTER(c_void_p)]),
    "attn_model_destroy": (None, [c_void_p]),
    "attn_model_error": (c_char_p, [c_void_p]),
    "attn_model_get_info": (c_int, [c_void_p, POINTER(ModelInfo)]),
    "attn_model_tokenizer": (c_void_p, [c_void_p]),
    "attn_model_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_uint32, c_void_p, c_int64, POINTER(c_int64)]),
    "attn_model_detokenize": (c_int, [c_void_p, c_void_p, c_int64, c_uint32, c_char_p, c_size_t, POINTER(c_size_t)]),
    "attn_model_chat": (c_int, [c_void_p, POINTER(ChatMessage), c_int64, c_uint32, c_char_p, c_size_t, POINTER(c_size_t)]),
    "attn_session_create": (c_int, [c_void_p, POINTER(SessionOptions), POINTER(c_void_p)]),
    "attn_session_destroy": (None, [c_void_p]),
    "attn_model_forward": (c_int, [c_void_p, POINTER(ForwardArgs)]),
    "attn_model_forward_encoder": (c_int, [c_void_p, POINTER(ForwardArgs)]),
    "attn_generate": (c_int, [c_void_p, POINTER(GenerateArgs)]),
    "attn_embed": (c_int, [c_void_p, POINTER(EmbedArgs)]),
    "attn_tokenizer_error": (c_char_p, []),
    "attn_tokenizer_load": (c_int, [c_char_p, POINTER(c_void_p)]),
    "attn_tokenizer_destroy": (None, [c_void_p]),
    "attn_tokenizer_size": (c_int64, [c_void_p]),
    "attn_tokenizer_token": (POINTER(ctypes.c_char), [c_void_p, c_int32, POINTER(c_size_t)]),
    "attn_tokenizer_id": (c_int32, [c_void_p, c_char_p, c_size_t]),
    "attn_tokenizer_special": (c_int32, [c_void_p, c_int32]),
    "attn_encoding_create": (c_int, [POINTER(c_void_p)]),
    "attn_encoding_destroy": (None, [c_void_p]),
    "attn_tokenizer_encode": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(EncodeOptions), c_void_p]),
    "attn_encoding_length": (c_int64, [c_void_p]),
    "attn_encoding_ids": (POINTER(c_int32), [c_void_p]),
    "attn_encoding_char_offsets": (POINTER(c_int64), [c_void_p]),
    "attn_tokenizer_decode": (c_int, [c_void_p, c_void_p, c_int64, c_uint32, c_char_p, c_size_t, POINTER(c_size_t)]),
}

_REMEDY = ("it is built with the wheel where jansson, PCRE2 and utf8proc are installed (Debian: apt-get install "
           "libjansson-dev libpcre2-dev libutf8proc-dev pkg-config, then pip install --force-reinstall . in a clone); or set "
           "ATTN_MODEL_LIBRARY to a libattn_model.so")


def _candidates() -> List[str]:
    given = os.environ.get("ATTN_MODEL_LIBRARY")
    if given:
        return [given]
    return [os.path.join(os.path.dirname(library.PATH), "libattn_model.so")]


_lock = threading.Lock()
_loaded: List[ctypes.CDLL] = []


def load() -> ctypes.CDLL:
    """The library, loaded at the first call. Raises ModelLibraryMissing, which says what to do."""
    with _lock:
        if _loaded:
            return _loaded[0]
        paths = _candidates()
        path = next((p for p in paths if os.path.exists(p)), None)
        if path is None:
            raise ModelLibraryMissing("libattn_model.so is not at %s: %s" % (" or ".join(paths), _REMEDY))
        try:
            found = ctypes.CDLL(os.path.abspath(path))  # libattn itself is loaded already
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(found, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise ModelLibraryMissing("%s cannot be used (%s); on Debian it needs libjansson4, libpcre2-8-0 and libutf8proc2, "
                                      "and to be of the same build as %s" % (path, error, library.PATH)) from None
        _loaded.append(found)
        return found
