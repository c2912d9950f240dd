"""What the command line holds back from an edited record is exactly what an edit may not say."""

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from api.cli import policy, shapes
from api.cli.policy_text import annotated
from api.schemas.clusters import ClusterEdit, ClusterOut
from api.schemas.groups import (
    GroupEdit,
    GroupOut,
    MemberIn,
    MemberOut,
    PolicyIn,
    PolicyOut,
    PolicyPut,
    PolicyRevisionOut,
    WindowIn,
    WindowOut,
)
from api.schemas.jobs import JobEdit, JobOut
from api.schemas.resources import (
    ResourceGroupEdit,
    ResourceGroupOut,
    ResourcePackageEdit,
    ResourcePackageOut,
)


@pytest.mark.parametrize(
    ("noun", "out", "edit"),
    [
        (shapes.JOB, JobOut, JobEdit),
        (shapes.CLUSTER, ClusterOut, ClusterEdit),
        (shapes.GROUP, GroupOut, GroupEdit),
        (shapes.RESOURCE_PACKAGE, ResourcePackageOut, ResourcePackageEdit),
        (shapes.RESOURCE_GROUP, ResourceGroupOut, ResourceGroupEdit),
    ],
)
def test_a_record_less_its_read_only_fields_is_an_edit(
    noun: shapes.Noun, out: type[BaseModel], edit: type[BaseModel]
) -> None:
    sent = out.model_fields.keys() - noun.read_only
    assert sent - edit.model_fields.keys() <= {"name"}


def test_a_shown_policy_less_its_read_only_fields_is_a_policy_to_put() -> None:
    assert PolicyRevisionOut.model_fields.keys() - policy.READ_ONLY == PolicyPut.model_fields.keys()
    for out, put in ((MemberOut, MemberIn), (PolicyOut, PolicyIn), (WindowOut, WindowIn)):
        assert out.model_fields.keys() == put.model_fields.keys()


def test_every_field_of_a_policy_is_explained_to_who_edits_it(app: FastAPI) -> None:
    text = annotated({"timezone": "UTC", "members": [], "policy": {}, "comment": ""}, app.openapi())
    told = {line.strip("# ").split(" ")[0]: line for line in text.splitlines() if line.startswith("# ")}
    for fields in (PolicyPut, MemberIn, PolicyIn, WindowIn):
        assert [name for name in fields.model_fields if ": " not in told.get(name, "")] == []
    assert "failover | off_peak | hetero_gpu | random | custom" in text
