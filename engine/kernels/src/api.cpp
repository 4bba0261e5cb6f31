// The C interface that engine/kernels/library.py calls. No exception leaves it.
#include <exception>
#include <new>

#include "context.h"
#include "crc32.h"
#include "dispatch.h"
#include "gguf_blocks.h"
#include "pack.h"
#include "top_k.h"

#if defined(_WIN32)
#define RP_EXPORT extern "C" __declspec(dllexport)
#else
#define RP_EXPORT extern "C" __attribute__((visibility("default")))
#endif

RP_EXPORT int32_t rp_version() { return 6; }

// Name of the i-th instruction set that runs here, best first; null past the end.
RP_EXPORT const char* rp_isa_name(int32_t i) {
    const rp::Table* table = rp::usable_table(i);
    return table ? table->name : nullptr;
}

RP_EXPORT int32_t rp_isa_lanes(int32_t i) {
    const rp::Table* table = rp::usable_table(i);
    return table ? table->lanes : 0;
}

RP_EXPORT rp::Context* rp_create(int32_t isa, const rp::ContextSizes* sizes,
                                 const rp::GroupShape* groups) {
    const rp::Table* table = rp::usable_table(isa);
    if (!table) return nullptr;
    try {
        return new rp::Context(*table, *sizes, groups);
    } catch (const std::exception&) {
        return nullptr;
    }
}

RP_EXPORT void rp_destroy(rp::Context* context) { delete context; }

RP_EXPORT int32_t rp_run(rp::Context* context, const RpOp* ops, int32_t num_ops,
                         const RpStep* step) {
    try {
        context->run(ops, num_ops, *step);
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}

RP_EXPORT void rp_pack_plane(int32_t isa, const RpPlanePack* plane) {
    rp::usable_table(isa)->pack_plane(*plane);
}

RP_EXPORT int32_t rp_kind_of(int32_t type) { return rp::kind_of(type); }

RP_EXPORT int64_t rp_row_bytes(int32_t type, int64_t columns) {
    return rp::row_bytes(type, columns);
}

RP_EXPORT int64_t rp_packed_bytes(const rp::Context* context, int32_t type, int64_t rows,
                                  int64_t columns) {
    return rp::packed_bytes(rp::kind_of(type), context->table().lanes, rows, columns);
}

RP_EXPORT void rp_pack(rp::Context* context, int32_t type, int32_t has_parts, const uint8_t* raw,
                       int64_t rows, int64_t columns, uint8_t* out) {
    context->pack(type, has_parts != 0, raw, rows, columns, out);
}

RP_EXPORT void rp_dequantize(int32_t type, const uint8_t* raw, int64_t rows, int64_t columns,
                             float* out) {
    const int64_t stride = rp::row_bytes(type, columns);
    for (int64_t row = 0; row < rows; ++row)
        rp::dequantize_row(type, raw + row * stride, columns, out + row * columns);
}

// The k largest of n numbers with their places; 1 where one is not finite or memory is short.
RP_EXPORT int32_t rp_top_k(int32_t isa, const float* x, int64_t n, int32_t k, float* values,
                           int64_t* ids) {
    const rp::Table* table = rp::usable_table(isa);
    if (!table || k < 1 || k > n) return 1;
    try {
        return rp::top_k(*table, x, n, k, values, ids) ? 0 : 1;
    } catch (const std::exception&) {
        return 1;
    }
}

RP_EXPORT int32_t rp_has_crc32() { return rp::has_crc32(); }

RP_EXPORT uint32_t rp_crc32(const uint8_t* data, int64_t n) { return rp::crc32(data, n); }

RP_EXPORT uint32_t rp_copy_crc32(uint8_t* to, const uint8_t* from, int64_t n) {
    return rp::copy_crc32(to, from, n);
}
