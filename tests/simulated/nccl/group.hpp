// Calls between ncclGroupStart and ncclGroupEnd, and what becomes of them.
#pragma once

#include "communicator.hpp"

namespace simulated {

enum class Call : uint32_t {
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    send,
    receive,
};

struct Task {
    std::shared_ptr<Communicator> communicator;
    Call call;
    const void* from;
    void* to;
    size_t count;  // elements; of one rank's part where there are parts
    ncclDataType_t dtype;
    int op;
    int peer;  // or root
    cudaStream_t stream;
};

// Note a call, or carry it out if no group is open.
ncclResult_t called(const Task& task);
void open_group();
ncclResult_t close_group();

// On the stream: one collective, and the messages of a group at one stroke.
void collective(Communicator& on, const Task& task);
void messages(Communicator& on, const std::vector<Task>& tasks);

}  // namespace simulated
