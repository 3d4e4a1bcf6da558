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


def decoding(model, prompt):
    """Eight tokens for each sequence, one at a time, with what the ones before have left in memory."""
    model = model.to(torch.bfloat16).to(DEVICE).eval()

    def step():
        with torch.inference_mode():
            said = model(input_ids=prompt, use_cache=True)
            for _ in range(8):
                token = said.logits[:, -1:].argmax(dim=-1)
                said = model(input_ids=token, past_key_values=said.past_key_values, use_cache=True)

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
    return decoding(GPT2LMHeadModel(GPT2Config()), prompt)


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


def mobilenet_train():
    """Convolutions by channel: many small kernels, bound by memory."""
    from torchvision.models import mobilenet_v3_large

    data, labels = images(64), torch.randint(1000, (64,), device=DEVICE)
    model = mobilenet_v3_large().to(memory_format=torch.channels_last)
    return training(model, lambda model: nn.functional.cross_entropy(model(data), labels))


class Denoiser(nn.Module):
    """The shape of what diffusion runs some fifty times a picture: convolutions that go down and up again, attention at the bottom."""

    def __init__(self, width=192):
        super().__init__()
        self.first = nn.Conv2d(4, width, 3, padding=1)
        down = []
        for _ in range(4):
            down += [nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)]
        self.down = nn.Sequential(*down)
        self.smaller = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.bottom = nn.TransformerEncoderLayer(2 * width, 8, 8 * width, batch_first=True, norm_first=True)
        self.larger = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = nn.Conv2d(2 * width, 4, 3, padding=1)

    def forward(self, data):
        high = self.down(self.first(data))
        low = self.smaller(high)
        shape = low.shape
        low = self.bottom(low.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(shape)
        return self.last(torch.cat([high, self.larger(low)], dim=1))


def denoise_infer():
    data = torch.randn(8, 4, 64, 64, device=DEVICE)
    return inference(Denoiser(), lambda model: model(data))


def lstm_train():
    """A recurrent network: steps that wait for one another."""
    data = torch.randn(64, 128, 512, device=DEVICE)
    model = nn.LSTM(512, 1024, num_layers=2, batch_first=True)
    return training(model, lambda model: model(data)[0].square().mean())


def graph_train():
    """Sums over the neighbours in a graph: reads and writes where no cache helps."""
    nodes, edges = 200_000, 2_000_000
    origin, target = (torch.randint(nodes, (edges,), device=DEVICE) for _ in range(2))
    features = torch.randn(nodes, 128, device=DEVICE)
    model = nn.ModuleList([nn.Linear(128, 128), nn.Linear(128, 64)])

    def loss(layers):
        sums = torch.zeros_like(features).index_add_(0, target, features[origin])
        return layers[1](torch.relu(layers[0](sums))).square().mean()

    return training(model, loss)


def fft():
    """Fourier transforms of large planes, there and back."""
    data = torch.randn(16, 2048, 2048, device=DEVICE, dtype=torch.complex64)
    return lambda: torch.fft.ifft2(torch.fft.fft2(data))


def llama_decode():
    """A language model of a thousand million weights, read for every token of sixteen sequences."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 16}
    prompt = torch.randint(30000, (16, 128), device=DEVICE)
    return decoding(LlamaForCausalLM(LlamaConfig(**shape)), prompt)


def axpy():
    """Two vectors of a thousand million bytes each: memory bandwidth and nothing else."""
    first, second = (torch.randn(1 << 28, device=DEVICE) for _ in range(2))
    return lambda: second.add_(first, alpha=1e-6)


def gan_train():
    """A small generator and the judge of its pictures, both trained at once."""
    grow = [nn.ConvTranspose2d(128, 256, 4), nn.ReLU()]
    for before, after in ((256, 128), (128, 64), (64, 32)):
        grow += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    judge = []
    for before, after in ((32, 64), (64, 128), (128, 256)):
        judge += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
    model = nn.Sequential(*grow, *judge, nn.Flatten(), nn.Linear(256 * 16, 1))
    noise = torch.randn(256, 128, 1, 1, device=DEVICE)
    return training(model, lambda model: nn.functional.softplus(model(noise)).mean())


WORKLOADS = {
    "mobilenet-train": mobilenet_train,
    "denoise-infer": denoise_infer,
    "lstm-train": lstm_train,
    "graph-train": graph_train,
    "fft": fft,
    "llama-decode": llama_decode,
    "axpy": axpy,
    "gan-train": gan_train,
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
