"""A thread that is no daemon makes the last call, when the main one is over."""

import threading

import torch
import torch.distributed as dist


def last(main):
    main.join()
    dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()


dist.init_process_group("gloo")
dist.barrier()
threading.Thread(target=last, args=(threading.main_thread(),)).start()
