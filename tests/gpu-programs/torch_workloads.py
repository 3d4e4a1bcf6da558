#!/usr/bin/env python3
"""Workloads of PyTorch for `tests/gpu programs`: models with random weights on random data; nothing is downloaded.

usage: torch_workloads.py NAME

Says `ready` when it is warm. `go` on its standard input lets it run and `pause` lets it rest; it ends with that input. While it
runs it says `progress SECONDS ITERATIONS` some ten times a second, both since it was ready; what it says is done, not only launched.
"""

import sys
import threading
import time

import torch
from torch import nn

DEVICE = torch.device("cuda")
# How long the device may work before it is waited for, and said how far it is: as long as frameworks run ahead.
CHUNK_SECONDS = 0.03
WARM_UP_ITERATIONS = 8


def training(model, loss_of):
    model = model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(model)
        loss.backward()
        optimizer.step()

    return step


def inference(model, forward):
    model = model.to(DEVICE).eval()

    def step():
        with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
            forward(model)

    return step


def images(count):
    return torch.randn(count, 3, 224, 224, device=DEVICE).to(memory_format=torch.channels_last)


def resnet50_train():
    from torchvision.models import resnet50

    data, labels = images(64), torch.randint(1000, (64,), device=DEVICE)
    model = resnet50().to(memory_format=torch.channels_last)
    return training(model, lambda model: nn.functional.cross_entropy(model(data), labels))


def resnet50_infer():
    from torchvision.models import resnet50

    data = images(4)
    return inference(resnet50().to(memory_format=torch.channels_last), lambda model: model(data))


def vit_infer():
    from torchvision.models import vit_b_16

    data = images(64)
    return inference(vit_b_16(), lambda model: model(data))


def bert_train():
    from transformers import BertConfig, BertForMaskedLM

    tokens = torch.randint(30000, (16, 128), device=DEVICE)
    model = BertForMaskedLM(BertConfig())
    return training(model, lambda model: model(input_ids=tokens, labels=tokens).loss)


def gpt2_decode():
    """One token at a time for eight sequences, as language models serve: many small kernels that read all weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    prompt = torch.randint(50000, (8, 256), device=DEVICE)
    model = GPT2LMHeadModel(GPT2Config()).to(DEVICE).to(torch.bfloat16).eval()

    def step():
        with torch.inference_mode():
            said = model(input_ids=prompt, use_cache=True)
            for _ in range(8):
                token = said.logits[:, -1:].argmax(dim=-1)
                said = model(input_ids=token, past_key_values=said.past_key_values, use_cache=True)

    return step


def dlrm_train():
    """Sums of rows from a table that no cache holds, and a small network: bound by memory."""
    table = nn.EmbeddingBag(4_000_000, 128, mode="sum")
    top = nn.Sequential(nn.Linear(128 * 8, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))
    table, top = table.to(DEVICE), top.to(DEVICE)
    rows = torch.randint(4_000_000, (4096 * 8, 16), device=DEVICE)
    optimizer = torch.optim.SGD(top.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            sums = table(rows).view(4096, -1)
        top(sums).square().mean().backward()
        optimizer.step()

    return step


def gemm_bf16():
    """Products of large matrices: the tensor cores and nothing else."""
    first, second = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(first)
    return lambda: torch.matmul(first, second, out=out)


def ppo_train():
    """A small network of reinforcement learning: launches, and waits."""
    states = torch.randn(256, 64, device=DEVICE)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8))
    return training(model, lambda model: model(states).square().mean())


WORKLOADS = {
    "resnet50-train": resnet50_train,
    "resnet50-infer": resnet50_infer,
    "vit-infer": vit_infer,
    "bert-train": bert_train,
    "gpt2-decode": gpt2_decode,
    "dlrm-train": dlrm_train,
    "gemm-bf16": gemm_bf16,
    "ppo-train": ppo_train,
}


def listen(goes):
    for line in sys.stdin:
        if line.strip() == "go":
            goes.set()
        elif line.strip() == "pause":
            goes.clear()
    # Whoever started it has gone, or has enough: there is nothing to be saved.
    import os

    os._exit(0)


def timed(step, count):
    torch.cuda.synchronize()
    begun = time.monotonic()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return time.monotonic() - begun


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in WORKLOADS:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(WORKLOADS)}")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    goes = threading.Event()
    threading.Thread(target=listen, args=(goes,), daemon=True).start()
    step = WORKLOADS[sys.argv[1]]()
    timed(step, WARM_UP_ITERATIONS)
    chunk = max(1, round(CHUNK_SECONDS / max(1e-6, timed(step, WARM_UP_ITERATIONS) / WARM_UP_ITERATIONS)))
    # Warmed up beside others it may have been slow: a chunk is never longer than a few of them.
    chunk = min(chunk, 2000)
    print("ready", flush=True)
    begun, iterations = time.monotonic(), 0
    while goes.wait():
        for _ in range(chunk):
            step()
        torch.cuda.synchronize()
        iterations += chunk
        print(f"progress {time.monotonic() - begun:.6f} {iterations}", flush=True)


if __name__ == "__main__":
    main()
