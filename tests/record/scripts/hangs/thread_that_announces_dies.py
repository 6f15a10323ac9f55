"""A thread of rank 0 is to set a key that the others wait for, and dies by an error.

Ranks: 2
Told: a thread of rank 0
Told: has died by TypeError: can only concatenate str (not "int") to str
"""

import threading
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()


def announce(step):
    store.set("ready/" + step, "1")  # cause # right: store.set("ready/" + str(step), "1")


if dist.get_rank() == 0:
    threading.Thread(target=announce, args=(7,), daemon=True).start()
else:
    store.wait(["ready/7"], timedelta(seconds=90))
dist.barrier()
dist.destroy_process_group()
