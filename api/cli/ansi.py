"""What of a log's escape sequences reaches the terminal: colours if wanted, cursor play and titles never."""

import re

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor, screen
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # commands to the terminal: title, links, clipboard
    r"|\x1b[ -/]*[0-Z\\^-~]"
    r"|[\x80-\x9f\x1b]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[ -/]*)\Z")
_LONGEST = 512


class EscapeFilter:
    """Takes text in pieces; a sequence may be cut anywhere between two of them."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._held = ""

    def feed(self, text: str) -> str:
        text = self._held + text
        unfinished = _UNFINISHED.search(text)
        self._held = unfinished[0] if unfinished and len(unfinished[0]) < _LONGEST else ""
        return _SEQUENCE.sub(self._kept, text.removesuffix(self._held))

    def _kept(self, match: re.Match[str]) -> str:
        sequence = match[0]
        return sequence if self._colours and sequence.startswith("\x1b[") and sequence.endswith("m") else ""
