"""Each rank writes down which event loops and sockets it has before it joins the job."""

import os
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

links = []
for name in os.listdir("/proc/self/fd"):
    with suppress(OSError):
        links.append(os.readlink(f"/proc/self/fd/{name}"))
own = [each for each in links if each.startswith(("socket:", "anon_inode:[event"))]
Path(os.environ["OUT"], os.environ["RANK"]).write_text("\n".join(own))
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
