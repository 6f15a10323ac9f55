// The functions of nccl.h that torch calls. What is not here refuses by name (see build.py).
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "group.hpp"
#include "reduction.hpp"

namespace simulated {

namespace {

thread_local std::string last_words;

std::string key_of(const ncclUniqueId& id) { return {id.internal, strnlen(id.internal, sizeof id.internal)}; }

bool is_nonblocking(const ncclConfig_t* config) { return config != nullptr && config->blocking == 0; }

// One that does not block is handed out at once, in progress, and its ranks meet beside the host.
ncclResult_t made(ncclComm_t* handle, std::string key, int rank, int size, bool nonblocking) {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return failed(ncclUnhandledCudaError, "no device");
    auto communicator = std::make_shared<Communicator>(std::move(key), rank, size, device);
    communicator->own = communicator;
    if (nonblocking) {
        communicator->error = ncclInProgress;
        std::thread([communicator] {
            cudaSetDevice(communicator->device);
            communicator->error = communicator->meet();
        }).detach();
        *handle = handed_out(std::move(communicator));
        return ncclInProgress;
    }
    const ncclResult_t met = communicator->meet();
    if (met != ncclSuccess) return met;
    *handle = handed_out(std::move(communicator));
    return ncclSuccess;
}

}  // namespace

ncclResult_t failed(ncclResult_t code, const std::string& words) {
    last_words = words;
    return code;
}

int version() {
    int major = 2, minor = 28, patch = 9;
    const char* told = std::getenv("SIMULATED_NCCL_VERSION");
    if (told != nullptr) std::sscanf(told, "%d.%d.%d", &major, &minor, &patch);
    return 10000 * major + 100 * minor + patch;
}

}  // namespace simulated

using namespace simulated;

extern "C" {

ncclResult_t simulatedRefusesNccl(const char* what) {
    return failed(ncclInvalidUsage, std::string("the simulated NCCL has no ") + what);
}

ncclResult_t ncclGetVersion(int* code) {
    *code = version();
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
    switch (code) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
        case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
        case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
        case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
        default: return "unknown result code";
    }
}

const char* ncclGetLastError(ncclComm_t) { return last_words.c_str(); }

// ---------------------------------------------------------------------------- communicators

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    std::memset(id, 0, sizeof *id);
    unsigned char bytes[12] = {};
    FILE* source = std::fopen("/dev/urandom", "rb");
    if (source == nullptr) return failed(ncclSystemError, "no random numbers");
    const size_t read = std::fread(bytes, 1, sizeof bytes, source);
    std::fclose(source);
    for (size_t index = 0; index < read; ++index) std::sprintf(id->internal + 2 * index, "%02x", bytes[index]);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    if (config != nullptr && config->magic != 0xcafebeef) {
        return failed(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    }
    if (size < 1 || rank < 0 || rank >= size) return failed(ncclInvalidArgument, "invalid rank");
    return made(handle, key_of(id), rank, size, is_nonblocking(config));
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int size, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(handle, size, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* handle, int size, int rank, int, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
    return ncclCommInitRankConfig(handle, size, ids[0], rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int order, ncclComm_t* handle,
                           ncclConfig_t* config) {
    auto on = of(parent);
    if (on == nullptr) return failed(ncclInvalidArgument, "comm is a null pointer");
    Note own{};
    own.what = Note::split;
    own.a = color;
    own.b = order;
    std::vector<Note> all;
    const ncclResult_t met = on->everyone(own, &all);
    if (met != ncclSuccess) return met;
    const int number = on->splits++;
    *handle = nullptr;
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    int rank = 0, size = 0;
    for (int peer = 0; peer < on->size; ++peer) {
        if (all[peer].a != color) continue;
        ++size;
        const bool before = all[peer].b < order || (all[peer].b == order && peer < on->rank);
        if (before) ++rank;
    }
    const std::string key = on->key + "." + std::to_string(number) + "." + std::to_string(color);
    return made(handle, key, rank, size, is_nonblocking(config));
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
    auto on = of(handle);
    if (on != nullptr) on->drain();
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
    ncclCommFinalize(handle);
    if (handle != nullptr) dropped(handle);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
    auto on = of(handle);
    if (on == nullptr) return ncclSuccess;
    on->abort();
    dropped(handle);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* found) {
    auto on = of(handle);
    *found = on == nullptr ? ncclSuccess : static_cast<ncclResult_t>(on->error.load());
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
    *count = of(handle)->size;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
    *rank = of(handle)->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t, void* buffer, size_t, void** handle) {
    *handle = buffer;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }

ncclResult_t ncclMemAlloc(void** pointer, size_t size) {
    return cudaMalloc(pointer, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* pointer) {
    return cudaFree(pointer) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// ---------------------------------------------------------------------------- calls

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* factor, ncclDataType_t dtype,
                                      ncclScalarResidence_t residence, ncclComm_t handle) {
    auto on = of(handle);
    Factor made{dtype, residence == ncclScalarDevice ? factor : nullptr, {}};
    if (residence == ncclScalarHostImmediate) std::memcpy(made.value, factor, size_of(dtype));
    *op = static_cast<ncclRedOp_t>(on->next_factor++);
    on->factors[*op] = made;
    return ncclSuccess;
}

// The factor stays: calls that use it may still stand in a stream.
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t on, cudaStream_t stream) {
    return called({of(on), Call::all_reduce, from, to, count, dtype, op, 0, stream});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t dtype,
                        ncclRedOp_t op, int root, ncclComm_t on, cudaStream_t stream) {
    return called({of(on), Call::reduce, from, to, count, dtype, op, root, stream});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t op, ncclComm_t on, cudaStream_t stream) {
    return called({of(on), Call::reduce_scatter, from, to, count, dtype, op, 0, stream});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t on, cudaStream_t stream) {
    return called({of(on), Call::broadcast, from, to, count, dtype, ncclSum, root, stream});
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t dtype, int root, ncclComm_t on,
                       cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, dtype, root, on, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t dtype,
                           ncclComm_t on, cudaStream_t stream) {
    return called({of(on), Call::all_gather, from, to, count, dtype, ncclSum, 0, stream});
}

ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t dtype,
                          ncclComm_t on, cudaStream_t stream) {
    return called({of(on), Call::all_to_all, from, to, count, dtype, ncclSum, 0, stream});
}

ncclResult_t ncclGather(const void* from, void* to, size_t count, ncclDataType_t dtype, int root,
                        ncclComm_t on, cudaStream_t stream) {
    return called({of(on), Call::gather, from, to, count, dtype, ncclSum, root, stream});
}

ncclResult_t ncclScatter(const void* from, void* to, size_t count, ncclDataType_t dtype, int root,
                         ncclComm_t on, cudaStream_t stream) {
    return called({of(on), Call::scatter, from, to, count, dtype, ncclSum, root, stream});
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t dtype, int peer, ncclComm_t on,
                      cudaStream_t stream) {
    return called({of(on), Call::send, from, nullptr, count, dtype, ncclSum, peer, stream});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t dtype, int peer, ncclComm_t on,
                      cudaStream_t stream) {
    return called({of(on), Call::receive, nullptr, to, count, dtype, ncclSum, peer, stream});
}

ncclResult_t ncclGroupStart() {
    open_group();
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return close_group(); }

}  // extern "C"
