"""Two stages of a pipeline send to each other, one its activation and one its gradient.

Ranks: 2
Told: ranks 0 and 1 both send first
Told: one `batch_isend_irecv`
"""

import torch
import torch.distributed as dist


def send_forward(rank, world, x):
    if rank != world - 1:
        dist.send(x, rank + 1)  # cause


def recv_forward(rank, x):
    if rank != 0:
        dist.recv(x, rank - 1)


def send_backward(rank, g):
    if rank != 0:
        dist.send(g, rank - 1)  # cause


def recv_backward(rank, world, g):
    if rank != world - 1:
        dist.recv(g, rank + 1)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.ones(4)
warmup = world - rank - 1  # right: warmup = 4
for _ in range(warmup):
    recv_forward(rank, x)
    send_forward(rank, world, x)
for _ in range(4 - warmup):
    recv_forward(rank, x)
    send_forward(rank, world, x)
    recv_backward(rank, world, x)
    send_backward(rank, x)
for _ in range(warmup):
    recv_backward(rank, world, x)
    send_backward(rank, x)
dist.barrier()
dist.destroy_process_group()
