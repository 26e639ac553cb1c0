"""attn_implementation="attn" for Hugging Face Transformers and sentence-transformers, on CPU.

    import attn.transformers                                              # registers the name
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="attn")
    model = SentenceTransformer(path, model_kwargs={"attn_implementation": "attn"})

Transformers describes masks as functions of positions. The common ones (causal, sliding windows, padding, packed sequences)
become rules of the operator: a window, lengths, boundaries; no matrix of seq_q x seq_kv is made. What is not recognised (a
mask function of the user's own, chunks, blocks) becomes the boolean matrix that "sdpa" would get. Soft caps, sinks, dropout,
gradients and attention biases are served; on other devices than the CPU, and under torch.compile, torch.export and
torch.jit.trace, "sdpa" is called.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor
from transformers import masking_utils, modeling_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from . import torch_ops
from .torch_hooks import dropout_seed

NAME = "attn"


# ---- Masks -----------------------------------------------------------------------------------------
class RuleMask(torch.Tensor):  # type: ignore[misc]
    """A boolean mask [batch, 1, seq_q, seq_kv] known by its rules. It takes no memory until something reads it: any
    operation on it first makes the real tensor, so code that slices or combines masks stays right."""

    @staticmethod
    def make(shape: Tuple[int, ...], rules: torch_ops.Rules, dense: Callable[[], Tensor]) -> Any:
        """rules: torch_ops.Rules without scale, softcap and dropout; dense: a function that makes the real mask."""
        mask = torch.zeros((), dtype=torch.bool).expand(shape).as_subclass(RuleMask)
        mask.rules, mask.make_dense, mask.segments = rules, dense, None
        return mask

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _SAME:
            return args[0]
        if function in _DESCRIBING:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        return function(*(_dense(a) for a in args), **{n: _dense(a) for n, a in (kwargs or {}).items()})


_SAME = {torch.Tensor.contiguous, torch.Tensor.detach, torch.Tensor.clone}
_DESCRIBING = {torch.Tensor.shape.__get__, torch.Tensor.dtype.__get__, torch.Tensor.device.__get__, torch.Tensor.ndim.__get__,
               torch.Tensor.layout.__get__, torch.Tensor.requires_grad.__get__, torch.Tensor.is_cuda.__get__,
               torch.Tensor.dim, torch.Tensor.size, torch.Tensor.is_floating_point, torch.Tensor.__len__, torch.is_floating_point}


def _dense(value: Any) -> Any:
    if isinstance(value, RuleMask):
        return value.make_dense()
    if isinstance(value, (tuple, list)):
        return type(value)(_dense(v) for v in value)
    return value


class _Unknown(Exception):
    """A mask function that is not one of Transformers' own, or in a combination that has no rule."""


def _closure(function: Any, outer: str) -> Optional[Dict[str, Any]]:
    """The variables that a function made by masking_utils.<outer> closes over; None for any other function."""
    if getattr(function, "__module__", None) != masking_utils.__name__ \
            or not function.__qualname__.startswith(outer + ".<locals>."):
        return None
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))


def _read(function: Any, found: Dict[str, Any]) -> None:
    """Adds what a mask function says to found: causal, left, right, and lists of padding and packing tensors."""
    if function is masking_utils.causal_mask_function:
        found["causal"] = True
    elif function is masking_utils.bidirectional_mask_function:
        pass
    elif (variables := _closure(function, "and_masks")) is not None:
        for part in variables["mask_functions"]:
            _read(part, found)
    elif (variables := _closure(function, "sliding_window_overlay")) is not None:
        found["left"] = min(found["left"], variables["sliding_window"] - 1)
    elif (variables := _closure(function, "sliding_window_bidirectional_overlay")) is not None:
        found["left"] = min(found["left"], variables["sliding_window"])
        found["right"] = min(found["right"], variables["sliding_window"])
    elif (variables := _closure(function, "padding_mask_function")) is not None:
        found["padding"].append(variables["padding_mask"])
    elif (variables := _closure(function, "packed_sequence_mask_function")) is not None:
        found["packed"].append(variables["packed_sequence_mask"])
    elif (variables := _closure(function, "remap_positions_for_packed_sequence")) is not None:
        # Positions count from the start of each packed sequence: distances inside one are what they were.
        found["remapped"] = True
        _read(variables["mask_function"], found)
    else:
        raise _Unknown


_OPEN = 1 << 62


def read_mask_function(function: Any) -> Optional[Dict[str, Any]]:
    """What a mask function of Transformers says, as a dict; None where it is not wholly understood."""
    found: Dict[str, Any] = {"causal": False, "left": _OPEN, "right": _OPEN, "padding": [], "packed": [], "remapped": False}
    try:
        _read(function, found)
    except (_Unknown, KeyError, ValueError):
        return None
    if found["remapped"] and not found["packed"]:
        return None  # positions that jump inside one sequence
    return found


def _starts(packed: Tensor) -> Tensor:
    """Boundaries [segments + 1] of the packed sequences of a whole batch laid end to end; packed [batch, seq]."""
    batch, seq = packed.shape
    new = torch.ones_like(packed, dtype=torch.bool)
    new[:, 1:] = packed[:, 1:] != packed[:, :-1]
    starts = new.reshape(-1).nonzero().reshape(-1)
    return torch.cat([starts, starts.new_tensor([batch * seq])])


def _padding(keep: Tensor, kv_length: int, kv_offset: int) -> Tuple[Any, Optional[Tensor]]:
    """(lengths, allow) of a 2-D padding mask, both None where nothing is hidden."""
    keep = keep[:, kv_offset:kv_offset + kv_length]
    if bool(keep.all()):
        return None, None
    lengths = torch_ops.lengths_of(keep)
    if lengths is not None:  # hidden keys at the end only
        return lengths, None
    return None, keep[:, None, None, :].contiguous()


def attn_mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
              mask_function: Any = masking_utils.causal_mask_function, attention_mask: Optional[Tensor] = None,
              use_vmap: bool = False, device: Any = "cpu", **kwargs: Any) -> Any:
    """What Transformers calls to make the mask of a forward pass (an AttentionMaskInterface function)."""
    for name in ("allow_is_causal_skip", "allow_is_bidirectional_skip"):
        kwargs.pop(name, None)

    def dense() -> Any:
        return masking_utils.sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=mask_function, attention_mask=attention_mask, use_vmap=use_vmap, device=device,
            allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **kwargs)

    if torch.device(device).type != "cpu" or torch_ops.recorded():
        return dense()
    found = read_mask_function(mask_function)
    if found is None or len(found["packed"]) > 1:
        return dense()
    if found["packed"] and (found["padding"] or attention_mask is not None or q_length != kv_length):
        return dense()
    keep = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    for more in found["padding"]:
        keep = more if keep is None else keep & more
    lengths, allow = (None, None) if keep is None else _padding(keep.bool(), kv_length, int(kv_offset))
    rules = torch_ops.Rules(allow=allow, lengths=lengths, causal=found["causal"], offset=int(q_offset) - int(kv_offset),
                            left=-1 if found["left"] == _OPEN else found["left"],
                            right=-1 if found["right"] == _OPEN else found["right"])
    mask = RuleMask.make((batch_size, 1, q_length, kv_length), rules, dense)
    if found["packed"]:
        starts = _starts(found["packed"][0].expand(batch_size, -1)).numpy()
        mask.segments = rules._replace(starts_q=starts, starts_k=starts, offset=None)
    return mask


# ---- Attention -------------------------------------------------------------------------------------
def _end_to_end(tensor: Tensor) -> Tensor:
    """[batch, heads, seq, dim] as [1, heads, batch * seq, dim]."""
    batch, heads, seq, dim = tensor.shape
    return tensor if batch == 1 else tensor.transpose(0, 1).reshape(1, heads, batch * seq, dim)


def _starts_given(kwargs: Dict[str, Any]) -> Tuple[Any, Any]:
    """Boundaries that the caller passed for packed sequences (DataCollatorWithFlattening), or (None, None)."""
    starts_q, starts_k = kwargs.get("cu_seq_lens_q"), kwargs.get("cu_seq_lens_k")
    if starts_q is None or starts_k is None:
        return None, None
    return starts_q.to(torch.int64).numpy(), starts_k.to(torch.int64).numpy()


def _rules_of(module: Any, query: Tensor, key: Tensor, attention_mask: Any, is_causal: Optional[bool],
              kwargs: Dict[str, Any]) -> Tuple[torch_ops.Rules, Optional[Tensor]]:
    """(rules, float mask) of one call."""
    if isinstance(attention_mask, RuleMask):
        return attention_mask.segments or attention_mask.rules, None
    starts_q, starts_k = _starts_given(kwargs)
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if starts_q is not None and query.shape[0] == 1 and attention_mask is None:
        window = kwargs.get("sliding_window") or 0
        return torch_ops.Rules(starts_q=starts_q, starts_k=starts_k, causal=bool(is_causal), left=window - 1), None
    if attention_mask is None:  # as "sdpa": causal is aligned top-left
        causal = bool(is_causal) and query.shape[2] > 1
        return torch_ops.Rules(causal=causal, offset=0 if causal else None), None
    attention_mask = attention_mask[..., :key.shape[2]]
    if attention_mask.dtype == torch.bool:
        return torch_ops.Rules(allow=attention_mask), None
    return torch_ops.Rules(), attention_mask


def _served(query: Tensor, key: Tensor, value: Tensor) -> bool:
    return query.device.type == "cpu" and not torch_ops.recorded() and query.dtype == key.dtype == value.dtype \
        and query.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16) and query.dim() == 4


def attn_attention_forward(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, dropout: float = 0.0,
                           scaling: Optional[float] = None, is_causal: Optional[bool] = None,
                           position_bias: Optional[Tensor] = None, softcap: Optional[float] = None,
                           s_aux: Optional[Tensor] = None, **kwargs: Any) -> Tuple[Tensor, None]:
    """What Transformers calls in each attention layer (an AttentionInterface function).

    query [batch, n_heads, seq_q, head_dim], key and value [batch, n_kv_heads, seq_kv, ...]; returns the output as
    [batch, seq_q, n_heads, value_dim], and None for the weights, which are never made (attn.rows gives chosen ones)."""
    if torch.is_autocast_enabled("cpu") and query.device.type == "cpu":
        to = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(to), key.to(to), value.to(to)
    if not _served(query, key, value):
        if softcap is not None or s_aux is not None:
            raise NotImplementedError("attn serves softcap and sinks on the CPU, outside torch.compile; use \"eager\" here")
        mask = _dense(attention_mask)
        result: Tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, mask, dropout=dropout, scaling=scaling,
                                                             is_causal=is_causal, position_bias=position_bias, **kwargs)
        return result
    rules, bias = _rules_of(module, query, key, attention_mask, is_causal, kwargs)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    rules = rules._replace(scale=scaling, softcap=softcap or 0.0, dropout_p=dropout, seed=dropout_seed(dropout))
    shape = query.shape
    if rules.starts_q is not None:
        query, key, value = _end_to_end(query), _end_to_end(key), _end_to_end(value)
    out = torch_ops.attention(query, key, value, bias=torch_ops.usable_bias(bias, query), sinks=s_aux, rules=rules)
    if rules.starts_q is not None and shape[0] > 1:
        out = out.reshape(out.shape[1], shape[0], shape[2], -1).transpose(0, 1)
    return out.transpose(1, 2).contiguous(), None


def register() -> None:
    """Makes attn_implementation="attn" known to Transformers. Importing this module has done it already."""
    modeling_utils.AttentionInterface.register(NAME, attn_attention_forward)
    masking_utils.AttentionMaskInterface.register(NAME, attn_mask)


register()
