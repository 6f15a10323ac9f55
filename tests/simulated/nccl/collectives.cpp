// A collective on its stream: an exchange between all pairs of ranks that it needs.
#include <cstring>

#include "group.hpp"
#include "reduction.hpp"
#include "wire.hpp"

namespace simulated {

namespace {

using Bytes = std::vector<char>;

// Stands before the bytes. Ranks whose heads differ never get on with each other.
struct Head {
    uint32_t call;
    int32_t root;
    uint64_t bytes;

    bool operator==(const Head& other) const {
        return call == other.call && root == other.root && bytes == other.bytes;
    }
};

// What goes to each rank and what came from each; empty or null where nothing does.
struct Exchange {
    explicit Exchange(int ranks) : to(ranks), from(ranks), heads(ranks) {}
    std::vector<const char*> to;
    std::vector<Bytes> from;
    std::vector<Head> heads;
};

bool exchanged(Communicator& on, const Task& task, size_t bytes, Exchange& exchange) {
    Head own{static_cast<uint32_t>(task.call), task.peer, bytes};
    bool mismatch = false;
    std::vector<Transfer> transfers;
    transfers.reserve(4 * on.size);  // what comes after a head is told its size in place
    for (int peer = 0; peer < on.size; ++peer) {
        const int socket = on.wires[peer].collectives;
        if (exchange.to[peer] != nullptr) {
            transfers.push_back({socket, true, reinterpret_cast<char*>(&own), sizeof own});
            transfers.push_back({socket, true, const_cast<char*>(exchange.to[peer]), bytes});
        }
        if (exchange.from[peer].empty()) continue;
        Head& head = exchange.heads[peer];
        const size_t body = transfers.size() + 1;
        transfers.push_back({socket, false, reinterpret_cast<char*>(&head), sizeof head, [&, body] {
                                 if (head == own) {
                                     transfers[body].size = bytes;
                                 } else {
                                     mismatch = true;
                                 }
                             }});
        transfers.push_back({socket, false, exchange.from[peer].data(), 0});
    }
    const End end = move(on, transfers);
    if (end == End::closed) on.lost();
    if (end == End::done && mismatch) on.hang();
    return end == End::done && !mismatch;
}

// All parts in the order of ranks, combined; the own among them.
Bytes combined(Communicator& on, const Task& task, const char* own, const Exchange& exchange) {
    std::vector<const char*> parts;
    for (int peer = 0; peer < on.size; ++peer) {
        parts.push_back(peer == on.rank ? own : exchange.from[peer].data());
    }
    return reduced(on, parts, task.count, task.dtype, task.op);
}

}  // namespace

void collective(Communicator& on, const Task& task) {
    const size_t bytes = task.count * size_of(task.dtype);
    const auto* from = static_cast<const char*>(task.from);
    auto* to = static_cast<char*>(task.to);
    const bool root = on.rank == task.peer;
    if (bytes == 0) return;
    Exchange exchange(on.size);
    const bool parts = task.call == Call::reduce_scatter || task.call == Call::all_to_all ||
                       task.call == Call::scatter;
    const bool down = task.call == Call::broadcast || task.call == Call::scatter;
    const bool up = task.call == Call::reduce || task.call == Call::gather;
    for (int peer = 0; peer < on.size; ++peer) {
        if (peer == on.rank) continue;
        const bool sends = down ? root : !up || peer == task.peer;
        const bool receives = down ? peer == task.peer : !up || root;
        if (sends) exchange.to[peer] = from + (parts ? peer * bytes : 0);
        if (receives) exchange.from[peer].resize(bytes);
    }
    if (!exchanged(on, task, bytes, exchange) || (up && !root)) return;
    const char* own = from + (parts ? on.rank * bytes : 0);
    switch (task.call) {
        case Call::all_reduce:
        case Call::reduce_scatter:
        case Call::reduce:
            std::memcpy(to, combined(on, task, own, exchange).data(), bytes);
            break;
        case Call::broadcast:
        case Call::scatter:
            std::memmove(to, root ? own : exchange.from[task.peer].data(), bytes);
            break;
        default:  // each rank's part has its place
            for (int peer = 0; peer < on.size; ++peer) {
                const char* part = peer == on.rank ? own : exchange.from[peer].data();
                std::memmove(to + peer * bytes, part, bytes);
            }
    }
}

}  // namespace simulated
