// Arithmetic on buffers, element by element, in the order of ranks.
#pragma once

#include <vector>

#include "communicator.hpp"

namespace simulated {

size_t size_of(ncclDataType_t dtype);  // bytes of an element; 0 for what is not a dtype
std::vector<char> reduced(const Communicator& on, const std::vector<const char*>& parts,
                          size_t count, ncclDataType_t dtype, int op);

}  // namespace simulated
