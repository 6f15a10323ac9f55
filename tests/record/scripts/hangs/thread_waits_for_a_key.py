"""A thread of each rank waits for a key that is set under another name.

Ranks: 2
Told: for the key `stop` of the store
Told: which no rank sets; set are `halt` by rank 0
"""

import threading
from pathlib import Path

import torch.distributed as dist


class Watcher:
    def __init__(self, path):
        self.path = path
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        dist.FileStore(self.path).get("stop")  # cause

    def stop(self):
        if dist.get_rank() == 0:
            name = "halt"  # right: name = "stop"
            dist.FileStore(self.path).set(name, b"1")
        self.thread.join()


def main():
    dist.init_process_group("gloo")
    watcher = Watcher(str(Path(__file__).with_name("keys")))
    dist.barrier()
    watcher.stop()
    dist.destroy_process_group()


main()
