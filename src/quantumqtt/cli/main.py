"""The program `quantumqtt`: its commands, and nothing else.

Help and errors are plain text (`rich_markup_mode=None`): they are read by people and grepped by
scripts, and boxes wrapped to the width of a terminal serve neither.
"""

import typer

from quantumqtt.cli.bench import bench
from quantumqtt.cli.check_config import check_config
from quantumqtt.cli.ctl import app as ctl
from quantumqtt.cli.familiar import add_familiar
from quantumqtt.cli.log import app as log
from quantumqtt.cli.passwd import passwd
from quantumqtt.cli.pipeline import app as pipeline
from quantumqtt.cli.serve import serve
from quantumqtt.cli.test import probe_broker
from quantumqtt.cli.torture import torture
from quantumqtt.cli.up import up
from quantumqtt.cli.version import version

app = typer.Typer(
    name="quantumqtt",
    help="QuantuMQTT: an MQTT broker, and what belongs to it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(serve)
app.command()(up)
add_familiar(app)
app.command()(bench)
app.command("test")(probe_broker)
app.command()(torture)
app.command("check-config")(check_config)
app.command()(passwd)
app.add_typer(ctl, name="ctl")
app.add_typer(log, name="log")
app.add_typer(pipeline, name="pipeline")
app.command()(version)


def main() -> None:
    """Run the command line; ends the process with an exit code of `ExitCode`."""
    app(prog_name="quantumqtt")


if __name__ == "__main__":
    main()
