/* hook.c -- the fields of a case or of a sample as a function sees them. */
#include "hook.h"
#include "change_inside.h"

/* Texts of steps outlive the recipe that they come from; functions do not. */
static bool call(Hook *hook, double code, double with, HookCall *c)
{
    if (!hook)
        return fail_usage("the step is a function of a recipe, and there is no "
                          "recipe here");
    return hook->run(hook, code, with, c);
}

/* A case has its classes whatever steps before have made of them. */
static int classes_of(const Dataset *ds)
{
    int32_t label[MAX_LABELS];
    return dataset_labels(ds, label);
}

bool hook_volume(const Steps *steps, const DataStep *s, const Dataset *ds,
                 const atomic_bool *stop, Volume field[MAX_FIELDS])
{
    HookCall c = {.classes = classes_of(ds), .stop = stop};
    int at[MAX_FIELDS];
    for (int f = 0; f < ds->fields; f++) {
        // a length is not known before all steps have run
        if (ds->field[f].kind == FIELD_LENGTH) continue;
        at[c.fields] = f;
        HookField *one = &c.field[c.fields++];
        *one = (HookField){.name = ds->field[f].name,
                           .kind = ds->field[f].kind,
                           .x = field[f].voxels};
        one->x.rank = ds->field[f].rank;
    }
    if (!call(steps->hook, s->change.code, s->change.with, &c)) return false;
    for (int i = 0; i < c.fields; i++) {
        Volume *v = &field[at[i]];
        // a function may give a picture any numbers
        if (c.field[i].changed && v->unit == UNIT_PIXEL) v->unit = UNIT_NONE;
    }
    return true;
}

bool hook_sample(const Change *c, Sample *s)
{
    HookCall all = {.draw = &c->draw, .stop = s->stop};
    if (!s->ds) return call(NULL, 0, 0, &all);
    all.classes = classes_of(s->ds);
    for (int f = 0; f < s->fields; f++) {
        if (!s->data[f]) continue;
        HookField *one = &all.field[all.fields++];
        *one = (HookField){.name = s->ds->field[f].name,
                           .kind = s->kind[f],
                           .x = {s->dim[f], F32, s->rank[f], s->data[f]}};
    }
    return call(s->hook, c->number[0], c->number[1], &all) || within("vary");
}
