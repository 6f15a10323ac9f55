// Devices: as many as SIMULATED_GPUS says, as CUDA_VISIBLE_DEVICES lets them, each like an H200.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

#include "engine.hpp"

namespace simulated {

namespace {

constexpr size_t MEMORY = 141ull << 30;
constexpr int MULTIPROCESSORS = 132;
thread_local int current = 0;
std::atomic<pid_t> user{0};
std::mutex contexts_mutex;
std::set<int>* contexts = new std::set<int>;

std::vector<int> visible() {
    const int all = static_cast<int>(setting("SIMULATED_GPUS", 1));
    const char* chosen = std::getenv("CUDA_VISIBLE_DEVICES");
    std::vector<int> found;
    if (chosen == nullptr) {
        for (int device = 0; device < all; ++device) found.push_back(device);
        return found;
    }
    std::stringstream words(chosen);
    std::string word;
    while (std::getline(words, word, ',')) {
        char* end = nullptr;
        const long device = std::strtol(word.c_str(), &end, 10);
        if (end == word.c_str() || device < 0 || device >= all) break;  // as CUDA: up to the first wrong one
        found.push_back(static_cast<int>(device));
    }
    return found;
}

const std::vector<int>& devices() {
    static const auto* found = new std::vector<int>(visible());
    return *found;
}

}  // namespace

size_t setting(const char* name, size_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 10);
}

bool usable_here() {
    pid_t nobody = 0;
    const pid_t here = getpid();
    return user.compare_exchange_strong(nobody, here) || nobody == here;
}

namespace {
std::mutex fault_mutex;
std::string* fault_words = nullptr;
std::atomic<bool> is_faulty{false};
}  // namespace

void fault(const std::string& why) {
    std::lock_guard<std::mutex> hold(fault_mutex);
    if (fault_words == nullptr) fault_words = new std::string(why);
    is_faulty = true;
}

bool faulty() { return is_faulty; }

std::string why_faulty() {
    std::lock_guard<std::mutex> hold(fault_mutex);
    return fault_words == nullptr ? "" : *fault_words;
}

int refusal() {
    if (!usable_here()) return cudaErrorInitializationError;
    return faulty() ? cudaErrorLaunchFailure : cudaSuccess;
}

int device_count() { return static_cast<int>(devices().size()); }
int physical(int device) { return devices().at(device); }
int current_device() { return current; }

bool set_device(int device) {
    if (device < 0 || device >= device_count()) return false;
    current = device;
    std::lock_guard<std::mutex> hold(contexts_mutex);
    contexts->insert(device);
    return true;
}

bool has_context(int device) {
    std::lock_guard<std::mutex> hold(contexts_mutex);
    return contexts->count(device) != 0;
}

std::string bus_id(int device) {
    char text[32];
    std::snprintf(text, sizeof text, "0000:%02X:00.0", 0x10 + physical(device));
    return text;
}

}  // namespace simulated

using namespace simulated;

extern "C" {

// For the simulated driver and NCCL, which are libraries of their own.
void simulatedFault(const char* why) { fault(why); }
int simulatedHasContext(int device) { return has_context(device) ? 1 : 0; }

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    if (!usable_here()) return cudaErrorInitializationError;
    *count = device_count();
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    if (!usable_here()) return cudaErrorInitializationError;
    *device = current_device();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (!usable_here()) return cudaErrorInitializationError;
    return set_device(device) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
    if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
    std::memset(found, 0, sizeof *found);
    std::snprintf(found->name, sizeof found->name, "Simulated GPU");
    found->uuid.bytes[0] = 'S';
    found->uuid.bytes[15] = static_cast<char>(physical(device) + 1);
    found->totalGlobalMem = MEMORY;
    found->sharedMemPerBlock = 48 << 10;
    found->sharedMemPerBlockOptin = 227 << 10;
    found->sharedMemPerMultiprocessor = 228 << 10;
    found->regsPerBlock = found->regsPerMultiprocessor = 64 << 10;
    found->warpSize = 32;
    found->maxThreadsPerBlock = 1024;
    found->maxThreadsPerMultiProcessor = 2048;
    found->maxBlocksPerMultiProcessor = 32;
    found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024;
    found->maxThreadsDim[2] = 64;
    found->maxGridSize[0] = 2147483647;
    found->maxGridSize[1] = found->maxGridSize[2] = 65535;
    found->totalConstMem = 64 << 10;
    found->major = 9;
    found->multiProcessorCount = MULTIPROCESSORS;
    found->l2CacheSize = 60 << 20;
    found->memoryBusWidth = 6144;
    found->concurrentKernels = found->asyncEngineCount = 1;
    found->unifiedAddressing = found->canMapHostMemory = found->cooperativeLaunch = 1;
    found->streamPrioritiesSupported = 1;
    found->textureAlignment = 512;
    found->memPitch = 2147483647;
    found->pciBusID = 0x10 + physical(device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp found;
    const cudaError_t failed = cudaGetDeviceProperties(&found, device);
    if (failed != cudaSuccess) return failed;
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = found.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = found.minor; break;
        case cudaDevAttrMultiProcessorCount: *value = found.multiProcessorCount; break;
        case cudaDevAttrWarpSize: *value = found.warpSize; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = found.maxThreadsPerBlock; break;
        case cudaDevAttrPciBusId: *value = found.pciBusID; break;
        case cudaDevAttrUnifiedAddressing: *value = 1; break;
        default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<size_t>(length), "%s", bus_id(device).c_str());
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
    *total = MEMORY;
    *available = MEMORY - allocated(current_device());
    return cudaSuccess;
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
