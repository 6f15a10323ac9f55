// The messages of one group on their stream, all at one stroke; those of a pair in their order.
#include <cstring>

#include "group.hpp"
#include "reduction.hpp"
#include "wire.hpp"

namespace simulated {

namespace {

// A message that is on its way to nobody: it leaves while it fits a buffer.
constexpr size_t BUFFERED = 512 << 10;

// What comes in: its length, then its bytes, of which the receive takes as much as it has room for.
struct Receipt {
    const Task* task;
    uint64_t length = 0;
    std::vector<char> bytes;
};

size_t bytes_of(const Task& task) { return task.count * size_of(task.dtype); }

// Messages of a rank to itself need no wire. False where one of them has no counterpart.
bool to_oneself(Communicator& on, const std::vector<Task>& tasks) {
    std::vector<const Task*> sends, receives;
    for (const Task& task : tasks) {
        if (task.peer == on.rank) (task.call == Call::send ? sends : receives).push_back(&task);
    }
    for (size_t index = 0; index < std::min(sends.size(), receives.size()); ++index) {
        const Task &send = *sends[index], &receive = *receives[index];
        std::memmove(receive.to, send.from, std::min(bytes_of(send), bytes_of(receive)));
    }
    return sends.size() == receives.size();
}

}  // namespace

void messages(Communicator& on, const std::vector<Task>& tasks) {
    bool stuck = !to_oneself(on, tasks);
    std::vector<uint64_t> lengths(tasks.size());
    std::vector<Receipt> receipts(tasks.size());
    std::vector<Transfer> transfers;
    transfers.reserve(2 * tasks.size());  // what comes after a length is told its size in place
    for (size_t index = 0; index < tasks.size(); ++index) {
        const Task& task = tasks[index];
        const size_t size = bytes_of(task);
        const bool sends = task.call == Call::send;
        if (task.peer == on.rank || size == 0) continue;
        if (on.astray(task.peer, sends ? 1 : 2)) {
            stuck = stuck || !sends || size > BUFFERED;
            continue;
        }
        const int socket = on.wires[task.peer].messages;
        if (sends) {
            lengths[index] = size;
            auto* body = const_cast<char*>(static_cast<const char*>(task.from));
            transfers.push_back(
                {socket, true, reinterpret_cast<char*>(&lengths[index]), sizeof lengths[index]});
            transfers.push_back({socket, true, body, size});
            continue;
        }
        Receipt& receipt = receipts[index];
        receipt.task = &task;
        const size_t body = transfers.size() + 1;
        auto sized = [&receipt, &transfers, body] {
            receipt.bytes.resize(receipt.length);
            transfers[body].bytes = receipt.bytes.data();
            transfers[body].size = receipt.length;
        };
        auto* length = reinterpret_cast<char*>(&receipt.length);
        transfers.push_back({socket, false, length, sizeof receipt.length, sized});
        transfers.push_back({socket, false, nullptr, 0, [&receipt] {
                                 const size_t room = bytes_of(*receipt.task);
                                 std::memcpy(receipt.task->to, receipt.bytes.data(),
                                             std::min(room, receipt.bytes.size()));
                             }});
    }
    const End end = move(on, transfers);
    if (end == End::closed) on.lost();
    if (end == End::done && stuck) on.hang();
}

}  // namespace simulated
