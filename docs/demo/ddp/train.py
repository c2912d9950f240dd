"""Data-parallel training, as small as it gets: every process ends with the same weights, made from everybody's data.

python3 train.py --world-size ${PAI_JOB_TASK_COUNT} --rank ${PAI_TASK_INDEX} --dist-url tcp://${PAI_CONTAINER_LIST_0_0}:12356
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 50


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--world-size", type=int, required=True)
    options.add_argument("--rank", type=int, required=True)
    options.add_argument("--dist-url", required=True)
    given = options.parse_args()
    dist.init_process_group("gloo", init_method=given.dist_url, rank=given.rank, world_size=given.world_size)
    gpus = len(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
    weights = train(given.rank)
    everybodys = [torch.zeros_like(weights) for _ in range(given.world_size)]
    dist.all_gather(everybodys, weights)
    same = all(torch.equal(weights, other) for other in everybodys)
    print(f"rank {given.rank} of {given.world_size}, {gpus} GPUs, slope {weights.item():.2f}, same everywhere: {same}")


def train(rank: int) -> torch.Tensor:
    """Learn y = 3x from data that is another in each process."""
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        x = torch.randn(32, 1)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), 3 * x).backward()
        optimizer.step()
    return next(model.parameters()).detach().clone()


if __name__ == "__main__":
    main()
