/* prims_numbers.h -- cases of prims.cu about numbers: 16-bit types, integer
 * intrinsics, atomics.
 *
 * The expected values are computed bit by bit from the definitions, not with
 * the functions under test. */
#ifndef EMU_PRIMS_NUMBERS_H
#define EMU_PRIMS_NUMBERS_H

/* -- 16-bit numbers -------------------------------------------------------- */
/* All bit patterns to float and back, and the middle of two neighbours. */
static __global__ void k_patterns(uint32_t *out)
{
    const unsigned i = blockIdx.x * 256 + threadIdx.x;
    const float h = __half2float(__ushort_as_half((unsigned short)i));
    const float b = __bfloat162float(__ushort_as_bfloat16((unsigned short)i));
    const float up = __half2float(__ushort_as_half((unsigned short)(i + 1)));
    const float ub =
        __bfloat162float(__ushort_as_bfloat16((unsigned short)(i + 1)));
    out[i * 4] = __float_as_uint(h);
    out[i * 4 + 1] = __float_as_uint(b);
    out[i * 4 + 2] = pack_f16(h, 0.5f * h + 0.5f * up);
    out[i * 4 + 3] = pack_bf16(b, 0.5f * b + 0.5f * ub);
    for (int k = 0; k < 4; k++) { /* any payload of a NaN is right */
        const bool nan = k % 2 ? b != b || ub != ub : h != h || up != up;
        if (nan) out[i * 4 + k] = 0;
    }
}
/* The value of a pattern with e bits of exponent and m of fraction, by the
 * definition; infinity counts as the next power of two. */
static double value_of(uint32_t u, int e, int m)
{
    const int bias = (1 << (e - 1)) - 1;
    const int exponent = (int)(u >> m) & ((1 << e) - 1);
    const double fraction = (double)(u & ((1u << m) - 1));
    double v = exponent ? ldexp(fraction + (1 << m), exponent - bias - m)
                        : ldexp(fraction, 1 - bias - m);
    return u >> (e + m) ? -v : v;
}
static void patterns(Words *got, Words *want)
{
    Buffer<uint32_t> out(4 * 65536);
    LAUNCH(k_patterns, 256, 256, 0, 0, out.p);
    OK_LAUNCH();
    *got = out.get();
    for (uint32_t i = 0; i < 65536; i++) {
        for (int k = 0; k < 4; k++) {
            const int e = k % 2 ? 8 : 5, m = 15 - e;
            const uint32_t next = (i + 1) & 0xffff;
            const uint32_t top = ((1u << e) - 1) << m;
            const bool nan = (i & 0x7fff) > top || (next & 0x7fff) > top;
            const bool inf = (i & 0x7fff) == top;
            float f = (float)value_of(i, e, m);
            if (inf) f = i >> 15 ? -HUGE_VALF : HUGE_VALF;
            /* the middle rounds to the even end */
            uint32_t middle = i & 1 ? next : i;
            if (inf || (next & 0x7fff) == top) /* half of infinite */
                middle = inf ? i : next;
            if (i == 0x7fff) middle = 0;
            want->push_back(nan ? 0 : k < 2 ? word_of(f) : i | middle << 16);
        }
    }
}

static __global__ void k_half(uint32_t *out)
{
    const int l = threadIdx.x;
    const float x = (float)(l - 9), y = (float)(l + 1);
    const __half2 h = __floats2half2_rn(x, y), one = __float2half2_rn(1.0f);
    const __nv_bfloat162 b = __floats2bfloat162_rn(x, y);
    const float2 r[] = {__half22float2(__hadd2(h, one)),
                        __half22float2(__hmul2(h, h)),
                        __half22float2(__hfma2(h, h, one)),
                        __bfloat1622float2(__hadd2(b, b)),
                        __bfloat1622float2(__hmax2(b, __hneg2(b))),
                        unpack_f16(pack_f16(x, y)),
                        unpack_bf16(pack_bf16(y, x))};
    for (int i = 0; i < 7; i++) {
        out[(i * 32 + l) * 2] = (uint32_t)(int)r[i].x;
        out[(i * 32 + l) * 2 + 1] = (uint32_t)(int)r[i].y;
    }
}
static void halves(Words *got, Words *want)
{
    Buffer<uint32_t> out(7 * 64);
    LAUNCH(k_half, 1, 32, 0, 0, out.p);
    OK_LAUNCH();
    *got = out.get();
    for (int i = 0; i < 7; i++)
        for (int l = 0; l < 32; l++) {
            const int x = l - 9, y = l + 1, ax = x < 0 ? -x : x;
            const int pair[7][2] = {
                {x + 1, y + 1}, {x * x, y * y}, {x * x + 1, y * y + 1},
                {2 * x, 2 * y}, {ax, y},        {x, y},
                {y, x}};
            want->push_back((uint32_t)pair[i][0]);
            want->push_back((uint32_t)pair[i][1]);
        }
}

/* -- integers -------------------------------------------------------------- */
static __global__ void k_bits(uint32_t *out)
{
    const unsigned l = threadIdx.x, x = 0x9e3779b9u * (l + 1);
    const int i = (int)(x >> (l & 15));
    const uint32_t r[] = {
        (uint32_t)__popc(x),
        (uint32_t)__clz((int)(x >> l)),
        (uint32_t)__ffs((int)(x << l)),
        __brev(x),
        __umulhi(x, x ^ 0x55555555u),
        (uint32_t)__mulhi(i, -i),
        __byte_perm(x, ~x, 0x7210 + l),
        __funnelshift_l(x, ~x, l),
        __funnelshift_r(x, ~x, l),
        (uint32_t)__float2int_rn((float)l * 0.5f),
        (uint32_t)__float2int_rz(-1.5f * (float)l),
        __float_as_uint(__fmaf_rn((float)l, 3.0f, 1.0f)),
        (uint32_t)(__umul64hi(0x123456789abcdefull * (l + 1), x) >> 3)};
    for (int k = 0; k < 13; k++) out[k * 32 + l] = r[k];
}
static void bits(Words *got, Words *want)
{
    Buffer<uint32_t> out(13 * 32);
    LAUNCH(k_bits, 1, 32, 0, 0, out.p);
    OK_LAUNCH();
    *got = out.get();
    want->resize(got->size());
    for (uint32_t l = 0; l < 32; l++) {
        const uint32_t x = 0x9e3779b9u * (l + 1), low = x >> l, up = x << l;
        const int i = (int)(x >> (l & 15));
        const uint64_t both = (uint64_t)~x << 32 | x;
        uint32_t ones = 0, zeros = 32, first = 0, turned = 0, perm = 0;
        for (uint32_t b = 0; b < 32; b++) {
            ones += x >> b & 1;
            if (low >> b & 1) zeros = 31 - b;
            if (!first && up >> b & 1) first = b + 1;
            turned |= (x >> b & 1) << (31 - b);
        }
        for (uint32_t b = 0; b < 4; b++) {
            // no bit 3: it does not replicate the sign, as it would in prmt
            const uint32_t s = (0x7210 + l) >> 4 * b & 7;
            perm |= ((uint32_t)(both >> 8 * s) & 255) << 8 * b;
        }
        const uint64_t wide = 0x123456789abcdefull * (l + 1);
        const uint64_t high =
            ((wide >> 32) * x + ((wide & 0xffffffffu) * x >> 32)) >> 32;
        const uint32_t row[] = {
            ones,
            zeros,
            first,
            turned,
            (uint32_t)((uint64_t)x * (x ^ 0x55555555u) >> 32),
            (uint32_t)((uint64_t)((int64_t)i * -(int64_t)i) >> 32),
            perm,
            (uint32_t)(both << l >> 32),
            (uint32_t)(both >> l),
            l / 2 + (l % 4 == 3),
            (uint32_t) - (int)(l + l / 2),
            word_of((float)(3 * l + 1)),
            (uint32_t)(high >> 3)};
        for (size_t k = 0; k < 13; k++) (*want)[k * 32 + l] = row[k];
    }
}

static __global__ void k_atomics(uint32_t *words, unsigned long long *wide)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int *signed_words = reinterpret_cast<int *>(words);
    atomicAdd(words, i);
    atomicSub(words + 1, i);
    atomicMin(signed_words + 2, 5 - (int)i);
    atomicMax(words + 3, i);
    atomicAnd(words + 4, ~(1u << (i & 7)));
    atomicOr(words + 5, 1u << (i & 15));
    atomicXor(words + 6, i * i);
    if (i == 3) atomicExch(words + 7, 77u);
    if (i == 4) atomicCAS(words + 8, 9u, 88u);
    if (i == 5) atomicCAS(words + 9, 8u, 88u); /* not the expected value */
    atomicAdd(wide, 1ull << 33 | i);
}
static void atomics(Words *got, Words *want)
{
    Buffer<uint32_t> words(Words(10, 9));
    Buffer<unsigned long long> wide(std::vector<unsigned long long>(1, 5));
    LAUNCH(k_atomics, 3, 64, 0, 0, words.p, wide.p);
    OK_LAUNCH();
    *got = words.get();
    const unsigned long long sum = wide.get()[0];
    got->push_back((uint32_t)sum);
    got->push_back((uint32_t)(sum >> 32));
    uint32_t all = 0, odd = 0;
    for (uint32_t i = 0; i < 192; i++) {
        all += i;
        odd ^= i * i;
    }
    *want = {9 + all, 9 - all, 5u - 191, 191, 0,       0xffff,
             9 ^ odd, 77,      88,       9,   5 + all, 2 * 192};
}
#endif
