// A communicator of the simulated NCCL: its ranks, the wires between them, the order of its work.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace simulated {

// Sockets to one peer: for what hosts tell each other, for collectives, for messages.
struct Wires {
    int control = -1, collectives = -1, messages = -1;
};

// What hosts tell each other.
struct Note {
    enum What : uint32_t { who, split, connect, connected, ring };
    uint32_t what;
    uint32_t length;  // of `words`
    int32_t a, b;
    char words[112];
};

// A premultiplied sum: the factor's bytes, or where they lie on the device.
struct Factor {
    ncclDataType_t dtype;
    const void* where;
    char value[8];
};

enum class End { done, aborted, closed };

class Communicator {
   public:
    Communicator(std::string key, int rank, int size, int device);
    ~Communicator();
    Communicator(const Communicator&) = delete;

    const std::string key;
    const int rank, size, device;
    std::atomic<bool> aborted{false};
    std::atomic<int> error{ncclSuccess};
    std::vector<Wires> wires;  // by rank; nothing at the own
    std::map<int, Factor> factors;
    int next_factor = ncclNumOps;
    int splits = 0;
    std::weak_ptr<Communicator> own;

    // Meet the other ranks; blocks the host until all have come.
    ncclResult_t meet();
    // Give a note to all others and take theirs; the own stands among them.
    ncclResult_t everyone(Note own, std::vector<Note>* found);
    ncclResult_t tell(int peer, const Note& note);
    // Take the next note of a kind from a peer; of a connection, that at the distance `b`.
    ncclResult_t hear(int peer, uint32_t what, int b, Note* note);
    // Make the connections that a group's messages need: `wanted[peer]` has bit 1 to send, 2 to receive.
    ncclResult_t connect(const std::map<int, int>& wanted);
    // Connect the ring, which collectives go along, with both neighbours; blocks the host until they
    // do. NCCL from 2.22 on does so in the first collective (NCCL_RUNTIME_CONNECT), else at once.
    ncclResult_t connect_ring();
    bool astray(int peer, int direction) const { return (astray_[peer] & direction) != 0; }

    // Enqueue work on a stream; it runs when all issued before it has been done.
    ncclResult_t issue(cudaStream_t stream, std::function<void(Communicator&)> work);
    void drain();
    void abort();
    // Block the stream until the communicator is aborted: what a kernel does whose peer never comes.
    void hang();
    // A peer's process is gone: over a network NCCL notices, within a machine it does not.
    void lost();
    int abort_signal() const { return abort_signal_; }

   private:
    ncclResult_t identify();
    std::mutex host_, turns_;
    std::condition_variable turned_;
    uint64_t issued_ = 0, done_ = 0;
    int abort_signal_;
    bool over_network_ = false;
    bool ring_connected_ = false;
    std::vector<int> connected_, astray_;
    std::vector<std::deque<Note>> notes_;
    friend struct Turn;
};

std::string host_name();
bool connects_at_run_time();
int version();
// Keep words for ncclGetLastError, and return the code.
ncclResult_t failed(ncclResult_t code, const std::string& words);
// The handle that torch holds, and what it stands for; nothing once it was dropped.
ncclComm_t handed_out(std::shared_ptr<Communicator> communicator);
std::shared_ptr<Communicator> of(ncclComm_t handle);
void dropped(ncclComm_t handle);

}  // namespace simulated
