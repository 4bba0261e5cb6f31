// Plain C++: eight float lanes as arrays; what every other instruction set must agree with.
#pragma once
#include <cmath>
#include <cstring>

namespace RP_NS {

constexpr int R = 8;
struct F {
    float v[R];
};
struct I {
    int32_t v[R];
};
struct W {
    uint8_t v[4 * R];
};

template <class Fn>
RP_INLINE F fmap(Fn fn) {
    F r;
    for (int i = 0; i < R; ++i) r.v[i] = fn(i);
    return r;
}

RP_INLINE F fset(float x) {
    return fmap([&](int) { return x; });
}
RP_INLINE F fzero() { return fset(0.0f); }
RP_INLINE F fload(const float* p) {
    F r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
}
RP_INLINE void fstore(float* p, F v) { std::memcpy(p, v.v, sizeof v.v); }
RP_INLINE F fadd(F a, F b) {
    return fmap([&](int i) { return a.v[i] + b.v[i]; });
}
RP_INLINE F fsub(F a, F b) {
    return fmap([&](int i) { return a.v[i] - b.v[i]; });
}
RP_INLINE F fmul(F a, F b) {
    return fmap([&](int i) { return a.v[i] * b.v[i]; });
}
RP_INLINE F fdiv(F a, F b) {
    return fmap([&](int i) { return a.v[i] / b.v[i]; });
}
RP_INLINE F ffma(F a, F b, F c) {
    return fmap([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
RP_INLINE F fmaxv(F a, F b) {
    return fmap([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
RP_INLINE F fminv(F a, F b) {
    return fmap([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
RP_INLINE F fabsv(F a) {
    return fmap([&](int i) { return a.v[i] < 0 ? -a.v[i] : a.v[i]; });
}
RP_INLINE F fround(F a) {
    return fmap([&](int i) { return std::nearbyintf(a.v[i]); });
}
RP_INLINE F fcvt(I a) {
    return fmap([&](int i) { return static_cast<float>(a.v[i]); });
}
RP_INLINE F fselect_gt(F a, F b, F x, F y) {
    return fmap([&](int i) { return a.v[i] > b.v[i] ? x.v[i] : y.v[i]; });
}
RP_INLINE F fpow2(F n) {
    return fmap([&](int i) { return std::ldexp(1.0f, static_cast<int>(n.v[i])); });
}
// y in 1/2..2 times 2 to the power n, where t is n + kRounder and n in -127..127; 0 for 1 * 2^-127.
RP_INLINE F fshift(F y, F t) {
    uint32_t bits[R], steps[R];
    std::memcpy(bits, y.v, sizeof bits);
    std::memcpy(steps, t.v, sizeof steps);
    for (int i = 0; i < R; ++i) bits[i] += steps[i] << 23;
    std::memcpy(y.v, bits, sizeof bits);
    return y;
}
RP_INLINE float fsum(F v) {
    float s = 0;
    for (int i = 0; i < R; ++i) s += v.v[i];
    return s;
}
RP_INLINE float fmaxh(F v) {
    float s = v.v[0];
    for (int i = 1; i < R; ++i) s = v.v[i] > s ? v.v[i] : s;
    return s;
}
RP_INLINE void fsum4(float* out, const F* v) {
    for (int j = 0; j < 4; ++j) out[j] = fsum(v[j]);
}
RP_INLINE F fload_f16(const uint8_t* p) {
    return fmap([&](int i) { return load_f16(p + 2 * i); });
}
RP_INLINE void fstore_f16(uint8_t* p, F v) {
    for (int i = 0; i < R; ++i) store_f16(p + 2 * i, v.v[i]);
}
RP_INLINE F fload_bf16(const uint8_t* p) {
    return fmap([&](int i) { return load_bf16(p + 2 * i); });
}
RP_INLINE F fload_s8(const uint8_t* p) {
    return fmap([&](int i) { return static_cast<float>(static_cast<int8_t>(p[i])); });
}
RP_INLINE void fstore_s8(uint8_t* p, F v) {
    for (int i = 0; i < R; ++i) p[i] = static_cast<uint8_t>(static_cast<int>(v.v[i]));
}
struct Nibbles {
    F low, high;
};
RP_INLINE Nibbles fload_u4(const uint8_t* p) {
    return {fmap([&](int i) { return static_cast<float>(p[i] & 15); }),
            fmap([&](int i) { return static_cast<float>(p[i] >> 4); })};
}
// 0 for what is out of range or not a number, whose conversion is undefined.
RP_INLINE int16_t to_int16(float x) {
    return x > -32768.5f && x < 32767.5f ? static_cast<int16_t>(std::nearbyintf(x)) : int16_t{0};
}

RP_INLINE void fstore_swapped(int16_t* p, F v) {
    constexpr int kFrom[4] = {0, 2, 1, 3};
    for (int i = 0; i < R; ++i) p[i] = to_int16(v.v[i / 4 * 4 + kFrom[i % 4]]);
}

// R pairs of int16, and sums of the products of pairs.
struct H {
    int16_t v[2 * R];
};
using S = I;
RP_INLINE H hload(const int16_t* p) {
    H r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
}

// One pair for all lanes.
RP_INLINE H hset(const int16_t* p) {
    H r;
    for (int i = 0; i < R; ++i) std::memcpy(r.v + 2 * i, p, 4);
    return r;
}

// Whole numbers in the range of int16 to R pairs.
RP_INLINE void hstore(int16_t* p, F first, F second) {
    for (int i = 0; i < R; ++i) {
        p[2 * i] = to_int16(first.v[i]);
        p[2 * i + 1] = to_int16(second.v[i]);
    }
}

RP_INLINE void hstore(int16_t* p, H v) { std::memcpy(p, v.v, sizeof v.v); }
RP_INLINE H hadd(H a, H b) {
    for (int i = 0; i < 2 * R; ++i) a.v[i] = static_cast<int16_t>(a.v[i] + b.v[i]);
    return a;
}

// a * 2^N * b / 2^15, rounded.
template <int N>
RP_INLINE H hscale(H a, H b) {
    for (int i = 0; i < 2 * R; ++i)
        a.v[i] = static_cast<int16_t>((a.v[i] * (1 << N) * b.v[i] + (1 << 14)) >> 15);
    return a;
}

RP_INLINE S szero() { return {}; }
RP_INLINE S sdot(S sum, H a, H b) {
    for (int i = 0; i < 2 * R; ++i) sum.v[i / 2] += int32_t{a.v[i]} * int32_t{b.v[i]};
    return sum;
}
RP_INLINE I stotal(S sum) { return sum; }

RP_INLINE W wload(const uint8_t* p) {
    W r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
}
RP_INLINE void wstore(uint8_t* p, W w) { std::memcpy(p, w.v, sizeof w.v); }
template <class Fn>
RP_INLINE W wmap(Fn fn) {
    W r;
    for (int i = 0; i < 4 * R; ++i) r.v[i] = static_cast<uint8_t>(fn(i));
    return r;
}
RP_INLINE W wor(W a, W b) {
    return wmap([&](int i) { return a.v[i] | b.v[i]; });
}
RP_INLINE W wlow(W w) {
    return wmap([&](int i) { return w.v[i] & 0x0f; });
}
RP_INLINE W whigh(W w) {
    return wmap([&](int i) { return w.v[i] >> 4; });
}
template <int SHIFT>
RP_INLINE W wplane(W w, char mask) {
    constexpr int kLeft = SHIFT < 4 ? 4 - SHIFT : 0, kRight = SHIFT < 4 ? 0 : SHIFT - 4;
    return wmap([&](int i) { return ((w.v[i] << kLeft) >> kRight) & mask; });
}

// A weight vector as two of 16 bits: columns 0 and 2, columns 1 and 3 of every row.
struct Pair {
    H even, odd;
};

template <bool SIGNED>
RP_INLINE Pair widen(W w) {
    const auto value = [&](int i) {
        return SIGNED ? static_cast<int16_t>(static_cast<int8_t>(w.v[i])) : int16_t{w.v[i]};
    };
    Pair r;
    for (int i = 0; i < 2 * R; ++i) {
        r.even.v[i] = value(2 * i);
        r.odd.v[i] = value(2 * i + 1);
    }
    return r;
}

template <int X>
RP_INLINE Pair minus(Pair w) {
    for (int i = 0; i < 2 * R; ++i) {
        w.even.v[i] = static_cast<int16_t>(w.even.v[i] - X);
        w.odd.v[i] = static_cast<int16_t>(w.odd.v[i] - X);
    }
    return w;
}

RP_INLINE Pair load_pair(const uint8_t* p) {
    Pair r;
    std::memcpy(&r, p, sizeof r);
    return r;
}

RP_INLINE void store_pair(uint8_t* p, Pair w) { std::memcpy(p, &w, sizeof w); }

// Four activations for every row: columns 0 and 2, columns 1 and 3.
RP_INLINE Pair broadcast_pair(const int16_t* p) { return {hset(p), hset(p + 2)}; }

RP_INLINE I iset(int32_t x) {
    I r;
    for (int i = 0; i < R; ++i) r.v[i] = x;
    return r;
}

RP_INLINE I dot(I sum, const Pair& w, const Pair& a) {
    for (int i = 0; i < 2 * R; ++i)
        sum.v[i / 2] += int32_t{w.even.v[i]} * int32_t{a.even.v[i]} +
                        int32_t{w.odd.v[i]} * int32_t{a.odd.v[i]};
    return sum;
}

// Sums of products of up to 32 columns: of nibbles, and of bytes, four of them for every row.
using B = I;
RP_INLINE B bzero() { return {}; }
RP_INLINE B bdot(B sum, W nibbles, const int8_t* bytes) {
    for (int i = 0; i < 4 * R; ++i) sum.v[i / 4] += nibbles.v[i] * bytes[i % 4];
    return sum;
}
RP_INLINE I btotal(B sum) { return sum; }

}  // namespace RP_NS
