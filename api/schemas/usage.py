"""What was used, and what was used in vain (api.md §13)."""

from pydantic import BaseModel

from kernel.resources import Resources
from rayjobs.usage import Usage


class SpentOut(BaseModel):
    """Resources times the seconds they were held."""

    cpu_seconds: float
    memory_gib_seconds: float
    gpu_seconds: dict[str, float]


class WasteOut(BaseModel):
    """What did no work, in the same amounts.

    `gang_hold`: reserved, while the run waited for the rest of its places or for its environment. `cold_start`:
    reserved, while the run's own cluster came up. Both come before the full allocation, and before the amounts beside
    `waste`. `failed_attempts` is a part of those: used by attempts that failed and that another one followed.
    """

    gang_hold: SpentOut
    cold_start: SpentOut
    failed_attempts: SpentOut


class UsageOut(SpentOut):
    """From full allocation on. `key` is null where there is none, as for clusters outside of any resource group.

    `runs` counts those that held anything in the interval; a run of several days or groups counts in each.
    """

    key: str | None
    runs: int
    waste: WasteOut

    @classmethod
    def of(cls, usage: Usage) -> "UsageOut":
        waste = {name: _spent(getattr(usage, name)) for name in WasteOut.model_fields}
        return cls(key=usage.key, runs=len(usage.runs), waste=WasteOut(**waste), **_spent(usage.used).model_dump())


def _spent(amounts: Resources) -> SpentOut:
    return SpentOut(
        cpu_seconds=round(amounts.cpu, 3),
        memory_gib_seconds=round(amounts.memory_gib, 3),
        gpu_seconds={name: round(seconds, 3) for name, seconds in sorted(amounts.gpu.items())},
    )
