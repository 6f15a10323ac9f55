// libnvidia-ml.so.1: how many GPUs the machine has, which torch asks without touching CUDA.
#include <cstdlib>

extern "C" {

int nvmlInit() { return 0; }
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }

int nvmlDeviceGetCount_v2(unsigned* count) {
    const char* text = std::getenv("SIMULATED_GPUS");
    *count = text == nullptr || *text == 0 ? 1 : static_cast<unsigned>(std::atoi(text));
    return 0;
}

int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

const char* nvmlErrorString(int) { return "not in the simulated NVML"; }

}  // extern "C"
