// The simulated GPUs: what streams, events and memory are made of. No CUDA type crosses this header.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace simulated {

using Clock = std::chrono::steady_clock;

// A point in a stream's work that happens once. Whoever holds it may ask, or wait.
class Moment {
   public:
    void happen();
    void wait();
    bool happened() const { return done_.load(std::memory_order_acquire); }
    Clock::time_point when() const { return when_; }

   private:
    std::atomic<bool> done_{false};
    Clock::time_point when_{};
    std::mutex mutex_;
    std::condition_variable changed_;
};

// Work done in order by a thread of its own, which starts with the first work and never ends.
class Stream {
   public:
    Stream(int device, unsigned flags, int priority)
        : device(device), flags(flags), priority(priority) {}
    const int device;
    const unsigned flags;
    const int priority;

    void enqueue(std::function<void()> work);
    // A point behind everything that was enqueued so far.
    std::shared_ptr<Moment> mark();
    bool idle();

   private:
    void run();
    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<std::function<void()>> queue_;
    bool started_ = false;
    bool busy_ = false;
};

struct Event {
    unsigned flags = 0;
    int device = 0;
    std::shared_ptr<Moment> moment;  // of its last record; empty if never recorded
};

enum class Kind { device, host, registered };

struct Block {
    uintptr_t begin = 0;
    size_t size = 0;
    Kind kind = Kind::device;
    int device = 0;
};

// Devices: how many there are, which is current on this thread, whether it has a context.
int device_count();
int physical(int device);  // its number on the machine, whatever CUDA_VISIBLE_DEVICES says
int current_device();
bool set_device(int device);
bool has_context(int device);
std::string bus_id(int device);
// False in a child of a process that had used CUDA before it forked.
bool usable_here();
// What a call has to refuse with, if anything: a fork that cannot use CUDA, a device that is lost.
int refusal();

// Streams. A handle of null, 1 or 2 is the device's default stream.
Stream* stream_of(void* handle);
Stream* make_stream(unsigned flags, int priority);
void forget_stream(Stream* stream);
// Enqueue with the ordering that the default stream has with those that are not non-blocking.
void enqueue(void* handle, std::function<void()> work);
void synchronize(int device);

// Memory.
void* allocate(size_t size, Kind kind);
void adopt(void* pointer, size_t size, Kind kind);
bool release(void* pointer);
Block block_at(const void* pointer, bool* found);
size_t allocated(int device);

// After a fault the device answers every question with it, as one does that lost its context.
void fault(const std::string& why);
bool faulty();
std::string why_faulty();

size_t setting(const char* name, size_t otherwise);

}  // namespace simulated
