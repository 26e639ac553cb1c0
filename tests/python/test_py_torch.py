"""attn.install() against PyTorch's own operator in float64: values, gradients, gradcheck, vmap, compile, dropout, autocast.
Skipped where torch is not installed (it is several gigabytes)."""
import inspect
import os
import shutil
import unittest
from unittest import mock

import attn

try:
    import torch
    import torch.nn.functional as functional
    from attn import torch_hooks, torch_ops
except ImportError:
    torch = None


def problem(seed=0, batch=2, heads=4, kv_heads=4, seq_q=9, seq_kv=9, dim=8, dtype=None, grad=False):
    generator = torch.Generator().manual_seed(seed)

    def make(h, n):
        return torch.randn(batch, n, h, dim, generator=generator).transpose(1, 2).to(dtype or torch.float32) \
            .requires_grad_(grad)
    return make(heads, seq_q), make(kv_heads, seq_kv), make(kv_heads, seq_kv)


SMALLEST = ("SMALLEST_CALL", "SMALLEST_CALL_WITH_GRADIENTS", "SMALLEST_KEY")
BOUND = {"float64": 1e-10, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(unittest.TestCase):
    def setUp(self):
        self.smallest = {name: getattr(torch_hooks, name) for name in SMALLEST}
        for name in SMALLEST:
            setattr(torch_hooks, name, 0)
        attn.install()

    def tearDown(self):
        attn.uninstall()
        for name, size in self.smallest.items():
            setattr(torch_hooks, name, size)

    def limits_as_they_are(self):
        """Small calls go to PyTorch, as for users."""
        for name, size in self.smallest.items():
            setattr(torch_hooks, name, size)

    def close(self, got, want, name, scale=1.0):
        bound = BOUND[str(got.dtype)[6:]]
        self.assertTrue(torch.allclose(got.double(), want, rtol=bound, atol=bound * scale), "%s off by %g" % (
            name, (got.double() - want).abs().max()))

    def test_bf16_of_a_size(self):
        """Large enough for bf16 products where the CPU has them: all arrays in bf16 then, else an unrounded output is kept."""
        make = torch.Generator().manual_seed(11)
        inputs = [torch.randn(1, 2, 384, 64, generator=make).to(torch.bfloat16).requires_grad_(True) for _ in range(3)]
        d = torch.randn(1, 2, 384, 64, generator=make).to(torch.bfloat16)
        wide = [i.detach().double().requires_grad_(True) for i in inputs]
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
            want = torch_hooks._original(*wide, is_causal=True)
        got = functional.scaled_dot_product_attention(*inputs, is_causal=True)
        kept = got.grad_fn.saved_tensors[5].dtype
        self.assertEqual(kept, torch.bfloat16 if attn.Context().isa in ("avx512bf16", "neonbf16") else torch.float32)
        self.close(got.detach(), want.detach(), "out")
        for g, w, name in zip(torch.autograd.grad(got, inputs, d), torch.autograd.grad(want, wide, d.double()), "qkv"):
            self.close(g, w, "d_" + name)

    def test_values_and_gradients(self):
        masks = {"none": None, "bool": torch.rand(9, 9) < 0.6, "float": torch.randn(2, 1, 9, 9), "row": torch.randn(1, 9),
                 "padding": (torch.arange(9) < torch.tensor([[9], [4]]))[:, None, None], "holes": torch.rand(2, 1, 1, 9) < 0.6}
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            for name, mask in masks.items():
                for rules in ({}, {"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True}, {"scale": -0.5}):
                    if mask is not None and rules.get("is_causal"):
                        continue
                    inputs = problem(kv_heads=2 if rules.get("enable_gqa") else 4, dtype=dtype, grad=True)
                    m = mask.to(dtype) if mask is not None and mask.dtype != torch.bool else mask
                    self.assertTrue(torch_hooks.covered(*inputs, m, 0.0, rules.get("is_causal", False), rules.get("enable_gqa", False)))
                    got = functional.scaled_dot_product_attention(*inputs, attn_mask=m, **rules)
                    self.assertEqual(got.dtype, dtype)
                    d = torch.randn(got.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
                    gradients = torch.autograd.grad(got, inputs, d)
                    wide = [i.detach().double().requires_grad_(True) for i in inputs]
                    wide_mask = m.double() if m is not None and m.dtype != torch.bool else m
                    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
                        want = torch_hooks._original(*wide, attn_mask=wide_mask, **rules)
                    label = "%s %s %s" % (dtype, name, rules)
                    self.close(got.detach(), want.detach(), label)
                    for g, w in zip(gradients, torch.autograd.grad(want, wide, d.double())):
                        self.close(g, w, "gradient, " + label)

    def test_opinfo_samples(self):
        """PyTorch's own samples of the operator and of multi-head attention, values and gradients, against float64.
        ATTN_OPINFO_SEED draws other numbers."""
        try:
            from torch.testing._internal.common_methods_invocations import op_db
        except ImportError as error:
            self.skipTest(str(error))
        torch.manual_seed(int(os.environ.get("ATTN_OPINFO_SEED", "3")))
        names = "nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"
        ran = dict.fromkeys(names, 0)
        for op in (o for o in op_db if o.name in names):
            # Of multi-head attention the projections, which are PyTorch's own, have most of the error: float64 tells.
            for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)[:1 if op.name == names[1] else 4]:
                for sample in op.sample_inputs("cpu", dtype, requires_grad=False) if dtype in op.dtypes else ():
                    if sample.kwargs.get("dropout_p") or (op.name == names[1] and self.dropout_of(sample)):
                        continue
                    attn.install()
                    got = self.value_and_gradients(op.name, sample, dtype)
                    attn.uninstall()
                    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
                        want = self.value_and_gradients(op.name, sample, torch.float64)
                    for g, w in zip(got, want):
                        self.close(g, w, "%s %s %s" % (op.name, dtype, sample.kwargs), w.abs().max().clamp(min=1).item())
                    ran[op.name] += 1
        self.assertTrue(all(ran.values()), ran)

    @staticmethod
    def dropout_of(sample):
        function = functional.multi_head_attention_forward
        return inspect.signature(function).bind(sample.input, *sample.args, **sample.kwargs).arguments["dropout_p"]

    def value_and_gradients(self, name, sample, dtype):
        def convert(given):
            if not isinstance(given, torch.Tensor) or not given.is_floating_point():
                return given
            return given.detach().to(dtype).requires_grad_(True)
        arguments = [convert(a) for a in (sample.input, *sample.args)]
        named = {name: convert(a) for name, a in sample.kwargs.items()}
        out = getattr(functional, name.split(".")[-1])(*arguments, **named)  # whichever is installed
        out = out[0] if isinstance(out, tuple) else out
        leaves = [a for a in (*arguments, *named.values()) if isinstance(a, torch.Tensor) and a.requires_grad]
        gradients = torch.autograd.grad(out.sum(), leaves, allow_unused=True)
        return [out.detach(), *(g for g in gradients if g is not None)]

    def test_gradcheck_and_mask_gradient(self):
        q, k, v = problem(seq_q=3, seq_kv=4, dim=3, kv_heads=2, dtype=torch.float64, grad=True)
        mask = torch.randn(1, 4, 1, 4, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda *a: functional.scaled_dot_product_attention(*a, enable_gqa=True), (q, k, v, mask)))

    def test_double_backward_is_refused(self):
        q, k, v = problem(dtype=torch.float64, grad=True)
        out = functional.scaled_dot_product_attention(q, k, v)
        first, = torch.autograd.grad(out.sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "no second derivative"):
            torch.autograd.grad(first.sum(), q)

    def test_vmap(self):
        q, k, v = (torch.stack([a, a + 1, a - 1]) for a in problem())
        want = torch.stack([functional.scaled_dot_product_attention(*a) for a in zip(q, k, v)])
        got = torch.func.vmap(functional.scaled_dot_product_attention)(q, k, v)
        self.assertTrue(torch.equal(got, want))
        shared = torch.func.vmap(functional.scaled_dot_product_attention, in_dims=(0, None, None))(q, k[0], v[0])
        self.assertTrue(torch.equal(shared[1], functional.scaled_dot_product_attention(q[1], k[0], v[0])))

    def test_fake_tensors_and_operator_rules(self):
        q, k, v = problem(grad=True)
        arguments = (q, k, v, None, None, None, None, None, None, None, 0.0, True, -1, -1, 0, None, 0.0, False)
        torch.library.opcheck(torch_ops.attention_op, arguments,
                              test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))

    def test_recorded_programs_stay_pytorchs(self):
        """What is traced, scripted or exported runs without this package, at any length, and gives PyTorch's numbers."""
        class Model(torch.nn.Module):
            def forward(self, q, k, v):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        model, first, then = Model(), problem(), problem(seed=1, seq_q=17, seq_kv=17)
        want = torch_hooks._original(*then, is_causal=True)
        self.limits_as_they_are()
        self.assertTrue(torch.equal(torch.jit.script(model)(*then), want))
        for size in (0, 1 << 62):
            for name in SMALLEST:
                setattr(torch_hooks, name, size)
            length = torch.export.Dim("length", min=2, max=4096)
            exported = torch.export.export(model, first, dynamic_shapes=({2: length},) * 3)
            for program in (torch.jit.trace(model, first), exported.module(), torch.fx.symbolic_trace(model)):
                self.assertTrue(torch.equal(program(*then), want), type(program))

    def test_tensors_of_other_classes_go_to_pytorch(self):
        seen = []

        class Own(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                seen.append(function)
                return super().__torch_function__(function, types, args, kwargs or {})
        q, k, v = problem()
        functional.scaled_dot_product_attention(q, k.as_subclass(Own), v)
        self.assertEqual(seen, [torch_hooks._original])
        ragged = torch.nested.nested_tensor([torch.randn(5, 4, 8), torch.randn(9, 4, 8)], layout=torch.jagged).transpose(1, 2)
        got = functional.scaled_dot_product_attention(ragged, ragged, ragged)
        self.assertTrue(torch.equal(got.values(), torch_hooks._original(ragged, ragged, ragged).values()))
        with self.assertRaisesRegex(TypeError, "attn_mask"):
            functional.scaled_dot_product_attention(q, k, v, k.numpy())

    def test_the_direct_functions_refuse_what_records(self):
        """Results of theirs would enter a trace as constants that nobody computed."""
        from torch.fx.experimental.proxy_tensor import make_fx
        inputs = problem()
        for record in (torch.jit.trace, lambda f, a: make_fx(f)(*a), lambda f, a: torch.func.vmap(f)(*a)):
            for repeat in range(2):  # the second time there is a kept call
                with self.assertRaisesRegex(attn.Unsupported, "operators of PyTorch only"):
                    record(lambda q, k, v: attn.attention(*(t.unsqueeze(0) if t.dim() == 3 else t for t in (q, k, v))), inputs)
                attn.attention(*inputs)
        with self.assertRaisesRegex(attn.Unsupported, "operators of PyTorch only"):
            torch.func.grad(lambda q: attn.attention(q, *inputs[1:]).sum())(inputs[0])

    def test_layout_where_vectors_are_apart(self):
        inputs = [t.transpose(2, 3).contiguous().transpose(2, 3) for t in problem()]
        got = functional.scaled_dot_product_attention(*inputs)
        self.assertEqual(got.stride(), torch_hooks._original(*inputs).stride())

    def test_gradients_of_nothing(self):
        for shape in ((0, 4, 9, 8), (2, 0, 9, 8), (2, 4, 0, 8)):
            inputs = [torch.zeros(shape, requires_grad=True) for _ in range(3)]
            for function in (functional.scaled_dot_product_attention, attn.attention, attn.scaled_dot_product_attention):
                for gradient in torch.autograd.grad(function(*inputs).sum(), inputs):
                    self.assertEqual(gradient.shape, shape)
        query, key = torch.zeros(1, 4, 0, 8, requires_grad=True), torch.randn(1, 4, 9, 8, requires_grad=True)
        gradient, = torch.autograd.grad(attn.attention(query, key, key).sum(), key)
        self.assertFalse(gradient.any())

    def test_compile(self):
        q, k, v = problem()
        compiled = torch.compile(lambda *a: functional.scaled_dot_product_attention(*a, is_causal=True) * 2, backend="aot_eager",
                                 fullgraph=True)
        self.assertTrue(torch.allclose(compiled(q, k, v), functional.scaled_dot_product_attention(q, k, v, is_causal=True) * 2))

    @unittest.skipUnless(shutil.which("g++"), "inductor needs a C++ compiler")
    def test_inductor(self):
        """A real compile, forward and training: the operator is one node of the graph, masks and dropout included."""
        mask = torch.rand(9, 9, generator=torch.Generator().manual_seed(1)) < 0.7

        def model(q, k, v, p):
            hidden = functional.scaled_dot_product_attention(torch.tanh(q), k, v, is_causal=True)
            return functional.scaled_dot_product_attention(hidden, k, v * 2, attn_mask=mask, dropout_p=p).square().sum()
        compiled = torch.compile(model, backend="inductor", fullgraph=True)
        for dtype, bound in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
            inputs = problem(dtype=dtype, grad=True)
            with torch.no_grad():
                want, got = model(*inputs, 0.0), compiled(*inputs, 0.0)
                self.assertTrue(torch.allclose(got, want, rtol=bound))
            wanted = torch.autograd.grad(model(*inputs, 0.0), inputs)
            for g, w in zip(torch.autograd.grad(compiled(*inputs, 0.0), inputs), wanted):
                self.assertTrue(torch.allclose(g, w, rtol=bound, atol=bound * w.abs().max().item()))
        inputs = problem(grad=True)
        found = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            found.append(compiled(*inputs, 0.3).item())
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])

    def test_dropout(self):
        q, k, v = problem(seq_q=64, seq_kv=64, grad=True)
        ones = torch.ones_like(v)
        torch.manual_seed(3)
        first = functional.scaled_dot_product_attention(q, k, ones, dropout_p=0.25)
        torch.manual_seed(3)
        again = functional.scaled_dot_product_attention(q, k, ones, dropout_p=0.25)
        self.assertTrue(torch.equal(first, again))
        self.assertAlmostEqual(first.mean().item(), 1, delta=0.02)  # kept weights are scaled by 1/(1-p)
        self.assertGreater(first.std().item(), 0.01)
        # The backward pass drops the same weights: out is linear in value, so <d_value, value> is <d_out, out>.
        out = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
        d_value, = torch.autograd.grad(out, v, torch.ones_like(out))
        self.assertAlmostEqual((d_value * v).sum().item(), out.sum().item(), delta=1e-2)

    def test_autocast(self):
        q, k, v = problem()
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(functional.scaled_dot_product_attention(q, k, v).dtype, torch.bfloat16)

    def test_what_is_not_covered_goes_to_pytorch(self):
        q, k, v = problem()
        for a, b, c in ((q[None], k[None], v[None]), (q, k[:1], v[:1]), (q.to(torch.complex64),) * 3):
            self.assertFalse(torch_hooks.covered(a, b, c, None, 0.0, False, False))
        self.assertEqual(functional.scaled_dot_product_attention(q[None], k[None], v[None]).shape, q[None].shape)

    def test_scale_zero_and_negative_and_empty_rows(self):
        """PyTorch's CPU kernel gives NaN for causal with scale <= 0; the written rule is the plain formula."""
        for scale in (0.0, -0.7):
            q, k, v = problem(seq_q=9, seq_kv=5, dtype=torch.float64, grad=True)
            got = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
            hidden = torch.ones(9, 5).triu(1).bool()
            want = torch.softmax((q @ k.transpose(-1, -2) * scale).masked_fill(hidden, -torch.inf), -1) @ v
            self.assertTrue(torch.allclose(got, want, atol=1e-12))
            for g, w in zip(torch.autograd.grad(got.square().sum(), (q, k, v)), torch.autograd.grad(want.square().sum(), (q, k, v))):
                self.assertTrue(torch.allclose(g, w, atol=1e-11))
        q, k, v = problem(grad=True)
        mask = torch.ones(9, 9, dtype=torch.bool).tril(-4)
        for m in (mask, torch.zeros(9, 9).masked_fill(~mask, -torch.inf)):
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=m)
            self.assertEqual(out[:, :, :4].abs().max().item(), 0)
            for g in torch.autograd.grad(out.sum(), (q, k, v)):
                self.assertTrue(torch.isfinite(g).all())

    def test_forward_mode_and_second_library_calls_go_to_pytorch(self):
        q, k, v = problem(dtype=torch.float64)
        f = lambda t: functional.scaled_dot_product_attention(t, k, v)  # noqa: E731
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
            out, tangent = torch.func.jvp(f, (q,), (torch.ones_like(q),))
        step = 1e-6
        self.assertTrue(torch.allclose(tangent, (f(q + step) - f(q - step)) / (2 * step), atol=1e-6))

    def test_torch_func_gradients(self):
        q, k, v = problem(dtype=torch.float64)
        f = lambda t: functional.scaled_dot_product_attention(t, k, v, is_causal=True).square().sum()  # noqa: E731
        leaf = q.clone().requires_grad_(True)
        f(leaf).backward()
        self.assertTrue(torch.allclose(torch.func.grad(f)(q), leaf.grad))
        each = torch.func.vmap(torch.func.grad(lambda a, b, c: functional.scaled_dot_product_attention(
            a[None], b[None], c[None]).square().sum()))(q, k, v)
        self.assertEqual(each.shape, q.shape)

    def test_layout_is_that_of_pytorch(self):
        """Code that joins the heads with view() works as before."""
        packed = torch.randn(2, 9, 3, 4, 8).permute(2, 0, 3, 1, 4)[0]
        for q in (problem()[0], problem()[0].contiguous(), packed):
            for grad in (False, True):
                q = q.detach().requires_grad_(grad)
                _, k, v = problem()
                out = functional.scaled_dot_product_attention(q, k, v)
                self.assertEqual(out.stride(), torch_hooks._original(q, k, v).stride())
                self.assertEqual(functional.scaled_dot_product_attention(q, k, v[..., :5]).stride(),
                                 torch_hooks._original(q, k, v[..., :5]).stride())
        out.transpose(1, 2).view(2, 9, -1)

    def test_small_calls_go_to_pytorch(self):
        for name, size in self.smallest.items():
            setattr(torch_hooks, name, size)
        q, k, v = problem()
        self.assertTrue(torch.equal(functional.scaled_dot_product_attention(q, k, v), torch_hooks._original(q, k, v)))

    def test_nested_tensors_go_to_pytorch(self):
        make = lambda: torch.nested.nested_tensor([torch.randn(2, n, 8) for n in (3, 5)])  # noqa: E731
        q, k, v = make(), make(), make()
        try:
            want = torch_hooks._original(q, k, v)
        except RuntimeError:
            self.skipTest("this PyTorch has no nested attention on the CPU")
        self.assertTrue(functional.scaled_dot_product_attention(q, k, v).is_nested and want.is_nested)

    def test_negated_views(self):
        z = torch.randn(1, 2, 5, 8, dtype=torch.complex64)
        q = z.conj().imag
        self.assertTrue(q.is_neg())
        _, k, v = problem(batch=1, heads=2, kv_heads=2, seq_kv=5)
        self.assertTrue(torch.allclose(attn.attention(q, k, v), attn.attention(q.resolve_neg(), k, v)))

    def test_modules_and_dispatcher(self):
        attn.uninstall()
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        x = torch.randn(2, 9, 16)
        want = layer(x)
        with attn.installed(dispatcher=True):
            got = layer(x)
        self.assertTrue(torch.allclose(got, want, atol=1e-5))
        self.assertIs(functional.scaled_dot_product_attention, torch_hooks._original)

    def test_causal_with_a_scale_of_zero_or_below(self):
        """PyTorch's kernel gives NaN there; ours does not, of whatever size and by whichever way the call comes."""
        self.limits_as_they_are()
        for n, scale in ((5, 0.0), (5, -0.5), (600, -0.5)):
            q, k, v = problem(seq_q=n, seq_kv=n, dtype=torch.float32)
            want = attn.attention(q, k, v, causal=True, scale=scale)
            self.assertFalse(want.isnan().any())
            for dispatcher in (False, True):
                with attn.installed(dispatcher=dispatcher):
                    for call in (functional.scaled_dot_product_attention, torch_hooks._original)[:1 + dispatcher]:
                        self.assertTrue(torch.equal(call(q, k, v, is_causal=True, scale=scale), want))

    def test_dispatcher_hands_small_calls_back(self):
        self.limits_as_they_are()
        for n in (5, 600):
            leaves = problem(seq_q=n, seq_kv=n, dtype=torch.float32, grad=True)
            attn.uninstall()
            want = torch_hooks._original(*leaves, is_causal=True)
            gradients = torch.autograd.grad(want.square().sum(), leaves)
            with attn.installed(dispatcher=True), mock.patch.object(torch_hooks.torch_ops, "forward",
                                                                    wraps=torch_hooks.torch_ops.forward) as ours:
                got = torch_hooks._original(*leaves, is_causal=True)
                self.assertEqual(ours.called, n > 5 or not hasattr(torch.library, "get_kernel"))
                for g, w in zip(torch.autograd.grad(got.square().sum(), leaves), gradients):
                    self.assertTrue(torch.allclose(g, w, rtol=1e-4, atol=1e-5))
            self.assertTrue(torch.allclose(got, want, atol=1e-5))

    def test_attention_and_sdpa_of_tensors_are_differentiable(self):
        """attn.attention() and attn.scaled_dot_product_attention() with keywords that PyTorch's operator lacks."""
        q, k, v = problem(seq_q=4, seq_kv=6, dim=3, kv_heads=2, dtype=torch.float64, grad=True)
        bias = torch.randn(1, 4, 1, 6, dtype=torch.float64, requires_grad=True)
        keep = torch.rand(2, 1, 4, 6, generator=torch.Generator().manual_seed(0)) < 0.8
        rules = {"mask": keep, "softcap": 2.0, "window": (3, 1), "query_offset": 1, "alibi_slopes": [0.5, 0.25, 0.1, 0.0]}
        for lse in (False, True):
            self.assertTrue(torch.autograd.gradcheck(
                lambda *a: attn.attention(*a[:3], bias=a[3], return_lse=lse, **rules), (q, k, v, bias)))
        more = torch.stack([q, q * 2]).detach().requires_grad_(True)  # five axes; keys and values broadcast
        self.assertTrue(torch.autograd.gradcheck(lambda *a: attn.scaled_dot_product_attention(
            *a, enable_gqa=True, is_causal=True, softcap=2.0), (more, k, v)))
        first, = torch.autograd.grad(attn.attention(q, k, v).sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "no second derivative"):
            torch.autograd.grad(first.sum(), q)

    def test_gradients_of_sinks_and_relative_tables(self):
        q, k, v = problem(dtype=torch.float32)
        sinks = torch.randn(4, requires_grad=True)
        table = torch.randn(4, 5, requires_grad=True)
        out, lse = attn.attention(q, k, v, sinks=sinks, relative=table, relative_left=2, return_lse=True)
        distance = (torch.arange(9)[None] - torch.arange(9)[:, None]).clamp(-2, 2) + 2
        scores = (q @ k.transpose(-1, -2)).double() / 8 ** 0.5 + table.double()[:, distance]
        whole = torch.logaddexp(scores.logsumexp(-1), sinks.double()[:, None])
        want = (scores - whole[..., None]).exp() @ v.double()
        self.close(out.detach(), want.detach(), "out")
        loss, wanted = (out.square().sum() + lse.sum()), (want.square().sum() + whole.sum())
        for g, w in zip(torch.autograd.grad(loss, (sinks, table)), torch.autograd.grad(wanted, (sinks, table))):
            self.assertTrue(torch.allclose(g, w, rtol=1e-4, atol=1e-4))

    def test_rope_is_differentiable(self):
        x = problem(seq_q=3, dtype=torch.float64, grad=True)[0]
        for rules in ({}, {"interleaved": True, "rotary_dim": 4}, {"scaling": "yarn", "factor": 4.0, "beta_fast": 32.0,
                                                                   "beta_slow": 1.0, "original_length": 16}):
            self.assertTrue(torch.autograd.gradcheck(lambda t: attn.rope(t, position_offset=2, **rules), x))

    def test_gradients_are_not_lost_without_a_word(self):
        q, k, v = problem(grad=True)
        out, lse = (t.detach() for t in attn.attention(q, k, v, return_lse=True))
        cache = attn.KVCache(2, 4, 16, 8)
        for call in (lambda: attn.prepare(q, k, v), lambda: attn.attention_backward(out, q, k, v, out, lse),
                     lambda: attn.merge([out, q], [lse, lse]), lambda: cache.decode(q, k, v)):
            with self.assertRaisesRegex(attn.Unsupported, "has no gradient .* torch.no_grad"):
                call()
            with torch.no_grad():
                call()
        with self.assertRaisesRegex(attn.InvalidArgument, "out is given"):
            attn.attention(q, k, v, out=torch.empty_like(out))
        # What looks in gives NumPy arrays, which never have gradients.
        self.assertEqual(attn.rows(q, k, [(0, 0, 0)], sinks=torch.zeros(4, requires_grad=True)).shape, (1, 9))

    def test_tensors_as_arrays(self):
        q, k, v = problem(dtype=torch.bfloat16)
        out, lse = attn.attention(q, k, v, return_lse=True)
        self.assertEqual((out.dtype, lse.dtype, type(out)), (torch.bfloat16, torch.float32, torch.Tensor))
        into = torch.empty(2, 9, 4, 8, dtype=torch.bfloat16).transpose(1, 2)
        self.assertIs(attn.attention(q, k, v, out=into), into)
        self.assertTrue(torch.equal(into, out))
        for given in ((q, k, v), (q[0], k[0], v[0]), (q[None], k[None], v[None])):
            for _ in range(2):  # made, and kept
                got, more = attn.scaled_dot_product_attention(*given, return_lse=True)
                self.assertEqual((got.shape, more.shape), (given[0].shape, given[0].shape[:-1]))
                self.assertTrue(torch.equal(got.reshape(-1), (out[0] if given[0].dim() == 3 else out).reshape(-1)))
        into.zero_()
        self.assertIs(attn.scaled_dot_product_attention(q, k, v, out=into), into)
        self.assertTrue(torch.equal(into, out))
        with self.assertRaisesRegex(attn.InvalidArgument, "negated view"):
            attn.attention(*(t.float() for t in (q, k, v)), out=torch.zeros(2, 4, 9, 8, dtype=torch.complex64).conj().imag)
        got = attn.attention(q, k, v, sinks=torch.zeros(4, dtype=torch.bfloat16))
        self.assertTrue(torch.equal(got, attn.attention(q, k, v, sinks=[0.0] * 4)))


if __name__ == "__main__":
    unittest.main()
