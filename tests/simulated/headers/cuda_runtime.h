// In place of the header that wants a compiler for GPUs.
#pragma once
#include <cuda_runtime_api.h>
