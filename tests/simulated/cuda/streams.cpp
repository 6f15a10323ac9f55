// Streams are threads with a queue, moments are what they come to.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <thread>

#include "engine.hpp"

namespace simulated {

void Moment::happen() {
    {
        std::lock_guard<std::mutex> hold(mutex_);
        when_ = Clock::now();
        done_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
}

void Moment::wait() {
    std::unique_lock<std::mutex> hold(mutex_);
    changed_.wait(hold, [this] { return happened(); });
}

void Stream::enqueue(std::function<void()> work) {
    {
        std::lock_guard<std::mutex> hold(mutex_);
        queue_.push_back(std::move(work));
        if (!started_) {
            started_ = true;
            std::thread([this] { run(); }).detach();
        }
    }
    filled_.notify_one();
}

std::shared_ptr<Moment> Stream::mark() {
    auto moment = std::make_shared<Moment>();
    bool nothing = false;
    {
        std::lock_guard<std::mutex> hold(mutex_);
        nothing = queue_.empty() && !busy_;
    }
    if (nothing) {
        moment->happen();
    } else {
        enqueue([moment] { moment->happen(); });
    }
    return moment;
}

bool Stream::idle() {
    std::lock_guard<std::mutex> hold(mutex_);
    return queue_.empty() && !busy_;
}

void Stream::run() {
    set_device(device);
    std::unique_lock<std::mutex> hold(mutex_);
    for (;;) {
        busy_ = false;
        filled_.wait(hold, [this] { return !queue_.empty(); });
        auto work = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        hold.unlock();
        work();
        work = nullptr;
        hold.lock();
    }
}

namespace {

// Kept for the process's life: threads of streams may outlast every static object.
struct Streams {
    std::mutex mutex;
    std::map<int, Stream*> defaults;
    std::vector<Stream*> made;
};

Streams& streams() {
    static auto* all = new Streams;
    return *all;
}

Stream* default_stream(int device) {
    std::lock_guard<std::mutex> hold(streams().mutex);
    Stream*& found = streams().defaults[device];
    if (found == nullptr) found = new Stream(device, cudaStreamDefault, 0);
    return found;
}

std::vector<Stream*> streams_on(int device, bool also_non_blocking) {
    std::lock_guard<std::mutex> hold(streams().mutex);
    std::vector<Stream*> found;
    for (Stream* stream : streams().made) {
        const bool blocking = (stream->flags & cudaStreamNonBlocking) == 0;
        if (stream->device == device && (blocking || also_non_blocking)) found.push_back(stream);
    }
    return found;
}

}  // namespace

Stream* stream_of(void* handle) {
    const auto number = reinterpret_cast<uintptr_t>(handle);
    return number <= 2 ? default_stream(current_device()) : static_cast<Stream*>(handle);
}

Stream* make_stream(unsigned flags, int priority) {
    auto* stream = new Stream(current_device(), flags, priority);
    std::lock_guard<std::mutex> hold(streams().mutex);
    streams().made.push_back(stream);
    return stream;
}

void forget_stream(Stream* stream) {
    // its thread stays: what it still has to do is done, as CUDA promises
    std::lock_guard<std::mutex> hold(streams().mutex);
    auto& made = streams().made;
    made.erase(std::remove(made.begin(), made.end(), stream), made.end());
}

void enqueue(void* handle, std::function<void()> work) {
    Stream* stream = stream_of(handle);
    const bool is_default = reinterpret_cast<uintptr_t>(handle) <= 2;
    std::vector<std::shared_ptr<Moment>> before;
    if (is_default) {
        for (Stream* other : streams_on(stream->device, false)) before.push_back(other->mark());
    } else if ((stream->flags & cudaStreamNonBlocking) == 0) {
        before.push_back(default_stream(stream->device)->mark());
    }
    for (auto& moment : before) {
        if (!moment->happened()) stream->enqueue([moment] { moment->wait(); });
    }
    stream->enqueue(std::move(work));
}

void synchronize(int device) {
    std::vector<std::shared_ptr<Moment>> all{default_stream(device)->mark()};
    for (Stream* stream : streams_on(device, true)) all.push_back(stream->mark());
    for (auto& moment : all) moment->wait();
}

}  // namespace simulated

using namespace simulated;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    *stream = reinterpret_cast<cudaStream_t>(make_stream(flags, priority));
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    forget_stream(stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    return stream_of(stream)->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    stream_of(stream)->mark()->wait();
    return static_cast<cudaError_t>(refusal());
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    *priority = stream_of(stream)->priority;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    if (refusal() != cudaSuccess) return static_cast<cudaError_t>(refusal());
    synchronize(current_device());
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    enqueue(stream, [function, argument] { function(argument); });
    return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                  void* argument, unsigned) {
    enqueue(stream, [=] { function(stream, cudaSuccess, argument); });
    return cudaSuccess;
}

// Nothing is ever captured into a graph.
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
    *status = cudaStreamCaptureStatusNone;
    if (id != nullptr) *id = 0;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    std::swap(current, *mode);
    return cudaSuccess;
}

}  // extern "C"
