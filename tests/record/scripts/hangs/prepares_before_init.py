"""The main rank tokenizes before the group is made, whose timeout is short.

Ranks: 2
Told: rank 0 comes too late, and rank 1 gives up before
"""

import datetime
import os
import time

import torch
import torch.distributed as dist


def tokenize(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.1)
    return list(range(10))


def prepare():
    if os.environ["RANK"] == "0":  # cause
        return tokenize(9)  # cause  # right: return tokenize(0.1)
    return None


def main():
    tokens = prepare()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))  # cause
    box = [tokens]
    dist.broadcast_object_list(box, src=0)
    count = torch.tensor(len(box[0]))
    dist.all_reduce(count)
    print(count)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
