"""What a rank expects of the others is reckoned, and not asked for.

Ranks: 2
Told: what is expected is `sizes`, which is set by `sizes = self.incoming(counts)`
Told: `return [sum(counts) // 2] * 2` (sizes_without_exchange.py:
Told: fix: what a rank passes as `input_split_sizes`
"""

import torch
import torch.distributed as dist


class Shuffle:
    def incoming(self, counts):
        return [sum(counts) // 2] * 2  # cause # right: return exchange(counts)

    def run(self, rows, counts):
        sizes = self.incoming(counts)
        out = torch.empty(sum(sizes), 2)
        dist.all_to_all_single(out, rows, output_split_sizes=sizes, input_split_sizes=counts)
        return out


def exchange(counts):
    theirs = torch.empty(len(counts), dtype=torch.long)
    dist.all_to_all_single(theirs, torch.tensor(counts))
    return theirs.tolist()


def main():
    dist.init_process_group("gloo")
    counts = [[5, 3], [4, 4]][dist.get_rank()]
    Shuffle().run(torch.ones(8, 2), counts)
    dist.barrier()
    dist.destroy_process_group()


main()
