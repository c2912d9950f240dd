"""`POST /cluster-groups/{ref}/simulate` (api.md §6): what is supposed, and what would come of it."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, Field

from api.schemas.base import In, Time, given
from api.schemas.decisions import DecisionOut
from api.schemas.groups import PolicyPut
from api.schemas.jobs import RequirementsIn
from api.texts import Language
from rayjobs.model.job import Requirements
from rayjobs.what_if import Simulation

Instant = Annotated[Time, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), le=datetime(2200, 1, 1, tzinfo=UTC))]


class Simulate(In):
    job: str | None = None
    """A run of this job; one that goes elsewhere is looked at as if it went through the group."""
    requirements: RequirementsIn | None = None
    """Instead of a job: a plain run that asks for this; with neither it asks for a driver slot only."""
    at: Instant | None = None
    """Now unless given."""
    policy: PolicyPut | None = None
    """As it would be if this were the policy; without it as it is."""

    def needs(self) -> Requirements:
        return Requirements(**given(self.requirements, Requirements)) if self.requirements else Requirements()


class FateOut(BaseModel):
    """`outcome` is dispatched to `cluster`, waiting for `code`, or failed by it."""

    outcome: str
    cluster: str | None
    code: str | None


class WaitingRunOut(BaseModel):
    """`before` is by the policy as it is, now; `after` as supposed."""

    run: str
    before: FateOut
    after: FateOut


class SimulationOut(DecisionOut):
    """The decision as supposed, and what becomes of the runs that wait in the group now. A draft has no revision."""

    waiting_runs: list[WaitingRunOut] = []

    @classmethod
    def of_simulation(cls, told: Simulation, language: Language, *, is_draft: bool) -> "SimulationOut":
        fates = [WaitingRunOut.model_validate(one, from_attributes=True) for one in told.waiting_runs]
        revision = None if is_draft else told.decision.get("revision")
        return cls.of(told.decision, language, run=None, revision=revision, waiting_runs=fates)
