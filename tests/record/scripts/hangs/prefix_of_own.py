"""Each rank makes a name of its run by itself, under which keys of the store are kept.

Ranks: 2
Told: of the store (prefix_of_own.py:25 called from :36), which no rank sets; set are
Told: fix: the prefix of the key differs: let one rank choose it
"""

import datetime
import uuid

import torch
import torch.distributed as dist


class Notes:
    """Small messages between ranks, kept apart from torch's own keys."""

    def __init__(self, store, run):
        self.store = dist.PrefixStore(f"app/{run}", store)  # cause

    def publish(self, key, value):
        self.store.set(key, value)

    def read(self, key):
        return self.store.get(key).decode()


def name_run():
    return f"{datetime.date.today()}-{uuid.uuid4().hex[:6]}"  # right: return f"{datetime.date.today()}"


dist.init_process_group("gloo")
notes = Notes(dist.distributed_c10d._get_default_store(), name_run())
if dist.get_rank() == 0:
    notes.publish("folder", "/tmp/run")
folder = notes.read("folder")
dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
