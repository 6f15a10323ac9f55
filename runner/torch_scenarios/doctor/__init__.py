"""`scenario doctor`: whether the machines of a run can run, looked at before anything does.

Takes what a command line says of its nodes and gives checks, host by host. Knows no scenario.
"""

from torch_scenarios.doctor.examination import Examination, Subject, examine

__all__ = ["Examination", "Subject", "examine"]
