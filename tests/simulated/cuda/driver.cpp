// libcuda.so.1: the few of the driver's functions that torch asks, the rest say that they are not there.
#include <cuda.h>
#include <cuda_runtime_api.h>

extern "C" {

int simulatedHasContext(int device);

CUresult simulatedRefusesDriver() { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuDriverGetVersion(int* version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int number) {
    *device = number;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
    return cudaGetDeviceCount(count) == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    *flags = 0;
    *active = simulatedHasContext(device);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
    int device = 0;
    cudaGetDevice(&device);
    *context = reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device + 1));
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult, const char** text) {
    *text = "not in the simulated driver";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) { return cuGetErrorString(error, text); }

}  // extern "C"
