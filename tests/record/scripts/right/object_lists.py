"""Lists of objects: broadcast from turn to turn, scattered, gathered, sent."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for epoch in range(4):
    told = (
        [{"epoch": epoch, "files": ["a"] * (epoch + 1)}, None]
        if rank == epoch % world
        else [None, None]
    )
    dist.broadcast_object_list(told, src=epoch % world)
    assert len(told[0]["files"]) == epoch + 1
    mine = [None]
    dist.scatter_object_list(
        mine, [{"to": r, "x": "y" * r} for r in range(world)] if rank == 0 else None, src=0
    )
    assert mine[0]["to"] == rank
    out = [None] * world if rank == 0 else None
    dist.gather_object({"rank": rank, "pad": "z" * (rank * 7)}, out, dst=0)
    if rank == 0:
        assert [o["rank"] for o in out] == list(range(world))
    if rank == 0:
        dist.send_object_list([epoch, "hello"], dst=world - 1)
    if rank == world - 1 and world > 1:
        got = [None, None]
        dist.recv_object_list(got, src=0)
        assert got == [epoch, "hello"]
dist.destroy_process_group()
