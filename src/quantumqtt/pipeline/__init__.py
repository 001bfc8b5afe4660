"""Jobs over the message log, run on Spark: `quantumqtt pipeline run …`.

What a job is asked for and what it reports are plain types that need no Spark; the job itself
imports pyspark when it starts.
"""

from quantumqtt.pipeline.checkpoint import read_checkpoint
from quantumqtt.pipeline.land import LandOptions, run_land
from quantumqtt.pipeline.progress import LandProgress, LandStart

__all__ = ["LandOptions", "LandProgress", "LandStart", "read_checkpoint", "run_land"]
