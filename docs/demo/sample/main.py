"""Runs tasks that each tell the node they ran on, and prints how many nodes took part."""

import argparse
import time
from collections import Counter
from pathlib import Path

import ray
import yaml


@ray.remote(scheduling_strategy="SPREAD")
def node_of_this_task(seconds: float) -> str:
    time.sleep(seconds)
    return str(ray.get_runtime_context().get_node_id())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("config.yaml"))
    config = yaml.safe_load(parser.parse_args().config.read_text("utf-8"))
    ray.init()
    tasks = [node_of_this_task.remote(config["task_seconds"]) for _ in range(config["tasks"])]
    nodes = Counter(ray.get(tasks))
    for node, count in nodes.most_common():
        print(f"node {node[:8]} ran {count} tasks")
    print(f"{nodes.total()} tasks ran on {len(nodes)} nodes")


if __name__ == "__main__":
    main()
