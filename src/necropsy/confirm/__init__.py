"""(Report, experiments) -> Report with proof: a cause is a hypothesis until an experiment confirms it."""
