/* checkpoint_words.c -- lists of names for the reasons of checkpoints.
 *
 * A file that does not fit a network may differ in thousands of tensors; a
 * reason lists the first few of each kind and counts the others. */
#include "engine/checkpoint/checkpoint_inside.h"
#include <stdio.h>

/* Appends text; the part beyond the size is cut. */
void words_add(Words *w, const char *text)
{
    size_t n = strlen(text), left = sizeof w->text - 1 - w->used;
    if (n > left) n = left;
    memcpy(w->text + w->used, text, n);
    w->used += n;
    w->text[w->used] = 0;
}

/* Appends "name" or, after the first, ", name"; after LISTED names one ", ..."
 * and then nothing, while `count` goes on. */
void words_list(Words *w, const char *name)
{
    if (w->count && w->count < LISTED) words_add(w, ", ");
    if (w->count == LISTED) words_add(w, ", ...");
    if (w->count++ < LISTED) words_add(w, name);
}

/* "(3,2,3,3)", as PyTorch prints a shape. */
void words_shape(Words *w, const int64_t *shape, int axes)
{
    char number[32];
    words_add(w, "(");
    for (int i = 0; i < axes; i++) {
        snprintf(number, sizeof number, "%s%lld", i ? "," : "",
                 (long long)shape[i]);
        words_add(w, number);
    }
    words_add(w, ")");
}
