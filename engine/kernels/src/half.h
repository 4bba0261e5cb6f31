// Scalar half and brain float conversions; internal linkage on purpose, because units are
// compiled for different instruction sets.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

inline float bits_to_float(uint32_t u) {
    float f;
    std::memcpy(&f, &u, sizeof f);
    return f;
}

inline uint32_t float_to_bits(float f) {
    uint32_t u;
    std::memcpy(&u, &f, sizeof u);
    return u;
}

inline float half_to_float(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu;
    const uint32_t mantissa = h & 0x3ffu;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
        const float value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
        return sign ? -value : value;
    }
    return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Round to nearest even; values beyond the range become infinite.
inline uint16_t float_to_half(float f) {
    const uint32_t bits = float_to_bits(f);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
    if (magnitude < 0x38800000u) {
        // Adding 0.5 leaves the rounded subnormal in the low mantissa bits.
        const float shifted = bits_to_float(magnitude) + 0.5f;
        return sign | static_cast<uint16_t>(float_to_bits(shifted) - 0x3f000000u);
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

inline float load_f16(const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, sizeof h);
    return half_to_float(h);
}

inline void store_f16(uint8_t* p, float f) {
    const uint16_t h = float_to_half(f);
    std::memcpy(p, &h, sizeof h);
}

inline float load_bf16(const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, sizeof h);
    return bits_to_float(static_cast<uint32_t>(h) << 16);
}

inline void store_bf16(uint8_t* p, float f) {
    const uint32_t bits = float_to_bits(f);
    const uint16_t h = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    std::memcpy(p, &h, sizeof h);
}

inline float load_f32(const uint8_t* p) {
    float f;
    std::memcpy(&f, p, sizeof f);
    return f;
}

}  // namespace
