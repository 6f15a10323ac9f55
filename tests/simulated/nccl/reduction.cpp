#include "reduction.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace simulated {

namespace {

// A float of `exponent` and `mantissa` bits, kept as its bits. `finite`: no infinities (e4m3fn).
template <typename Bits, int exponent, int mantissa, bool finite = false>
struct Small {
    using Wide = float;
    static constexpr int bias = (1 << (exponent - 1)) - 1;
    static constexpr int sign_at = exponent + mantissa;
    Bits bits;

    static float wide(Small value) {
        const int e = (value.bits >> mantissa) & ((1 << exponent) - 1);
        const int m = value.bits & ((1 << mantissa) - 1);
        const float sign = ((value.bits >> sign_at) & 1) != 0 ? -1.0F : 1.0F;
        const bool top = e == (1 << exponent) - 1;
        if (top && finite && m == (1 << mantissa) - 1) return NAN;
        if (top && !finite) return m != 0 ? NAN : sign * INFINITY;
        const float fraction = static_cast<float>(m) / static_cast<float>(1 << mantissa);
        return e == 0 ? sign * std::ldexp(fraction, 1 - bias) : sign * std::ldexp(1 + fraction, e - bias);
    }

    // To the nearest, and to the even one of two; beyond the largest: infinity, or what is not a number.
    static Small narrow(float value) {
        const int beyond = (1 << exponent) - 1;
        const int sign = std::signbit(value) ? 1 << sign_at : 0;
        const int nan = (beyond << mantissa) | ((1 << mantissa) - 1);
        const int most = finite ? nan : beyond << mantissa;
        if (std::isnan(value)) return {static_cast<Bits>(sign | nan)};
        if (std::isinf(value)) return {static_cast<Bits>(sign | most)};
        if (value == 0) return {static_cast<Bits>(sign)};
        const int power = std::max(std::ilogb(value), 1 - bias);
        const float scaled = std::ldexp(std::fabs(value), mantissa - power);
        const auto steps = static_cast<long>(std::nearbyint(scaled));
        const long bits = steps + (static_cast<long>(power + bias - 1) << mantissa);
        return {static_cast<Bits>(sign | static_cast<int>(std::min<long>(bits, most)))};
    }
};

using Half = Small<uint16_t, 5, 10>;
using Brain = Small<uint16_t, 8, 7>;
using Eight4 = Small<uint8_t, 4, 3, true>;
using Eight5 = Small<uint8_t, 5, 2>;

template <typename T>
struct Number {
    using Wide = T;
    static T wide(T value) { return value; }
    static T narrow(T value) { return value; }
};
template <typename Bits, int e, int m, bool finite>
struct Number<Small<Bits, e, m, finite>> : Small<Bits, e, m, finite> {};

template <typename W>
W added(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
        using U = std::make_unsigned_t<W>;
        return static_cast<W>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
        return a + b;
    }
}

template <typename W>
W multiplied(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
        return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
        return a * b;
    }
}

template <typename W>
W with(W a, W b, int op) {
    switch (op) {
        case ncclProd: return multiplied(a, b);
        case ncclMax: return std::max(a, b);
        case ncclMin: return std::min(a, b);
        default: return added(a, b);
    }
}

template <typename T>
typename Number<T>::Wide factor_of(const Communicator& on, int op) {
    const auto found = on.factors.find(op);
    if (found == on.factors.end()) return 1;
    T value;
    std::memcpy(&value, found->second.where != nullptr ? found->second.where : found->second.value,
                sizeof value);
    return Number<T>::wide(value);
}

template <typename T>
void combine(const Communicator& on, const std::vector<const char*>& parts, size_t count, int op,
             char* result) {
    using N = Number<T>;
    const auto factor = factor_of<T>(on, op);
    for (size_t index = 0; index < count; ++index) {
        typename N::Wide all{};
        for (size_t part = 0; part < parts.size(); ++part) {
            T own;
            std::memcpy(&own, parts[part] + index * sizeof own, sizeof own);
            const auto scaled = op >= ncclNumOps ? multiplied(N::wide(own), factor) : N::wide(own);
            all = part == 0 ? scaled : N::wide(N::narrow(with(all, scaled, op)));
        }
        // integers are divided after the sum, and lose what is behind the point
        if (op == ncclAvg) all = static_cast<typename N::Wide>(all / static_cast<typename N::Wide>(parts.size()));
        const T value = N::narrow(all);
        std::memcpy(result + index * sizeof value, &value, sizeof value);
    }
}

using Combine = void (*)(const Communicator&, const std::vector<const char*>&, size_t, int, char*);

struct Row {
    size_t size;
    Combine combine;
};

template <typename T>
Row row() {
    return {sizeof(T), combine<T>};
}

Row row_of(ncclDataType_t dtype) {
    switch (dtype) {
        case ncclInt8: return row<int8_t>();
        case ncclUint8: return row<uint8_t>();
        case ncclInt32: return row<int32_t>();
        case ncclUint32: return row<uint32_t>();
        case ncclInt64: return row<int64_t>();
        case ncclUint64: return row<uint64_t>();
        case ncclFloat16: return row<Half>();
        case ncclBfloat16: return row<Brain>();
        case ncclFloat32: return row<float>();
        case ncclFloat64: return row<double>();
        case ncclFloat8e4m3: return row<Eight4>();
        case ncclFloat8e5m2: return row<Eight5>();
        default: return {0, nullptr};
    }
}

}  // namespace

size_t size_of(ncclDataType_t dtype) { return row_of(dtype).size; }

std::vector<char> reduced(const Communicator& on, const std::vector<const char*>& parts,
                          size_t count, ncclDataType_t dtype, int op) {
    std::vector<char> result(count * size_of(dtype));
    row_of(dtype).combine(on, parts, count, op, result.data());
    return result;
}

}  // namespace simulated
