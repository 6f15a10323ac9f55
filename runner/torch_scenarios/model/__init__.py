"""The stages of the pipeline, frozen: Scenario, Plan, Process, Trace."""
