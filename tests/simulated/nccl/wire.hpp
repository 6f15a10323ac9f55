// Bytes between the processes of one machine, over sockets that leave nothing behind.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "communicator.hpp"

namespace simulated {

// One run of bytes over one socket. Those of one socket and direction go in the order given.
struct Transfer {
    int socket;
    bool sends;
    char* bytes;
    size_t size;
    // called once all of it has moved; may tell how long what comes after it is
    std::function<void()> then = nullptr;
    size_t moved = 0;
};

// Move all of it, whichever is ready first, unless the communicator is aborted meanwhile.
End move(Communicator& communicator, std::vector<Transfer>& transfers);

int listen_as(const std::string& name);
int connect_to(const std::string& name);  // -1 while nobody listens
int accept_from(int listener, int milliseconds);  // -1 if nobody came
bool put(int socket, const void* bytes, size_t size);
bool take(int socket, void* bytes, size_t size);

}  // namespace simulated
