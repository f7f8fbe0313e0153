// The few kernels that a whole-step graph needs besides torch's. Compiled by NVRTC; see kernels.py.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define FOR_EACH(i, n)                                                    \
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (n);     \
         i += (u64)gridDim.x * blockDim.x)

static __device__ u64 head_bytes(const u8* start, u64 num_bytes) {
    u64 head = (16 - ((u64)start & 15)) & 15;
    return head < num_bytes ? head : num_bytes;
}

// What a memset node does: rows of `width` bytes, `pitch` bytes apart, filled with `pattern`, whose period
// divides the alignment of `start`.
extern "C" __global__ void fill(u8* start, u64 pitch, u64 width, u64 height, u32 pattern) {
    for (u64 row = blockIdx.y; row < height; row += gridDim.y) {
        u8* out = start + row * pitch;
        u64 head = head_bytes(out, width), vectors = (width - head) / 16, tail = head + vectors * 16;
        FOR_EACH(i, vectors) ((uint4*)(out + head))[i] = make_uint4(pattern, pattern, pattern, pattern);
        FOR_EACH(i, head) out[i] = pattern >> (8 * (i & 3));
        FOR_EACH(i, width - tail) out[tail + i] = pattern >> (8 * ((tail + i) & 3));
    }
}

// What a one-dimensional memcpy node between device buffers does.
extern "C" __global__ void copy(u8* to, const u8* from, u64 num_bytes) {
    u64 head = head_bytes(to, num_bytes), vectors = 0;
    if ((((u64)to ^ (u64)from) & 15) == 0) {
        vectors = (num_bytes - head) / 16;
        FOR_EACH(i, vectors) ((uint4*)(to + head))[i] = ((const uint4*)(from + head))[i];
    }
    u64 tail = head + vectors * 16;
    FOR_EACH(i, head) to[i] = from[i];
    FOR_EACH(i, num_bytes - tail) to[tail + i] = from[tail + i];
}

// First kernel of a step: row (tick mod num_slots) of a ring, which may lie in host memory, to a fixed place.
// Read past the caches, since the host writes between launches.
extern "C" __global__ void gather(uint4* to, const uint4* ring, u64 vectors_per_row, u64 num_slots,
                                  const u64* tick) {
    const uint4* row = ring + (*tick % num_slots) * vectors_per_row;
    FOR_EACH(i, vectors_per_row) to[i] = __ldcv(row + i);
}

// Last kernel of a step, one block: every 32-bit half of a metric goes out in one 64-bit word with the low half
// of its sequence number, so a reader sees either this step's value or knows that it does not.
extern "C" __global__ void publish(volatile u64* ring, const u32* metrics, u64 num_words, u64 num_slots,
                                   u64* tick) {
    u64 sequence = *tick + 1;
    volatile u64* row = ring + (sequence % num_slots) * num_words;
    for (u64 i = threadIdx.x; i < num_words; i += blockDim.x)
        row[i] = ((u64)metrics[i] << 32) | (u32)sequence;
    __syncthreads();
    if (threadIdx.x == 0) *tick = sequence;
}
