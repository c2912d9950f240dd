"""What pip, uv and conda may be told (requirements §4.3): names, allowed addresses, few options.

Ray writes these texts into a requirements file or an argument list on the node. A line break, a local path or an
option such as `--target` would reach further than a dependency should.
"""

import re

from kernel.errors import Problem, problem
from runtime_envs.check_uri import UriPolicy, check_uri, without_secrets

_MAX_LINE = 1024
_EXTRAS = r"\s*(\[[A-Za-z0-9._,\s-]*\]\s*)?"
_NAMED = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]*{_EXTRAS}([<>=!~;(].*)?")
_BY_ADDRESS = re.compile(rf"([A-Za-z0-9][A-Za-z0-9._-]*{_EXTRAS}@\s*)?((git|hg|svn|bzr)\+)?(?P<uri>\S+://\S+)(\s+;.*)?")
_OWN_FILE = re.compile(r"\$\{RAY_RUNTIME_ENV_CREATE_WORKING_DIR\}/(?!.*\.\.)[^\s$\\;#]+")
"""A file of the job's own package, named as Ray's documentation does."""
_HASHES = re.compile(r"(\s+--hash=[a-z0-9]+:[0-9a-f]+)+$")
_COMMENT = re.compile(r"(^|\s)#.*")
_CONDA_CHANNEL = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._/-]*")
_CONDA_MATCH = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9._/-]*::)?[A-Za-z0-9_][A-Za-z0-9._-]*\s*([<>=!~\[*\d].*)?")

_WITH_ADDRESS = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--index", "--default-index"}
_WITH_FILE = {"-r", "--requirement", "-c", "--constraint"}
_WITH_WORD = {
    *("--only-binary", "--no-binary", "--timeout", "--retries", "--upgrade-strategy", "--progress-bar"),
    *("--prerelease", "--resolution", "--index-strategy", "--exclude-newer"),
}
_ALONE = {
    *("--no-index", "--no-deps", "--pre", "--prefer-binary", "--require-hashes", "--disable-pip-version-check"),
    *("--no-cache-dir", "--no-cache", "-U", "--upgrade", "-q", "--quiet", "-v", "--verbose", "--no-input"),
    *("--no-build-isolation", "--no-build", "--compile-bytecode", "--strict"),
}


def check_requirement(text: str, policy: UriPolicy, pointer: str) -> list[Problem]:
    """One line of a requirements file."""
    line = text.strip()
    if len(line) > _MAX_LINE:
        return refused(text, "too_long", pointer)
    if not line.isprintable() or line.endswith("\\"):
        return refused(text, "control_character", pointer)
    if line.startswith("-"):
        return check_options([(word, pointer) for word in line.split()], policy)
    line = _HASHES.sub("", _COMMENT.sub("", line))
    if not line or _OWN_FILE.fullmatch(line):
        return []
    if "$" in line:
        return refused(text, "variable", pointer)
    if re.search(r"\s-", line):
        return refused(text, "option", pointer)
    address = _BY_ADDRESS.fullmatch(line)
    if address:
        return check_uri(address["uri"], policy, pointer)
    return [] if _NAMED.fullmatch(line) else refused(text, "not_a_name", pointer)


def check_options(words: list[tuple[str, str]], policy: UriPolicy) -> list[Problem]:
    """Arguments of `pip install`, each with its pointer."""
    found = []
    rest = iter(words)
    for word, pointer in rest:
        option, equals, value = word.partition("=")
        if option in _WITH_ADDRESS | _WITH_FILE | _WITH_WORD:
            value = value if equals else next(rest, ("", ""))[0]
            found += _check_value(option, value, policy, pointer)
        elif word not in _ALONE:
            return found + refused(word, "option", pointer)  # whether the next word is its value, nobody knows
    return found


def check_conda_channel(text: str, policy: UriPolicy, pointer: str) -> list[Problem]:
    if "://" in text:
        return check_uri(text, policy, pointer)
    return [] if _CONDA_CHANNEL.fullmatch(text) else refused(text, "not_a_name", pointer)


def check_conda_dependency(text: str, policy: UriPolicy, pointer: str) -> list[Problem]:
    if "://" in text:
        return check_uri(text, policy, pointer)
    return [] if _CONDA_MATCH.fullmatch(text) else refused(text, "not_a_name", pointer)


def refused(text: str, rule: str, pointer: str) -> list[Problem]:
    return [problem("REQUIREMENT_NOT_ALLOWED", pointer, requirement=without_secrets(text), rule=rule)]


def _check_value(option: str, value: str, policy: UriPolicy, pointer: str) -> list[Problem]:
    if option in _WITH_ADDRESS:
        return check_uri(value, policy, pointer)
    if option in _WITH_FILE:
        return [] if _OWN_FILE.fullmatch(value) else refused(value, "local_path", pointer)
    return [] if re.fullmatch(r"[A-Za-z0-9:][A-Za-z0-9._:,-]*", value) else refused(value, "option", pointer)
