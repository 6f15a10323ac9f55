// Kernels are known by name and never run: the one that torch launched is named in the error.
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "engine.hpp"

using namespace simulated;

namespace {

struct Names {
    std::mutex mutex;
    std::unordered_map<const void*, const char*> of;
};

Names& names() {
    static auto* all = new Names;
    return *all;
}

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

thread_local std::vector<Configuration> configurations;
thread_local std::string faulted;
thread_local std::string explanation = "operation not supported by the simulated runtime";
thread_local cudaError_t last = cudaSuccess;

cudaError_t refused(const std::string& what) {
    explanation = "operation not supported: the simulated runtime has no " + what;
    if (std::getenv("SIMULATED_DEBUG") != nullptr) std::fprintf(stderr, "%s\n", explanation.c_str());
    return last = cudaErrorNotSupported;
}

std::string demangled(const char* name) {
    int failed = 0;
    char* text = abi::__cxa_demangle(name, nullptr, nullptr, &failed);
    std::string found = failed == 0 ? text : name;
    std::free(text);
    return found;
}

}  // namespace

extern "C" {

// What the generated stubs call, and the launches below.
cudaError_t simulatedRefuses(const char* what) { return refused(what); }

void** __cudaRegisterFatBinary(void*) { return new void*[1]; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** handle) { delete[] handle; }
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
    std::lock_guard<std::mutex> hold(names().mutex);
    names().of[function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (configurations.empty()) return cudaErrorMissingConfiguration;
    const Configuration& top = configurations.back();
    *grid = top.grid;
    *block = top.block;
    *shared = top.shared;
    *static_cast<cudaStream_t*>(stream) = top.stream;
    configurations.pop_back();
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t) {
    std::string name = "without a name";
    {
        std::lock_guard<std::mutex> hold(names().mutex);
        auto found = names().of.find(function);
        if (found != names().of.end()) name = found->second;
    }
    return refused("kernel " + demangled(name.c_str()));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* function,
                                void** arguments) {
    return cudaLaunchKernel(function, how->gridDim, how->blockDim, arguments, 0, how->stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
    *found = {};
    found->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() {
    const cudaError_t found = last;
    last = cudaSuccess;
    return found;
}

cudaError_t cudaPeekAtLastError() { return last; }

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInitializationError: return "initialization error";
        case cudaErrorNoDevice: return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorInvalidResourceHandle: return "invalid resource handle";
        case cudaErrorNotReady: return "device not ready";
        case cudaErrorLaunchFailure:
            faulted = "unspecified launch failure: " + why_faulty();
            return faulted.c_str();
        case cudaErrorNotSupported: return explanation.c_str();
        default: return "an error that the simulated runtime does not name";
    }
}

const char* cudaGetErrorName(cudaError_t error) {
    return error == cudaSuccess ? "cudaSuccess" : cudaGetErrorString(error);
}

// The driver's functions are looked for in the simulated driver; the rest of them refuse.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
    *function = driver == nullptr ? nullptr : dlsym(driver, name);
    if (*function == nullptr && driver != nullptr) *function = dlsym(driver, "simulatedRefusesDriver");
    if (status != nullptr) {
        *status = *function == nullptr ? cudaDriverEntryPointSymbolNotFound
                                       : cudaDriverEntryPointSuccess;
    }
    return cudaSuccess;
}

}  // extern "C"
