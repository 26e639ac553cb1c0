#!/usr/bin/env python3
"""What nanoGPT's recipe reaches in PyTorch on the ids of a run of `attn train`: the yardstick of models/austen.

    python3 bench/nanogpt_recipe.py FOLDER [--layers 5] [--heads 5] [--width 160] [--context 256] [--batch 8] [--steps 500]
                                    [--lr 1e-3] [--state FILE --seconds S]

FOLDER/tokens.bin gives the ids; training and validation ids are those of the run. The recipe (nanoGPT's train.py and its
configurations for small models): GPT-2 blocks without biases, GELU, tied head, normal(0.02) with residual projections
divided by sqrt(2 layers); AdamW 0.9, 0.99, decay 0.1 of matrices; linear warm-up of 100 steps, cosine to a tenth; clip 1; no
dropout; batches of random pieces. Prints the loss over all validation ids, cut as `attn train` cuts them. With --state a
run may be stopped (--seconds) and gone on with. Needs torch.
"""
import argparse
import math
import os
import struct
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.mix, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        for linear, spread in ((self.mix, 1), (self.up, 1), (self.out, 2 * layers), (self.down, 2 * layers)):
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(spread))

    def forward(self, x):
        parts = self.mix(self.norm1(x)).chunk(3, dim=-1)
        query, key, value = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        read = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, a, vocab):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocab, a.width), nn.Embedding(a.context, a.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.ModuleList([Block(a.width, a.heads, a.layers) for _ in range(a.layers)])
        self.norm = nn.LayerNorm(a.width, bias=False)

    def forward(self, ids, targets):
        x = self.embedding(ids) + self.positions.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.embedding.weight).flatten(0, 1), targets.flatten())


def read_ids(folder):
    with open(os.path.join(folder, "tokens.bin"), "rb") as file:
        header = file.read(64)
        n_train, n_validation, n_bytes = struct.unpack("<QQQ", header[24:48])
        body = file.read()
    width = len(body) // (n_train + n_validation)
    ids = torch.frombuffer(bytearray(body), dtype=torch.int16 if width == 2 else torch.int32).long()
    ids = ids & 0xFFFF if width == 2 else ids
    return ids[:n_train], ids[n_train:], n_bytes / n_validation


def learning_rate(a, step):
    if step < a.warmup:
        return a.lr * (step + 1) / (a.warmup + 1)
    return a.lr / 10 + 0.45 * a.lr * (1 + math.cos(math.pi * (step - a.warmup) / max(1, a.steps - a.warmup)))


def pieces(ids, starts, length):
    rows = ids[starts[:, None] + torch.arange(length + 1)]
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def validate(model, ids, a):
    starts, total, count = torch.arange((len(ids) - 1) // a.context) * a.context, 0.0, 0
    for part in starts.split(a.batch):
        total += model(*pieces(ids, part, a.context)).item() * len(part)
        count += len(part)
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    for name, value in (("layers", 5), ("heads", 5), ("width", 160), ("context", 256), ("batch", 8), ("steps", 500),
                        ("warmup", 100), ("seed", 1), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--state", help="a file to stop into and to go on from")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long; needs --state")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    train, validation, bytes_per_token = read_ids(a.folder)
    model = Decoder(a, int(max(train.max(), validation.max())) + 1)
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == decays], "weight_decay": 0.1 * decays}
              for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.99))
    order, first = torch.Generator().manual_seed(a.seed), 0
    if a.state and os.path.exists(a.state):
        saved = torch.load(a.state)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        order.set_state(saved["order"])
        first = saved["step"]
    begin = time.monotonic()
    for step in range(first, a.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(a, step)
        starts = torch.randint(len(train) - a.context, (a.batch,), generator=order)
        loss = model(*pieces(train, starts, a.context))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if time.monotonic() - begin > a.seconds and a.state and step + 1 < a.steps:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "order": order.get_state(),
                        "step": step + 1}, a.state)
            print("stopped after step %d, loss %.4f" % (step + 1, loss.item()))
            return
    found = validate(model, validation, a)
    print("%d parameters, %d steps of %d tokens, learning rate %g: validation loss %.4f, %.3f bits per byte; %.0f tokens/s" %
          (sum(p.numel() for p in model.parameters()), a.steps, a.batch * a.context, a.lr, found,
           found / math.log(2) / bytes_per_token,
           (a.steps - first) * a.batch * a.context / (time.monotonic() - begin)))


if __name__ == "__main__":
    main()
