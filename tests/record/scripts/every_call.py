"""Every way to call, on two ranks or more, with one planted fault: a work that is never waited for."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x, out = torch.ones(4), torch.zeros(4 * world)
dist.all_reduce(x)
dist.all_reduce(x, op=dist.ReduceOp.MAX)
work = dist.all_reduce(x, async_op=True)
work.wait()
dist.broadcast(x, src=1)
dist.reduce(x, dst=0)
dist.all_gather([torch.zeros(4) for _ in range(world)], x)
dist.all_gather_into_tensor(out, x)
dist.gather(x, [torch.zeros(4) for _ in range(world)] if rank == 0 else None, dst=0)
dist.scatter(x, [torch.ones(4) for _ in range(world)] if rank == 1 else None, src=1)
dist.reduce_scatter(torch.zeros(4), [torch.ones(4) for _ in range(world)])
dist.reduce_scatter_tensor(torch.zeros(4), torch.ones(4 * world))
dist.all_to_all_single(torch.zeros(world), torch.ones(world))
lost = dist.all_reduce(torch.ones(7), async_op=True)
dist.barrier()
dist.all_gather_object([None] * world, {"rank": rank})
dist.broadcast_object_list([rank], src=0)
if rank == 0:
    dist.send(x, 1)
    dist.isend(x, 1, tag=3).wait()
elif rank == 1:
    dist.recv(x, 0)
    dist.irecv(x, 0, tag=3).wait()
ops = [
    dist.P2POp(dist.isend, x, (rank + 1) % world),
    dist.P2POp(dist.irecv, out[:4], (rank - 1) % world),
]
for each in dist.batch_isend_irecv(ops):
    each.wait()
functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD))
with torch.inference_mode():
    dist.all_reduce(torch.ones(2))
pair = dist.new_group([0, 1])
if rank < 2:
    dist.all_reduce(x, group=pair)
    assert dist.get_backend() == dist.get_backend(pair) == "gloo"  # which frameworks ask for
dist.destroy_process_group()
