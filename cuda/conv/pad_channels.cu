/* pad_channels.cu -- see pad_channels.cuh. */
#include "cuda/conv/pad_channels.cuh"
#include "cuda/lib/precision_traits.cuh"

namespace {

/* Positions with two tensors of a and b channels to rows of CHANNELS; a
 * position a thread. Bound by memory. */
template <class T, int CHANNELS>
__global__ void __launch_bounds__(BLOCK)
    pad_channels_kernel(const T *first, const T *second, int a, int b,
                        int64_t count, T *to)
{
    enum { COUNT = Line<T>::COUNT };
    EACH(i, count)
    {
        Line<T> v[CHANNELS / COUNT] = {};
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            if (c < a)
                v[c / COUNT].v[c % COUNT] = first[i * a + c];
            else if (c < a + b)
                v[c / COUNT].v[c % COUNT] = second[i * b + c - a];
        }
        Line<T> *row = (Line<T> *)(to + i * CHANNELS);
#pragma unroll
        for (int k = 0; k < CHANNELS / COUNT; k++) row[k] = v[k];
    }
}

template <class T, int CHANNELS>
bool queue(const ConvProblem *r, const Source &input, void *to)
{
    const int first = input.border ? input.border : r->cin;
    const int64_t count = rows(r->input);
    moves((double)count * sizeof(T) * (r->cin + CHANNELS));
    LAUNCH((pad_channels_kernel<T, CHANNELS>), blocks_for(count), BLOCK, 0,
           gpu_stream(r->c->dev), (const T *)input.first.data,
           (const T *)input.second.data, first, r->cin - first, count, (T *)to);
    return gpu_launched("pad_channels");
}

} // namespace

bool pad_channels(const ConvProblem *r, const Source &input, int channels,
                  void *to)
{
    if (precision_copy(r->c->precision) != F32)
        return channels == 8 ? queue<uint16_t, 8>(r, input, to)
                             : queue<uint16_t, 16>(r, input, to);
    return channels == 8 ? queue<float, 8>(r, input, to)
                         : queue<float, 16>(r, input, to);
}
