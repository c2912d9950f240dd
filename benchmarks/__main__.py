"""`python -m benchmarks [--scale 0.2] [--record] [name …]`: measure and print; --record also into the docs."""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import (
    burst,
    cli_start,
    failover,
    group_decision,
    idle,
    latency,
    packages,
    pages,
    published_load,
    simulated_queues,
    starvation,
    submissions,
)
from benchmarks.report import Row, machine, markdown

MEASURES: Mapping[str, Callable[[float], Sequence[Row]]] = {
    "latency": latency.measure,
    "submissions": submissions.measure,
    "pages": pages.measure,
    "packages": packages.measure,
    "burst": burst.measure,
    "starvation": starvation.measure,
    "published-load": published_load.measure,
    "simulated-queues": simulated_queues.measure,
    "group-decision": group_decision.measure,
    "failover": failover.measure,
    "idle": idle.measure,
    "cli": cli_start.measure,
}
FAILED = "could not be measured"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: made by `make bench` -->", "<!-- end of figures -->"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(MEASURES))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of repetitions")
    parser.add_argument("--record", action="store_true", help="write the table into docs/benchmarks.md")
    asked = parser.parse_args()
    if asked.names and asked.record:
        parser.error("--record takes a whole run")
    if unknown := set(asked.names) - MEASURES.keys():
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    where, start = machine(), time.monotonic()
    rows = [row for name in asked.names or MEASURES for row in measured(name, asked.scale)]
    table = markdown(rows)
    print(f"\n{where}\n\n{table}\n\n{time.monotonic() - start:.0f} s in all")
    if asked.record:
        record(f"{where}\n\n{table}")
    return int(any(row.ours == FAILED for row in rows))


def measured(name: str, scale: float) -> Sequence[Row]:
    """Told as they come; one that fails does not cost the others their figures."""
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        rows = MEASURES[name](scale)
    except Exception:  # noqa: BLE001 - whatever it is, the others go on
        traceback.print_exc()
        return [Row(what=name, ours=FAILED, met=False)]
    for row in rows:
        print("  " + " · ".join(row.cells), file=sys.stderr, flush=True)
    return rows


def record(figures: str) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{figures}\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
