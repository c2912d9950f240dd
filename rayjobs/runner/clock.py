"""The clock of leases and limits: nobody sets it, and it goes on while the machine sleeps, as CLOCK_MONOTONIC does not.

The same for all processes of one machine, and for none of another.
"""

from __future__ import annotations

import time


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
