#include "group.hpp"

#include <map>

#include "reduction.hpp"

namespace simulated {

namespace {

thread_local int depth = 0;
thread_local std::vector<Task> open;
thread_local ncclResult_t bad = ncclSuccess;

bool is_message(const Task& task) { return task.call == Call::send || task.call == Call::receive; }

// Hosts wait here for their peers, as NCCL's do when a connection is used for the first time.
ncclResult_t connected(const std::vector<Task>& tasks) {
    std::map<Communicator*, std::map<int, int>> wanted;
    for (const Task& task : tasks) {
        if (is_message(task)) {
            wanted[task.communicator.get()][task.peer] |= task.call == Call::send ? 1 : 2;
        }
    }
    for (const Task& task : tasks) {
        if (is_message(task) || !connects_at_run_time()) continue;
        const ncclResult_t made = task.communicator->connect_ring();
        if (made != ncclSuccess) return made;
    }
    for (auto& [communicator, peers] : wanted) {
        const ncclResult_t made = communicator->connect(peers);
        if (made != ncclSuccess) return made;
    }
    return ncclSuccess;
}

ncclResult_t carried_out(std::vector<Task> tasks) {
    const ncclResult_t made = connected(tasks);
    if (made != ncclSuccess) return made;
    while (!tasks.empty()) {
        // one launch for each communicator and stream, in the order of their first calls
        std::vector<Task> launch, rest;
        for (Task& task : tasks) {
            const bool fits = task.communicator == tasks.front().communicator &&
                              task.stream == tasks.front().stream;
            (fits ? launch : rest).push_back(task);
        }
        Communicator& on = *launch.front().communicator;
        const ncclResult_t issued = on.issue(launch.front().stream, [launch](Communicator& there) {
            std::vector<Task> sent;
            for (const Task& task : launch) {
                if (is_message(task)) {
                    sent.push_back(task);
                } else if (!there.aborted) {
                    collective(there, task);
                }
            }
            if (!sent.empty() && !there.aborted) messages(there, sent);
        });
        if (issued != ncclSuccess) return issued;
        tasks = std::move(rest);
    }
    return ncclSuccess;
}

ncclResult_t checked(const Task& task) {
    if (task.communicator == nullptr) return failed(ncclInvalidArgument, "comm is a null pointer");
    if (size_of(task.dtype) == 0) return failed(ncclInvalidArgument, "invalid type");
    const bool known = task.op >= 0 && (task.op < ncclNumOps ||
                                        task.communicator->factors.count(task.op) != 0);
    if (!known) return failed(ncclInvalidArgument, "invalid reduction operation");
    if (task.peer < 0 || task.peer >= task.communicator->size) {
        return failed(ncclInvalidArgument, "invalid root or peer " + std::to_string(task.peer));
    }
    return ncclSuccess;
}

}  // namespace

ncclResult_t called(const Task& task) {
    const ncclResult_t fine = checked(task);
    if (fine != ncclSuccess) {
        if (depth > 0) bad = fine;
        return fine;
    }
    if (depth == 0) return carried_out({task});
    open.push_back(task);
    return ncclSuccess;
}

void open_group() { ++depth; }

ncclResult_t close_group() {
    if (depth == 0) return failed(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
    if (--depth > 0) return ncclSuccess;
    std::vector<Task> tasks = std::move(open);
    open.clear();
    const ncclResult_t found = bad;
    bad = ncclSuccess;
    return found == ncclSuccess ? carried_out(std::move(tasks)) : found;
}

}  // namespace simulated
