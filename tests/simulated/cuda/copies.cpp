// Copies and fills, in the order of their stream.
#include <cuda_runtime_api.h>

#include <cstring>

#include "engine.hpp"

using namespace simulated;

namespace {

bool pageable(const void* pointer) {
    bool known = false;
    block_at(pointer, &known);
    return !known;
}

void finish(cudaStream_t stream) { stream_of(stream)->mark()->wait(); }

}  // namespace

extern "C" {

// What comes from pageable memory is staged before the call returns; what goes there has arrived.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    if (pageable(from)) {
        const char* begin = static_cast<const char*>(from);
        auto staged = std::make_shared<std::vector<char>>(begin, begin + size);
        enqueue(stream, [=] { std::memcpy(to, staged->data(), size); });
    } else {
        enqueue(stream, [=] { std::memmove(to, from, size); });
    }
    if (pageable(to)) finish(stream);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    const cudaError_t failed = cudaMemcpyAsync(to, from, size, kind, nullptr);
    if (failed == cudaSuccess) finish(nullptr);
    return failed;
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size,
                                cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
    enqueue(stream, [=] {
        for (size_t row = 0; row < height; ++row) {
            std::memcpy(static_cast<char*>(to) + row * to_pitch,
                        static_cast<const char*>(from) + row * from_pitch, width);
        }
    });
    if (pageable(to) || pageable(from)) finish(stream);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
    enqueue(stream, [=] { std::memset(to, value, size); });
    return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t size) {
    return cudaMemsetAsync(to, value, size, nullptr);
}

}  // extern "C"
