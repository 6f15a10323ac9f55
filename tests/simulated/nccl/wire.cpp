#include "wire.hpp"

#include <cerrno>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace simulated {

namespace {

// A name without a file: it is gone with the last socket that has it.
socklen_t address_of(const std::string& name, sockaddr_un* address) {
    std::memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    const size_t length = std::min(name.size(), sizeof address->sun_path - 1);
    std::memcpy(address->sun_path + 1, name.data(), length);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

int socket_of_its_own() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

// True if it moved or would have to wait; false where the other side is gone.
bool step(Transfer& transfer) {
    char* at = transfer.bytes + transfer.moved;
    const size_t left = transfer.size - transfer.moved;
    const ssize_t moved = transfer.sends
                              ? send(transfer.socket, at, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                              : recv(transfer.socket, at, left, MSG_DONTWAIT);
    if (moved > 0) transfer.moved += static_cast<size_t>(moved);
    if (moved < 0) return errno == EAGAIN || errno == EINTR;
    return moved > 0;
}

}  // namespace

int listen_as(const std::string& name) {
    sockaddr_un address;
    const socklen_t length = address_of(name, &address);
    const int made = socket_of_its_own();
    if (bind(made, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(made, 4096) != 0) {
        close(made);
        return -1;
    }
    return made;
}

int connect_to(const std::string& name) {
    sockaddr_un address;
    const socklen_t length = address_of(name, &address);
    const int made = socket_of_its_own();
    if (connect(made, reinterpret_cast<sockaddr*>(&address), length) == 0) return made;
    close(made);
    return -1;
}

int accept_from(int listener, int milliseconds) {
    pollfd ready{listener, POLLIN, 0};
    if (poll(&ready, 1, milliseconds) <= 0) return -1;
    return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
}

bool put(int socket, const void* bytes, size_t size) {
    return send(socket, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool take(int socket, void* bytes, size_t size) {
    return recv(socket, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

End move(Communicator& communicator, std::vector<Transfer>& transfers) {
    for (;;) {
        std::map<std::pair<int, bool>, Transfer*> first;
        for (Transfer& each : transfers) {
            if (each.moved < each.size) first.emplace(std::make_pair(each.socket, each.sends), &each);
        }
        if (first.empty()) return End::done;
        std::vector<pollfd> watched{{communicator.abort_signal(), POLLIN, 0}};
        std::vector<Transfer*> active;
        for (auto& [which, each] : first) {
            watched.push_back({which.first, static_cast<short>(which.second ? POLLOUT : POLLIN), 0});
            active.push_back(each);
        }
        poll(watched.data(), watched.size(), -1);
        if (communicator.aborted) return End::aborted;
        for (size_t index = 0; index < active.size(); ++index) {
            Transfer& each = *active[index];
            if (watched[index + 1].revents == 0) continue;
            if (!step(each)) return End::closed;
            if (each.moved == each.size && each.then) each.then();
        }
    }
}

}  // namespace simulated
