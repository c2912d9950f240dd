"""Cluster groups and the revisions of their policies (api.md §6, policy.md)."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from api.schemas.base import In, Resource, WarningOut
from cluster_groups.model.group import ClusterGroup, Member, PolicyDraft, PolicyRevision
from cluster_groups.service.groups import GroupChanges


class MemberIn(In):
    cluster: str
    enabled: bool = True
    cordoned: bool = False
    order: int | None = None
    """Position in the list unless given."""


class DraftIn(In):
    timezone: str = "UTC"
    members: list[MemberIn] = []
    policy: dict[str, Any] = {}

    def draft(self, comment: str = "") -> PolicyDraft:
        return PolicyDraft(timezone=self.timezone, members=_members(self.members), policy=self.policy, comment=comment)


class PolicyPut(DraftIn):
    comment: str = ""


class GroupCreate(DraftIn):
    name: str
    description: str = ""


class GroupEdit(DraftIn):
    description: str = ""

    def changes(self) -> GroupChanges:
        sent = {name: getattr(self, name) for name in self.model_fields_set}
        if "members" in sent:
            sent["members"] = _members(self.members)
        return GroupChanges(**sent)


class MemberOut(BaseModel):
    cluster: str
    enabled: bool
    cordoned: bool
    order: int


class PolicyOut(BaseModel):
    preset: str
    rank: str
    lost_timeout_s: int
    max_wait_s: int | None


class GroupOut(Resource):
    name: str
    description: str
    revision: int
    timezone: str
    members: list[MemberOut]
    policy: PolicyOut
    warnings: list[WarningOut] = []

    @classmethod
    def of(cls, group: ClusterGroup) -> "GroupOut":
        return cls.model_validate(asdict(group))


class PolicyRevisionOut(BaseModel):
    revision: int
    created_at: datetime
    created_by: str
    comment: str
    timezone: str
    members: list[MemberOut]
    policy: PolicyOut

    @classmethod
    def of(cls, revision: PolicyRevision) -> "PolicyRevisionOut":
        return cls.model_validate(asdict(revision))


def _members(members: list[MemberIn]) -> tuple[Member, ...]:
    return tuple(
        Member(
            cluster=member.cluster,
            enabled=member.enabled,
            cordoned=member.cordoned,
            order=index if member.order is None else member.order,
        )
        for index, member in enumerate(members)
    )
