// Events: a mark in a stream, asked, waited for, and compared on the device's clock.
#include <cuda_runtime_api.h>

#include "engine.hpp"

using namespace simulated;

namespace {

Event* event_of(cudaEvent_t handle) { return reinterpret_cast<Event*>(handle); }

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    auto* made = new Event;
    made->flags = flags;
    made->device = current_device();
    *event = reinterpret_cast<cudaEvent_t>(made);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event_of(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    Stream* on = stream_of(stream);
    if (event_of(event)->device != on->device) return cudaErrorInvalidResourceHandle;
    auto moment = std::make_shared<Moment>();
    event_of(event)->moment = moment;
    enqueue(stream, [moment] { moment->happen(); });
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    auto moment = event_of(event)->moment;
    return moment == nullptr || moment->happened() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    auto moment = event_of(event)->moment;
    if (moment != nullptr) moment->wait();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    auto moment = event_of(event)->moment;
    if (moment != nullptr && !moment->happened()) enqueue(stream, [moment] { moment->wait(); });
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    Event *first = event_of(begin), *last = event_of(end);
    if (((first->flags | last->flags) & cudaEventDisableTiming) != 0 || !first->moment ||
        !last->moment) {
        return cudaErrorInvalidResourceHandle;
    }
    if (!first->moment->happened() || !last->moment->happened()) return cudaErrorNotReady;
    const auto between = last->moment->when() - first->moment->when();
    *milliseconds = std::chrono::duration<float, std::milli>(between).count();
    return cudaSuccess;
}

}  // extern "C"
