"""The tag of a message is the hash of its name, which is another number in each process.

Ranks: 2
Told: by `return hash(name) % 997` (tag_by_hash.py:
Told: the hash of a string is another one in each process
"""

import torch
import torch.distributed as dist


class Mailbox:
    """Messages by name between two ranks."""

    def __init__(self, peer):
        self.peer = peer

    def tag(self, name):
        return hash(name) % 997  # cause # right: return len(name)

    def put(self, name, tensor):
        dist.send(tensor, dst=self.peer, tag=self.tag(name))

    def get(self, name, shape):
        buffer = torch.empty(shape)
        dist.recv(buffer, src=self.peer, tag=self.tag(name))
        return buffer


def actor(box):
    for step in range(3):
        box.put("observation", torch.randn(8))
        action = box.get("action", (2,))
    return action


def learner(box):
    for step in range(3):
        obs = box.get("observation", (8,))
        box.put("action", obs[:2].clone())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = Mailbox(1 - rank)
    actor(box) if rank == 0 else learner(box)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
