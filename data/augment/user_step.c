/* user_step.c -- functions of a recipe as steps of one sample. */
#include "data/augment/augment_inside.h"

bool user_step_sample(const Change *c, Sample *s)
{
    UserStepCall all = {.draw = &c->draw, .stop = s->stop};
    if (!s->ds) return user_step_call(NULL, 0, 0, &all);
    all.classes = user_step_classes(s->ds);

    for (int f = 0; f < s->fields; f++) {
        if (!s->data[f]) continue;
        UserStepField *one = &all.field[all.fields++];
        *one = (UserStepField){.name = s->ds->field[f].name,
                               .kind = s->kind[f],
                               .x = {s->dim[f], F32, s->rank[f], s->data[f]}};
    }

    return user_step_call(s->user_step, c->number[0], c->number[1], &all) ||
           within("vary");
}
