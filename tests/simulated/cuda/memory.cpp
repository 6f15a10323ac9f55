// Memory of the devices is the host's; which is whose is kept beside it.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <map>

#include "engine.hpp"

namespace simulated {

namespace {

struct Memory {
    std::mutex mutex;
    std::map<uintptr_t, Block> blocks;
    std::map<int, size_t> used;
};

Memory& memory() {
    static auto* all = new Memory;
    return *all;
}

}  // namespace

void adopt(void* pointer, size_t size, Kind kind) {
    std::lock_guard<std::mutex> hold(memory().mutex);
    Block block;
    block.begin = reinterpret_cast<uintptr_t>(pointer);
    block.size = size;
    block.kind = kind;
    block.device = current_device();
    memory().blocks[block.begin] = block;
    if (kind == Kind::device) memory().used[block.device] += size;
}

void* allocate(size_t size, Kind kind) {
    void* found = nullptr;
    if (posix_memalign(&found, 512, size == 0 ? 512 : size) != 0) return nullptr;
    adopt(found, size, kind);
    return found;
}

bool release(void* pointer) {
    Block block;
    {
        std::lock_guard<std::mutex> hold(memory().mutex);
        auto found = memory().blocks.find(reinterpret_cast<uintptr_t>(pointer));
        if (found == memory().blocks.end()) return false;
        block = found->second;
        memory().blocks.erase(found);
        if (block.kind == Kind::device) memory().used[block.device] -= block.size;
    }
    if (block.kind != Kind::registered) std::free(pointer);
    return true;
}

Block block_at(const void* pointer, bool* found) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    std::lock_guard<std::mutex> hold(memory().mutex);
    auto after = memory().blocks.upper_bound(address);
    *found = false;
    if (after == memory().blocks.begin()) return {};
    const Block& block = std::prev(after)->second;
    *found = address < block.begin + block.size;
    return *found ? block : Block{};
}

size_t allocated(int device) {
    std::lock_guard<std::mutex> hold(memory().mutex);
    return memory().used[device];
}

}  // namespace simulated

using namespace simulated;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t size) {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    *pointer = allocate(size, Kind::device);
    return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// As a driver does: nothing that is still running may lose its memory.
cudaError_t cudaFree(void* pointer) {
    if (pointer == nullptr) return cudaSuccess;
    bool found = false;
    const Block block = block_at(pointer, &found);
    if (!found) return cudaErrorInvalidValue;
    synchronize(block.device);
    return release(pointer) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    *pointer = allocate(size, Kind::host);
    return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }

cudaError_t cudaFreeHost(void* pointer) {
    return pointer == nullptr || release(pointer) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned) {
    adopt(pointer, size, Kind::registered);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
    return release(pointer) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* pointer) {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    bool known = false;
    const Block block = block_at(pointer, &known);
    *found = {};
    found->type = cudaMemoryTypeUnregistered;
    found->device = -1;
    found->hostPointer = const_cast<void*>(pointer);
    if (!known) return cudaSuccess;
    found->device = block.device;
    found->devicePointer = const_cast<void*>(pointer);
    found->type = block.kind == Kind::device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    if (block.kind == Kind::device) found->hostPointer = nullptr;
    return cudaSuccess;
}

}  // extern "C"
