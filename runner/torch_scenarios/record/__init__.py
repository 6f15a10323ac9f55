"""Programs as they are: recorded while they run, told what they do wrong, written as scenarios.

`recorder` and `fake` work inside the user's processes, on torch; `launch` starts these. Everything
else reads what they wrote, without torch.
"""
