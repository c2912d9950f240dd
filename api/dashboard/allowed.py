"""Pure: what may be asked of a Ray dashboard, and by whom. What is not listed is refused, whatever Ray adds.

Read off the routes of Ray 2.60. Left out on purpose: whatever changes jobs and packages (runs go through Muster's
queue; even asking for a package pins it), deploying with Serve (it runs code), what nodes report, `/test/dump`,
`/api/v0/delay`, logs without an end, signing in to Ray.
"""

import re
from urllib.parse import parse_qsl

from kernel.actor import Role

_NAME = r"(?!\.{1,2}(?:/|$))[\w.:@-]+"
_PROFILE = r"(?:task|worker)/(?:traceback|cpu_profile)|worker/(?:gpu|jax)_profile|memory_profile"
_RULES = tuple(
    (method, role, re.compile(path, re.ASCII))
    for method, role, path in (
        # the page and what it shows
        ("GET", Role.VIEWER, rf"|favicon\.ico|static/(?:js|css|media)/{_NAME}|timezone|cluster_id|usage_stats_enabled"),
        ("GET", Role.VIEWER, rf"events|nodes(?:/{_NAME})?|logical/actors(?:/{_NAME})?|api/jobs/(?:{_NAME})?"),
        ("GET", Role.VIEWER, r"api/(?:ray/)?version|api/(?:profiling_enabled|cluster_status|component_activities)"),
        ("GET", Role.VIEWER, r"api/(?:authentication_mode|gcs_healthz|grafana_health|prometheus_health)"),
        ("GET", Role.VIEWER, rf"api/serve/applications/|api/train/v2/runs(?:/v1)?|api/data/datasets/{_NAME}"),
        # what `ray list`, `ray summary` and `ray logs` ask
        ("GET", Role.VIEWER, r"api/v0/(?:actors|jobs|nodes|placement_groups|workers|tasks|objects|runtime_envs)"),
        ("GET", Role.VIEWER, r"api/v0/(?:cluster_events|platform_events|cluster_metadata|runtime_env_redaction)"),
        ("GET", Role.VIEWER, r"api/v0/(?:(?:actors|tasks|objects)/summarize|tasks/timeline|logs(?:/file)?)"),
        # it halts or slows somebody's process
        ("GET", Role.OPERATOR, _PROFILE),
        # what Serve has started outlives its run, and there is no other way to it
        ("POST", Role.OPERATOR, rf"api/v1/applications/{_NAME}/deployments/{_NAME}/scale"),
        ("DELETE", Role.OPERATOR, r"api/serve/applications/"),
    )
)
_OPEN_LOG = re.compile(
    r"(?:old/)?(?:job-driver|worker|python-core|java-worker|raylet|gcs_server|monitor|log_monitor|dashboard)[\w.:@-]*"
    r"|serve/[\w.:@#-]+",
    re.ASCII,
)
"""Not that of the runtime environments' agent: it has the values of `env_vars` in plain text [measured]."""
_MAX_FIELDS = 100


def role_for(method: str, path: str, query: str) -> Role | None:
    """The least role that may; None: nobody may, through Muster. `path` is decoded and begins behind the first `/`."""
    role = next((role for verb, role, fits in _RULES if verb == method and fits.fullmatch(path)), None)
    return role if _names_open_logs(query) else None


def _names_open_logs(query: str) -> bool:
    try:
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return False
    return all(_OPEN_LOG.fullmatch(value) for name, value in fields if name == "filename")
