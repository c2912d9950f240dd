"""What the command line holds back from an edited record is exactly what an edit may not say."""

import pytest
from pydantic import BaseModel

from api.cli import shapes
from api.schemas.clusters import ClusterEdit, ClusterOut
from api.schemas.groups import GroupEdit, GroupOut
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
