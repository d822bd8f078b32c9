/* user_step.c -- calls a function of the recipe with the fields of a case or
 * sample. */
#include "data/steps/user_step.h"

/* The text of a step outlives its recipe; the function does not. */
bool user_step_call(UserStep *user_step, double code, double with,
                    UserStepCall *c)
{
    if (!user_step)
        return fail_usage("the step is a function of a recipe, and there is no "
                          "recipe here");
    return user_step->run(user_step, code, with, c);
}

int user_step_classes(const Dataset *ds)
{
    int32_t label[MAX_LABELS];
    return dataset_labels(ds, label);
}

bool user_step_volume(const Steps *steps, const DataStep *s, const Dataset *ds,
                      const atomic_bool *stop, Volume field[MAX_FIELDS])
{
    UserStepCall c = {.classes = user_step_classes(ds), .stop = stop};
    int at[MAX_FIELDS];

    for (int f = 0; f < ds->fields; f++) {
        // a length is known only after all steps
        if (ds->field[f].kind == FIELD_LENGTH) continue;
        at[c.fields] = f;
        UserStepField *one = &c.field[c.fields++];
        *one = (UserStepField){.name = ds->field[f].name,
                               .kind = ds->field[f].kind,
                               .x = field[f].voxels};
        one->x.rank = ds->field[f].rank;
    }

    if (!user_step_call(steps->user_step, s->change.code, s->change.with, &c))
        return false;
    for (int i = 0; i < c.fields; i++) {
        Volume *v = &field[at[i]];
        // a function may turn a picture into arbitrary numbers
        if (c.field[i].changed && v->unit == UNIT_PIXEL) v->unit = UNIT_NONE;
    }
    return true;
}
