"""`pgrouse completion`: complete commands and options by the Tab key."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pgrouse.terminal.command import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  echo 'eval "$(pgrouse completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(pgrouse completion zsh)"' >> ~/.zshrc
    fish:  pgrouse completion fish > ~/.config/fish/completions/pgrouse.fish
    """  # noqa: D301 - click reads the real \b
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - the choices are click's own shells
    script = found(ctx.find_root().command, {}, "pgrouse", "_PGROUSE_COMPLETE").source()
    if ctx.obj.as_json:
        ctx.obj.record({"shell": shell, "script": script})
    else:
        click.echo(script)
