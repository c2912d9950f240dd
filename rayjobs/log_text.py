"""Pure: what of a driver's log belongs to the user, and where a page of it may be cut."""

HEADER_WITHIN_BYTES = 64 * 2**10
"""Ray writes its own two lines while the driver starts; after this much they are not to be expected any more."""

_SETTING_UP = b"-- Runtime env is setting up."
_RUNNING = b"Running entrypoint for job "


def drop_ray_lines(data: bytes, *, header_done: bool, is_end: bool) -> tuple[bytes, int, bool]:
    """(the user's text, bytes of `data` used up, whether Ray's line with the entrypoint has gone by).

    That line repeats the whole runner command, which says nothing to anybody. It may come after early output, so until
    it has gone by only whole lines are taken.
    """
    if header_done:
        return data, len(data), True
    kept: list[bytes] = []
    taken = 0
    for line in _lines(data):
        whole = line.endswith(b"\n")
        if not whole and not is_end and len(data) < HEADER_WITHIN_BYTES:
            break
        taken += len(line)
        if _RUNNING in line:
            return b"".join(kept) + data[taken:], len(data), True
        if _SETTING_UP not in line:
            kept.append(line)
    return b"".join(kept), taken, taken >= HEADER_WITHIN_BYTES


def _lines(data: bytes) -> list[bytes]:
    """Split after line feeds only: a carriage return redraws a progress bar and ends nothing."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def whole_characters(data: bytes, *, is_end: bool) -> bytes:
    """`data` less a UTF-8 character cut off at its end; broken bytes stay and are shown as U+FFFD."""
    if is_end:
        return data
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if length > back else data
    return data
