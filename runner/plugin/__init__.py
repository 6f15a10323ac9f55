"""What the pytest plugin does once a session asks for scenarios.

`collecting` finds them, `items` are what pytest runs, `warm` is the launch that they share,
`options` what the session chose, `wording` what a verdict is in pytest's terms, and `fixture` is
`run_scenario`. Only `runner.pytest_plugin`, which pytest loads, knows of these.
"""
