#include "communicator.hpp"

#include <cuda_runtime_api.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "wire.hpp"

namespace simulated {

namespace {

const int WAIT_MS = 2;  // between two looks at a peer that has not come yet

std::string name_of(const std::string& key, int rank) {
    return "simulated-nccl/" + key + "/" + std::to_string(rank);
}

}  // namespace

Communicator::Communicator(std::string key, int rank, int size, int device)
    : key(std::move(key)),
      rank(rank),
      size(size),
      device(device),
      wires(size),
      abort_signal_(eventfd(0, EFD_CLOEXEC)),
      connected_(size, 0),
      astray_(size, 0),
      notes_(size) {}

Communicator::~Communicator() {
    for (const Wires& each : wires) {
        for (int socket : {each.control, each.collectives, each.messages}) {
            if (socket >= 0) close(socket);
        }
    }
    close(abort_signal_);
}

// ---------------------------------------------------------------------------- meeting

ncclResult_t Communicator::meet() {
    if (size > 1) {
        const int listener = listen_as(name_of(key, rank));
        if (listener < 0) return failed(ncclSystemError, "a rank is there twice");
        for (int peer = 0; peer < rank; ++peer) {
            for (int kind = 0; kind < 3; ++kind) {
                int made = -1;
                while ((made = connect_to(name_of(key, peer))) < 0) {
                    if (aborted) return failed(ncclInternalError, "the communicator was aborted");
                    usleep(1000 * WAIT_MS);
                }
                const int hello[2] = {rank, kind};
                put(made, hello, sizeof hello);
                (kind == 0   ? wires[peer].control
                 : kind == 1 ? wires[peer].collectives
                             : wires[peer].messages) = made;
            }
        }
        for (int missing = 3 * (size - 1 - rank); missing > 0;) {
            const int made = accept_from(listener, WAIT_MS);
            if (aborted) return failed(ncclInternalError, "the communicator was aborted");
            if (made < 0) continue;
            int hello[2];
            if (!take(made, hello, sizeof hello)) return failed(ncclRemoteError, "a peer left");
            Wires& peer = wires.at(hello[0]);
            (hello[1] == 0 ? peer.control : hello[1] == 1 ? peer.collectives : peer.messages) = made;
            --missing;
        }
        close(listener);
    }
    return identify();
}

// Tell each other host and GPU; two ranks on one GPU are refused unless NCCL is told otherwise.
ncclResult_t Communicator::identify() {
    char bus[32] = "";
    cudaDeviceGetPCIBusId(bus, sizeof bus, device);
    Note own{};
    own.what = Note::who;
    std::snprintf(own.words, sizeof own.words, "%s %s", bus, host_name().c_str());
    std::vector<Note> all;
    const ncclResult_t met = everyone(own, &all);
    if (met != ncclSuccess) return met;
    const char* told = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    const bool shares = version() >= 23003;  // from here on it compares GPUs, before hosts and GPUs
    for (int peer = 0; peer < size; ++peer) {
        const std::string theirs = all[peer].words;
        if (std::strchr(theirs.c_str(), ' ') != std::strstr(theirs.c_str(), (" " + host_name()).c_str()))
            over_network_ = true;
        if (peer == rank) continue;
        const bool same_gpu = theirs.substr(0, theirs.find(' ')) == bus;
        if (!shares && theirs == own.words) {
            return failed(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank) +
                                                " and rank " + std::to_string(peer) +
                                                " both on CUDA device " + bus);
        }
        if (shares && same_gpu && (told == nullptr || std::strcmp(told, "1") != 0)) {
            return failed(ncclInvalidUsage,
                          "Multiple Ranks are using the same GPU/Partition. Set "
                          "NCCL_MULTI_RANK_GPU_ENABLE=1 to allow it");
        }
    }
    return ncclSuccess;
}

// ---------------------------------------------------------------------------- hosts

ncclResult_t Communicator::tell(int peer, const Note& note) {
    return put(wires[peer].control, &note, sizeof note) ? ncclSuccess
                                                        : failed(ncclRemoteError, "a peer left");
}

ncclResult_t Communicator::hear(int peer, uint32_t what, int b, Note* note) {
    auto& waiting = notes_[peer];
    for (;;) {
        for (auto each = waiting.begin(); each != waiting.end(); ++each) {
            const bool is_connection = what == Note::connect || what == Note::connected;
            if (each->what != what || (is_connection && each->b != b)) continue;
            *note = *each;
            waiting.erase(each);
            return ncclSuccess;
        }
        Note next;
        std::vector<Transfer> one{
            {wires[peer].control, false, reinterpret_cast<char*>(&next), sizeof next}};
        const End end = move(*this, one);
        if (end == End::aborted) return failed(ncclInternalError, "the communicator was aborted");
        if (end == End::closed) {
            return failed(ncclRemoteError, "remote process exited or there was a network error");
        }
        waiting.push_back(next);
    }
}

ncclResult_t Communicator::everyone(Note own, std::vector<Note>* found) {
    std::lock_guard<std::mutex> hold(host_);
    found->assign(size, own);
    for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        const ncclResult_t told = tell(peer, own);
        if (told != ncclSuccess) return told;
    }
    for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        const ncclResult_t heard = hear(peer, own.what, 0, &(*found)[peer]);
        if (heard != ncclSuccess) return heard;
    }
    return ncclSuccess;
}

// Both sides of a pair meet here, at the distance of the one that sends. Where that is the same both
// ways, at half the ring, they may take each other's offer for an answer: it goes astray.
ncclResult_t Communicator::connect(const std::map<int, int>& wanted) {
    std::lock_guard<std::mutex> hold(host_);
    std::map<std::pair<int, int>, int> lacking;  // peer and distance -> directions
    for (auto& [peer, directions] : wanted) {
        const int missing = directions & ~connected_[peer];
        if (peer == rank) continue;
        for (int direction : {1, 2}) {
            const int ahead = direction == 1 ? peer - rank : rank - peer;
            if ((missing & direction) != 0) lacking[{peer, (ahead + size) % size}] |= direction;
        }
    }
    for (auto& [where, directions] : lacking) {
        Note note{};
        note.what = Note::connect;
        note.a = directions;
        note.b = where.second;
        const ncclResult_t told = tell(where.first, note);
        if (told != ncclSuccess) return told;
    }
    for (auto& [where, directions] : lacking) {
        const auto& [peer, distance] = where;
        Note theirs;
        const ncclResult_t heard = hear(peer, Note::connect, distance, &theirs);
        if (heard != ncclSuccess) return heard;
        if ((directions == 3) != (theirs.a == 3)) {
            return failed(ncclInternalError, "Message truncated : the peers set up other connections");
        }
        connected_[peer] |= directions;
        if (directions != 3 && directions == theirs.a) astray_[peer] |= directions;
    }
    // A host lets its peers go once all of its own connections are made (src/transport.cc, the last
    // loop of ncclTransportP2pSetup): one that waits for a third rank keeps all of them.
    for (auto& [where, directions] : lacking) {
        Note note{};
        note.what = Note::connected;
        note.b = where.second;
        const ncclResult_t told = tell(where.first, note);
        if (told != ncclSuccess) return told;
    }
    for (auto& [where, directions] : lacking) {
        Note theirs;
        const ncclResult_t heard = hear(where.first, Note::connected, where.second, &theirs);
        if (heard != ncclSuccess) return heard;
    }
    return ncclSuccess;
}

ncclResult_t Communicator::connect_ring() {
    std::lock_guard<std::mutex> hold(host_);
    if (ring_connected_ || size == 1) return ncclSuccess;
    const std::set<int> neighbours{(rank + 1) % size, (rank + size - 1) % size};
    Note note{};
    note.what = Note::ring;
    for (int peer : neighbours) {
        const ncclResult_t told = tell(peer, note);
        if (told != ncclSuccess) return told;
    }
    for (int peer : neighbours) {
        const ncclResult_t heard = hear(peer, Note::ring, 0, &note);
        if (heard != ncclSuccess) return heard;
    }
    ring_connected_ = true;
    return ncclSuccess;
}

// ---------------------------------------------------------------------------- the device

namespace {

struct Issued {
    std::shared_ptr<Communicator> communicator;
    uint64_t turn;
    std::function<void(Communicator&)> work;
};

}  // namespace

struct Turn {
    static void take(void* argument) {
        std::unique_ptr<Issued> issued(static_cast<Issued*>(argument));
        Communicator& on = *issued->communicator;
        {
            std::unique_lock<std::mutex> hold(on.turns_);
            on.turned_.wait(hold, [&] { return on.done_ == issued->turn || on.aborted; });
        }
        if (!on.aborted) issued->work(on);
        std::lock_guard<std::mutex> hold(on.turns_);
        ++on.done_;
        on.turned_.notify_all();
    }
};

namespace {

std::mutex handles_mutex;

}  // namespace

}  // namespace simulated

// What torch holds: it outlives the communicator, which is dropped when it is destroyed.
struct ncclComm {
    std::shared_ptr<simulated::Communicator> it;
};

namespace simulated {

std::shared_ptr<Communicator> of(ncclComm_t handle) {
    std::lock_guard<std::mutex> hold(handles_mutex);
    return handle == nullptr ? nullptr : handle->it;
}

ncclComm_t handed_out(std::shared_ptr<Communicator> communicator) {
    return new ncclComm{std::move(communicator)};
}

void dropped(ncclComm_t handle) {
    std::lock_guard<std::mutex> hold(handles_mutex);
    handle->it.reset();
}

ncclResult_t Communicator::issue(cudaStream_t stream, std::function<void(Communicator&)> work) {
    std::shared_ptr<Communicator> self = own.lock();
    Issued* issued = nullptr;
    {
        std::lock_guard<std::mutex> hold(turns_);
        issued = new Issued{self, issued_++, std::move(work)};
    }
    return cudaLaunchHostFunc(stream, Turn::take, issued) == cudaSuccess ? ncclSuccess
                                                                        : ncclUnhandledCudaError;
}

void Communicator::drain() {
    std::unique_lock<std::mutex> hold(turns_);
    turned_.wait(hold, [this] { return done_ == issued_ || aborted; });
}

void Communicator::abort() {
    {
        std::lock_guard<std::mutex> hold(turns_);
        aborted = true;
    }
    const uint64_t one = 1;
    if (write(abort_signal_, &one, sizeof one) < 0) std::perror("abort");
    turned_.notify_all();
}

void Communicator::hang() {
    pollfd signal{abort_signal_, POLLIN, 0};
    while (!aborted) poll(&signal, 1, -1);
}

void Communicator::lost() {
    if (over_network_) error = ncclRemoteError;
    hang();
}

bool connects_at_run_time() {
    const char* told = std::getenv("NCCL_RUNTIME_CONNECT");
    return version() >= 22200 && (told == nullptr || std::strcmp(told, "0") != 0);
}

std::string host_name() {
    const char* named = std::getenv("NCCL_HOSTID");
    return named != nullptr && *named != 0 ? named : "this-machine";
}

}  // namespace simulated
