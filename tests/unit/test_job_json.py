"""The stored shape of a job's definition: whole, and readable across versions."""

import json

from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from rayjobs.job_json import spec_from_json, spec_to_json
from rayjobs.model.job import JobSpec, Requirements, Retry, RunMode
from runtime_envs.volumes.model import Mount

FULL = JobSpec(
    name="训练",
    run_mode=RunMode.ON_DEMAND,
    description="d",
    tags={"team": "vision"},
    resource_package="p",
    resource_group="g",
    priority=9,
    image="registry.example.com/a:1",
    head=NodeSpec(cpu=1, memory_gib=2, labels={"zone": "a"}),
    worker_groups=(WorkerGroup(name="w1", gpu=1, gpu_type="H100", min_instances=0, max_instances=3),),
    package="pkg_1",
    entrypoint="python main.py",
    start_timeout_s=60,
    stop_grace_s=0,
    requirements=Requirements(cpu=0.5, gpu_types=("H100", "A100"), labels={"a": "b"}, ray_version="2.60.0"),
    mounts=(Mount(volume="v", mount_path="/data"), Mount(volume="v", mount_path="/b", sub_path="b", read_only=True)),
    runtime_env={"pip": ["a"], "env_vars": {"A": "1"}},
    advanced_parameters={"log_level": "info"},
    max_wait_s=5,
    max_runtime_s=6,
    retry=Retry(max_attempts=3, on=("user", "lost")),
    retry_safe=True,
)
BARE = JobSpec(name="n", run_mode=RunMode.CLUSTER, cluster="c", entrypoint="true")


def test_every_field_survives_json() -> None:
    for spec in (FULL, BARE):
        assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


def test_the_shape_is_that_of_the_request() -> None:
    shape = spec_to_json(FULL)
    assert shape["run_mode"] == "on_demand"
    assert shape["worker_groups"][0] == {
        "name": "w1", "min_instances": 0, "max_instances": 3,
        "cpu": 2, "memory_gib": 4, "gpu": 1, "gpu_type": "H100", "labels": {},
    }  # fmt: skip
    assert shape["retry"] == {"max_attempts": 3, "on": ("user", "lost")}


def test_an_old_revision_takes_defaults_for_what_it_lacks() -> None:
    assert spec_from_json({"name": "n", "run_mode": "cluster", "cluster": "c", "entrypoint": "true"}) == BARE
    partly = {**spec_to_json(FULL), "requirements": {"cpu": 2}, "retry": {"max_attempts": 2}, "head": {"cpu": 3}}
    spec = spec_from_json(partly)
    assert spec.requirements == Requirements(cpu=2)
    assert spec.retry == Retry(max_attempts=2)
    assert spec.head == NodeSpec(cpu=3)


def test_what_a_newer_version_wrote_is_passed_over() -> None:
    newer = {**spec_to_json(FULL), "new": 1}
    newer["head"] = {**newer["head"], "new": 1}
    newer["retry"] = {**newer["retry"], "new": 1}
    assert spec_from_json(newer) == FULL
