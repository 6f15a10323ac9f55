"""What a program that is proved right costs: its structure on any machine, its time on one.

`Trace -> Structure`, exact, and `Trace + Topology -> Forecast`, an estimate with a stated origin.
Both read the traffic that the reference proved to happen, so that only a right program has a cost.
Pure, without torch; below :mod:`torch_scenarios.verdict`, which holds stated times against
forecasts.
"""
