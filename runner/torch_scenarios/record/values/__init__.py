"""What the ranks of a recorded program hold: seen in its processes, compared afterwards.

`witness` works inside the user's processes, on torch and the standard library alone. Everything
else reads what it wrote, without torch.
"""
