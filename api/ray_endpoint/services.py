"""What the endpoint stands on."""

from typing import Protocol

from api.auth import Tokens
from api.settings import Settings
from api.streaming import News
from kernel.clock import Clock
from kernel.db import Database
from kernel.loop import Hints
from rayjobs.job_service import JobService
from rayjobs.logs import LogKeeper
from rayjobs.run_service import RunService
from runtime_envs.service import RayUploads


class RayServices(Protocol):
    @property
    def settings(self) -> Settings: ...
    @property
    def database(self) -> Database: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def hints(self) -> Hints: ...
    @property
    def news(self) -> News: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def jobs(self) -> JobService: ...
    @property
    def runs(self) -> RunService: ...
    @property
    def logs(self) -> LogKeeper: ...
    @property
    def ray_uploads(self) -> RayUploads: ...
