"""What people try in an expression that has no place there, and what to write instead."""

from __future__ import annotations

#: a node of Python's syntax -> what is wrong with it, and a hint
NOT_ALLOWED: dict[str, tuple[str, str | None]] = {
    "Lambda": ("an expression defines no functions", None),
    "NamedExpr": ("an expression assigns nothing", "`compute:` gives a value a name"),
    "GeneratorExp": ("only list comprehensions are allowed", "put it in brackets: sum([…])"),
    "SetComp": ("only list comprehensions are allowed", "write […] for {…}"),
    "DictComp": ("only list comprehensions are allowed", "write […] for {…}"),
    "Set": ("an expression has no sets", "write […] for {…}"),
    "Dict": ("an expression has no mappings", "differ by rank with a YAML mapping, or `x if c`"),
    "JoinedStr": ("an expression cannot hold text", None),
    "Starred": ("nothing is unpacked with `*`", "add lists with `+`"),
    "Await": ("an expression awaits nothing", None),
    "Yield": ("an expression yields nothing", None),
    "YieldFrom": ("an expression yields nothing", None),
    "Slice": ("a slice stands in brackets only", "x[0:2]"),
}

#: an attribute of a tensor -> what to write instead
ATTRIBUTE_HINTS = {
    "T": "transpose with permute_dims(x, [1, 0])",
    "transpose": "transpose with permute_dims(x, [1, 0])",
    "permute": "permute_dims(x, axes)",
    "size": "shape(x), or numel(x)",
    "ndim": "len(shape(x))",
    "item": "float(x), or int(x)",
    "tolist": "a tensor is a value already",
    "view": "reshape(x, shape)",
    "to": "astype(x, dtype)",
    "dtype": "state the dtype beside the value: {dtype: …}",
    "clone": "`compute:` never shares memory",
    "contiguous": "`compute:` makes a copy",
    "rank": "group_rank(g)",
    "ranks": "group_ranks(g)",
}

#: a function of Python or of an array library -> what to write instead
PYTHON_FUNCTION_HINTS = {
    "tensor": "a YAML list is a tensor; full, zeros, arange make others",
    "array": "a YAML list is a tensor; full, zeros, arange make others",
    "asarray": "a YAML list is a tensor; full, zeros, arange make others",
    "cat": "concat(arrays, axis=0)",
    "concatenate": "concat(arrays, axis=0)",
    "vstack": "stack(arrays, axis=0)",
    "transpose": "permute_dims(x, [1, 0])",
    "rand": "random(shape, seed)",
    "randn": "random(shape, seed)",
    "pow": "x ** y",
    "dot": "matmul(x1, x2)",
    "round": "int(x), or a tolerance beside the value",
    "size": "numel(x)",
    "list": "a range is a list already",
    "enumerate": "[… for i in range(len(x))]",
    "zip": "[… for i in range(len(x))]",
    "any": "max(x)",
    "all": "min(x)",
    "get_rank": "rank, or group_rank(g)",
    "get_world_size": "world_size, or group_size(g)",
}
