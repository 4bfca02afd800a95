"""``jupyter``: kernels whose death is explained in the notebook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from necropsy.cli.messages import show
from necropsy.console import say


@click.group(short_help="Add Jupyter kernels whose crashes are explained in the notebook.")
def jupyter() -> None:
    """Add Jupyter kernels whose crashes are explained in the notebook.

    \b
      necropsy jupyter install                add "watched": python3
      necropsy jupyter install --kernel ir --name watched-r
      necropsy jupyter list
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines


_prefix = click.option(
    "--prefix", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="The environment in DIR."
)
_user = click.option("--user", is_flag=True, help="The user's own kernels.")
_sys_prefix = click.option("--sys-prefix", is_flag=True, help="The environment in which necropsy is installed.")


@jupyter.command(short_help="Add a kernel that is watched.")
@click.option(
    "--kernel", default="python3", metavar="NAME", show_default=True, help="The kernel to start, or its folder."
)
@click.option("--name", default="watched", metavar="NAME", show_default=True, help="The name of the watched kernel.")
@click.option("--display-name", metavar="TEXT", help="The title in Jupyter's menus.")
@_prefix
@_user
@_sys_prefix
def install(  # noqa: PLR0917 - click passes them by name
    kernel: str, name: str, display_name: str | None, prefix: Path | None, user: bool, sys_prefix: bool
) -> None:
    """Add a kernel that starts another kernel under necropsy's watch. The other kernel does not change.

    It is written next to the other one, or among the user's own kernels if that is not allowed, unless an option says
    where. necropsy need not be installed in the kernel's environment.
    """
    from necropsy.errors import NecropsyError
    from necropsy.notebook import kernelspecs

    if sys.platform != "linux":
        raise NecropsyError("watched kernels work on Linux only so far")
    place = _place(prefix, user=user, sys_prefix=sys_prefix)
    wrapped = kernelspecs.named(kernel, kernelspecs.folders(prefix))
    if place is None:
        place = wrapped.folder.parent
        if not os.access(place, os.W_OK):
            place = kernelspecs.user_folder()
    folder = kernelspecs.install(wrapped, name, display_name, place)
    say(f"installed the kernel {folder.name}, which starts {wrapped.name}: {folder}")


@jupyter.command(short_help="Remove a watched kernel.")
@click.option("--name", default="watched", metavar="NAME", show_default=True, help="The name of the watched kernel.")
@_prefix
@_user
@_sys_prefix
def uninstall(name: str, prefix: Path | None, *, user: bool, sys_prefix: bool) -> None:
    """Remove a watched kernel. The kernel that it started stays."""
    from necropsy.notebook import kernelspecs

    place = _place(prefix, user=user, sys_prefix=sys_prefix)
    folder = kernelspecs.uninstall(name, [place] if place is not None else kernelspecs.folders())
    say(f"removed {folder}")


@jupyter.command("list", short_help="List the watched kernels.")
@_prefix
def list_(prefix: Path | None) -> None:
    """List the watched kernels: the name, the kernel that it starts, and its folder."""
    from necropsy.notebook import kernelspecs

    rows = [one for one in kernelspecs.found(kernelspecs.folders(prefix)) if one.wrapped is not None]
    if not rows:
        say("no kernel is watched: `necropsy jupyter install` adds one")
        return
    wide = [max(map(len, column)) for column in zip(*((one.name, one.wrapped or "") for one in rows), strict=True)]
    show("".join(f"{one.name:<{wide[0]}}  {one.wrapped:<{wide[1]}}  {one.folder}\n" for one in rows))


def _place(prefix: Path | None, *, user: bool, sys_prefix: bool) -> Path | None:
    """The kernels folder that the options name; raises ``click.UsageError`` if they name several."""
    from necropsy.notebook import kernelspecs

    if (prefix is not None) + user + sys_prefix > 1:
        raise click.UsageError("give one of --prefix, --user and --sys-prefix")
    if user:
        return kernelspecs.user_folder()
    if prefix is not None or sys_prefix:
        return kernelspecs.prefix_folder(prefix if prefix is not None else sys.prefix)
    return None
