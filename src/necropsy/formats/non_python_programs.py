"""Programs that the kernel and the system's journal tell of, and that no Python runs in: their deaths are not meant."""

from __future__ import annotations

import re

_OTHERS = re.compile(
    r"chrom(?:e|ium)|firefox|Web Content|Isolated Web|GPU Process|WebKit|gnome-|gjs$|gsd-|gvfs|nautilus|kwin|"
    r"plasma|kded|Xorg|Xwayland|sway$|systemd|dbus-|snapd|packagekitd|tracker-|cupsd|slack|teams|discord|spotify|steam|thunderbird|"
    r"soffice|evince|telegram|zoom$",
    re.IGNORECASE,
)


def is_foreign(name: str | None) -> bool:
    """The name is that of a desktop's or a system's own program. Any other may be a Python that renamed itself."""
    return bool(name and _OTHERS.match(name.strip()))
