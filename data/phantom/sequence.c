/* sequence.c -- synthetic speech, from formulas. */
#include "data/phantom/sequence.h"
#include "data/format/npy.h"
#include "data/parallel_for.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include <stdio.h>

// positions in the phantom's stream, distinct from the other forms
enum { DRAW_VOICE = 60, DRAW_TAKE, DRAW_FRAME };
enum { CYCLES = 2, MOST_MOTIFS = 11, MOST_SYLLABLES = CYCLES * MOST_MOTIFS };
enum { PATH_TEXT = 4096, LINE_TEXT = 128 };

/* Parameters of a speaker; positions along the features are 0 .. 1. */
typedef struct Voice {
    float shift, stretch; /* of the bumps, around the middle */
    float level, tilt;    /* of the rest between syllables */
    float gain, pace;
} Voice;

typedef struct Syllable {
    float begin, end; /* frames */
    int motif;
} Syllable;

typedef struct Utterance {
    Syllable syllable[MOST_SYLLABLES];
    int syllables, frames;
    float gain;
} Utterance;

static int motifs_of(const Phantom *how)
{
    // modulo a prime, every step size visits all motifs
    static const int prime[] = {3, 5, 7, MOST_MOTIFS};
    int i = 0;
    while (prime[i] <= how->number[SEQUENCE_CLASSES]) i++;
    return prime[i];
}

// Each number has its own draw: adding one does not change the others.
static Voice voice_of(const Phantom *how, int speaker)
{
    const Rng r = {.seed = how->seed,
                   .stream = RNG_PHANTOM,
                   .op = DRAW_VOICE,
                   .sample = (uint32_t)speaker};
    return (Voice){.shift = rng_range(&r, 0, -0.02f, 0.02f),
                   .stretch = rng_range(&r, 1, 0.97f, 1.03f),
                   .level = rng_range(&r, 2, -0.5f, 0.5f),
                   .tilt = rng_range(&r, 3, -0.3f, 0.3f),
                   .gain = rng_range(&r, 4, 0.9f, 1.1f),
                   .pace = rng_range(&r, 5, 0.87f, 1.15f)};
}

static Rng take_draws(const Phantom *how, int op, int speaker, int label,
                      int take)
{
    return (Rng){.seed = how->seed,
                 .stream = RNG_PHANTOM,
                 .op = (uint16_t)op,
                 .epoch = (uint32_t)take,
                 .sample = (uint32_t)(speaker * MOST_MOTIFS + label)};
}

static void utter(const Phantom *how, const Voice *voice, int speaker,
                  int label, int take, Utterance *u)
{
    enum { OWN = 4 }; // draws of the whole take, before those of syllables
    const float syllable = 5.5f, gap = 1;
    const Rng r = take_draws(how, DRAW_TAKE, speaker, label, take);
    const int motifs = motifs_of(how);
    const int start = (int)rng_below(&r, 0, (uint32_t)motifs);
    const float pace = voice->pace * rng_range(&r, 1, 0.87f, 1.15f);
    float at = rng_range(&r, 2, 1, 4);
    u->gain = voice->gain * rng_range(&r, 3, 0.9f, 1.1f);
    u->syllables = CYCLES * motifs;

    for (int i = 0; i < u->syllables; i++) {
        Syllable *s = &u->syllable[i];
        s->begin = at;
        s->end =
            at + pace * syllable * rng_range(&r, OWN + (uint32_t)i, 0.9f, 1.1f);
        s->motif = (start + i * (label + 1)) % motifs;
        at = s->end + pace * gap;
    }

    at += rng_range(&r, OWN + MOST_SYLLABLES, 0, 3);
    u->frames = (int)at + 1;
}

// 0 below -1 and above 1, 1 at 0, smooth between them
static float bump(float x)
{
    float rest = 1 - x * x;
    return rest > 0 ? rest * rest : 0;
}

/* Motif m of `motifs` at a position 0 .. 1: a bump in the lower half and one in
 * the upper half; no two motifs have the same pair of positions. */
static float motif(int m, int motifs, float place)
{
    const float width = 0.12f, last = (float)(motifs - 1);
    float low = 0.1f + 0.35f * (float)m / last;
    float high = 0.55f + 0.35f * (float)(2 * m % motifs) / last;
    return bump((place - low) / width) + bump((place - high) / width);
}

int sequence_frames(const Phantom *how, int speaker, int label, int take)
{
    Utterance u;
    Voice voice = voice_of(how, speaker);
    utter(how, &voice, speaker, label, take, &u);
    return u.frames;
}

// Approximately normal, mean 0 and variance 1: the sum of four uniform draws.
static float noise_of(const Rng *r, uint32_t index)
{
    const float root3 = 1.7320508f;
    uint32_t w[4];
    rng_block(r, index, w);
    float sum =
        rng_unit(w[0]) + rng_unit(w[1]) + rng_unit(w[2]) + rng_unit(w[3]);
    return root3 * (sum - 2);
}

void sequence_fill(const Phantom *how, int speaker, int label, int take,
                   float *x)
{
    const int features = how->number[SEQUENCE_FEATURES];
    const int motifs = motifs_of(how);
    const Voice voice = voice_of(how, speaker);
    const Rng r = take_draws(how, DRAW_FRAME, speaker, label, take);
    Utterance u;
    utter(how, &voice, speaker, label, take, &u);

    for (int t = 0, now = 0; t < u.frames; t++) {
        const float at = (float)t + 0.5f;
        while (now + 1 < u.syllables && at >= u.syllable[now].end) now++;
        const Syllable *s = &u.syllable[now];
        const float middle = (s->begin + s->end) / 2;
        const float loud = u.gain * bump((at - middle) / (s->end - middle));
        for (int f = 0; f < features; f++) {
            const float place = ((float)f + 0.5f) / (float)features - 0.5f;
            const float own = (place - voice.shift) / voice.stretch + 0.5f;
            const uint32_t i = (uint32_t)(t * features + f);
            x[i] = voice.level + voice.tilt * place +
                   loud * motif(s->motif, motifs, own) +
                   (float)how->noise * noise_of(&r, i);
        }
    }
}

/* -- files ---------------------------------------------------------------- */

// path relative to the folder of the data set, as in labels.csv
static void name_take(char path[LINE_TEXT], int speaker, int label, int take)
{
    snprintf(path, LINE_TEXT, "features/PHANTOM_%03d/%d_PHANTOM_%03d_%d.npy",
             speaker + 1, label, speaker + 1, take);
}

static bool write_take(const char *folder, const Phantom *how, int speaker,
                       int label, int take)
{
    char name[LINE_TEXT], path[PATH_TEXT];
    const int64_t shape[] = {sequence_frames(how, speaker, label, take),
                             how->number[SEQUENCE_FEATURES]};
    float *x = mem_alloc((size_t)(shape[0] * shape[1]) * sizeof *x);
    if (!x) return false;
    sequence_fill(how, speaker, label, take, x);
    name_take(name, speaker, label, take);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    bool ok = npy_write(path, 2, shape, x);
    mem_free(x);
    return ok;
}

bool sequence_write(const char *folder, const Phantom *how, int speaker)
{
    const int takes = how->number[SEQUENCE_TAKES];
    char path[PATH_TEXT];
    snprintf(path, sizeof path, "%s/features/PHANTOM_%03d", folder,
             speaker + 1);
    bool ok = file_mkdirs(path);
    for (int i = 0; ok && i < takes * how->number[SEQUENCE_CLASSES]; i++)
        ok = !parallel_for_stopped(how->stop) &&
             write_take(folder, how, speaker, i / takes, i % takes);
    return ok;
}

bool sequence_table(const char *folder, const Phantom *how)
{
    const int takes = how->number[SEQUENCE_TAKES];
    const int each = takes * how->number[SEQUENCE_CLASSES];
    const int rows = each * how->number[SEQUENCE_SPEAKERS];
    char path[PATH_TEXT], name[LINE_TEXT];
    size_t end = 0, room = ((size_t)rows + 1) * LINE_TEXT;
    char *text = mem_alloc(room);

    if (!text) return false;
    end += (size_t)snprintf(text, room, "path,label,speaker,take,frames\n");

    for (int i = 0; i < rows; i++) {
        int speaker = i / each, label = i % each / takes, take = i % takes;
        name_take(name, speaker, label, take);
        end += (size_t)snprintf(
            text + end, room - end, "%s,%d,PHANTOM_%03d,%d,%d\n", name, label,
            speaker + 1, take, sequence_frames(how, speaker, label, take));
    }

    snprintf(path, sizeof path, "%s/labels.csv", folder);
    bool ok = file_replace(path, text, end);
    mem_free(text);
    return ok;
}
