"""torch_adapter.py: libattn below PyTorch's two ATen operators, as ../shared/conformance/torch_dropin.py calls it
(--adapter torch_adapter)."""
import torch

from attn import torch_ops


def _rules(is_causal, scale):
    return torch_ops.Rules(causal=is_causal, offset=0 if is_causal else None, scale=scale)


def sdpa_forward(query, key, value, attn_mask, is_causal, scale):
    """(out, lse) of [batch, heads, seq, dim] tensors."""
    return torch_ops.forward(query, key, value, torch_ops.usable_bias(attn_mask, query), None, _rules(is_causal, scale), False)


def sdpa_backward(d_out, query, key, value, out, lse, attn_mask, is_causal, scale):
    """Gradients of query, key and value. A 16-bit out is computed again: <d_out, out> must not carry its rounding."""
    bias, rules = torch_ops.usable_bias(attn_mask, query), _rules(is_causal, scale)
    if out.dtype in (torch.float16, torch.bfloat16):
        out, lse = torch_ops.forward(query, key, value, bias, None, rules, True)
    return torch_ops.backward(d_out, None, query, key, value, bias, None, out, lse.contiguous(), rules, False, False)[:3]
