/* user_step.c -- functions of a recipe as steps of one sample. */
#include "data/augment/augment_inside.h"

bool hook_sample(const Change *c, Sample *s)
{
    HookCall all = {.draw = &c->draw, .stop = s->stop};
    if (!s->ds) return hook_call(NULL, 0, 0, &all);
    all.classes = hook_classes(s->ds);
    for (int f = 0; f < s->fields; f++) {
        if (!s->data[f]) continue;
        HookField *one = &all.field[all.fields++];
        *one = (HookField){.name = s->ds->field[f].name,
                           .kind = s->kind[f],
                           .x = {s->dim[f], F32, s->rank[f], s->data[f]}};
    }
    return hook_call(s->hook, c->number[0], c->number[1], &all) ||
           within("vary");
}
