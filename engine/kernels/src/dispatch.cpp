#include "dispatch.h"

#if defined(RP_HAS_NEON) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if defined(_MSC_VER)
#include <intrin.h>
#endif

#if defined(RP_HAS_AVX512)
namespace rp_avx512 {
extern const rp::Table table;
}
#endif
#if defined(RP_HAS_AVX2)
namespace rp_avx2 {
extern const rp::Table table;
}
#endif
#if defined(RP_HAS_NEON)
namespace rp_neon {
extern const rp::Table table;
}
#endif
#if defined(RP_HAS_PORTABLE)
namespace rp_portable {
extern const rp::Table table;
}
#endif

namespace rp {
namespace {

#if (defined(RP_HAS_AVX2) || defined(RP_HAS_AVX512)) && defined(_MSC_VER)
// Registers of a leaf: eax, ebx, ecx, edx; the system must save the wide registers too.
bool has_bits(int leaf, int subleaf, int reg, unsigned mask) {
    int r[4];
    __cpuidex(r, leaf, subleaf);
    return (static_cast<unsigned>(r[reg]) & mask) == mask;
}

bool has_avx2() {
    constexpr unsigned kFmaOsxsaveF16c = (1u << 12) | (1u << 27) | (1u << 29);
    return has_bits(1, 0, 2, kFmaOsxsaveF16c) && (_xgetbv(0) & 6) == 6 &&
           has_bits(7, 0, 1, 1u << 5);
}

[[maybe_unused]] bool has_avx512() {
    constexpr unsigned kFoundation = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);
    return has_avx2() && (_xgetbv(0) & 0xe6) == 0xe6 && has_bits(7, 0, 1, kFoundation) &&
           has_bits(7, 0, 2, 1u << 11);
}
#elif defined(RP_HAS_AVX2) || defined(RP_HAS_AVX512)
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

[[maybe_unused]] bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}
#endif

#if defined(RP_HAS_NEON)
bool has_dot_product() {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return true;  // every Apple silicon has it
#endif
}
#endif

constexpr int kMostTables = 4;

int usable_tables(const Table** out) {
    int n = 0;
#if defined(RP_HAS_AVX512)
    if (has_avx512()) out[n++] = &rp_avx512::table;
#endif
#if defined(RP_HAS_AVX2)
    if (has_avx2()) out[n++] = &rp_avx2::table;
#endif
#if defined(RP_HAS_NEON)
    if (has_dot_product()) out[n++] = &rp_neon::table;
#endif
#if defined(RP_HAS_PORTABLE)
    out[n++] = &rp_portable::table;
#endif
    return n;
}

}  // namespace

const Table* usable_table(int i) {
    const Table* tables[kMostTables];
    const int n = usable_tables(tables);
    return i >= 0 && i < n ? tables[i] : nullptr;
}

}  // namespace rp
