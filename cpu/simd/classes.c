/* classes.c -- softmax over few channels, its cross entropy and its sums for
 * the region losses: see Classes.
 *
 * Rows are shorter than vectors, so a lane is a row: some rows are transposed
 * into a plane for each class, which stay in L1, and results are transposed
 * back. Bound by arithmetic: an exponential a number, a division a row.
 *
 * Nothing is subtracted from the largest probability p of a row. With `rest`
 * the sum of the other exponentials, the largest being 1, the loss is log(1 +
 * rest), which keeps its digits where 1 - p would have none. */
#include "cpu/simd/explog.h"

enum { RUN = 8, CHUNK = RUN * LANES }; // vectors summed in float; rows
enum { TERMS = 3 };                    // of a class: m s t, m s, m t

/* A float for each row of a chunk and each class. */
typedef float Planes[CLASSES_MAX][CHUNK];

INLINE void split_rows(const float *x, int n, int classes, Planes p)
{
    for (int c = 0; c < classes; c++)
        for (int i = 0; i < n; i++) p[c][i] = x[i * classes + c];
}

INLINE void join_rows(Planes p, int n, int classes, float *y, bool add)
{
    for (int c = 0; c < classes; c++)
        for (int i = 0; i < n; i++) {
            float *to = y + i * classes + c;
            *to = add ? *to + p[c][i] : p[c][i];
        }
}

/* Transposes n rows; the vector with the last row is padded by zeros. */
static void split(const float *x, int n, int classes, Planes p)
{
    // constant distances let the compiler shuffle instead of load
    switch (classes) {
    case 2:
        split_rows(x, n, 2, p);
        break;
    case 3:
        split_rows(x, n, 3, p);
        break;
    case 4:
        split_rows(x, n, 4, p);
        break;
    default:
        split_rows(x, n, classes, p);
    }

    for (int c = 0; c < classes; c++)
        for (int i = n; i % LANES; i++) p[c][i] = 0;
}

static void join(Planes p, int n, int classes, float *y, bool add)
{
    switch (classes) {
    case 2:
        join_rows(p, n, 2, y, add);
        break;
    case 3:
        join_rows(p, n, 3, y, add);
        break;
    case 4:
        join_rows(p, n, 4, y, add);
        break;
    default:
        join_rows(p, n, classes, y, add);
    }
}

/* Rows of the chunk at row `from`. */
INLINE int rows_at(int64_t from, int64_t rows)
{
    return rows - from < CHUNK ? (int)(rows - from) : CHUNK;
}

/* The lanes of vector i that hold rows, of n rows. */
INLINE int lanes_at(int i, int n)
{
    return n - i < LANES ? n - i : LANES;
}

/* The mask of each row, 0 after the last row and for a class number `ignore`;
 * t: the class numbers, if the target has them. */
INLINE V counted(const Classes *r, int64_t at, int lanes, V t)
{
    V m = r->m ? v_load_part(r->m + at, lanes)
               : v_select(v_first(lanes), v_set(1), v_zero());
    return v_select(t == v_set(r->ignore), v_zero(), m);
}

/* Replaces logits by exponentials relative to the largest, which becomes 1;
 * returns the sum of the others. An infinite logit makes all of them NaN. */
INLINE V exponentials(Planes p, int i, int classes)
{
    V most = v_load(p[0] + i), rest = v_zero();
    Vi first = {0};

    for (int c = 1; c < classes; c++) {
        V x = v_load(p[c] + i);
        Vi more = x > most, number = (Vi){0} + c;
        most = v_select(more, x, most);
        first = (more & number) | (~more & first);
    }

    for (int c = 0; c < classes; c++) {
        V x = v_load(p[c] + i) - most, e = v_exp_negative(x);
        // 0 instead of the least result of v_exp_negative()
        e = v_select(x < v_set(-87), v_zero(), e);
        v_store(p[c] + i, e);
        rest += v_select(first == c, e - v_set(1), e);
    }
    return rest;
}

/* Replaces logits by probabilities. */
INLINE void softmax_planes(Planes p, int i, int classes)
{
    V share = v_set(1) / (v_set(1) + exponentials(p, i, classes));
    for (int c = 0; c < classes; c++)
        v_store(p[c] + i, v_load(p[c] + i) * share);
}

/* all += v, in double. */
INLINE void add_to(D all[2], V v)
{
    float room[LANES];
    v_store(room, v);
    all[0] += d_load(room), all[1] += d_load(room + LANES_D);
}

INLINE double sum_of(const D all[2])
{
    D both = all[0] + all[1];
    double sum = 0;
    for (int i = 0; i < LANES_D; i++) sum += both[i];
    return sum;
}

// -- softmax ------------------------------------------------------------------

void ISA_NAME(class_softmax)(const float *x, int64_t rows, int classes,
                             float *y);
void ISA_NAME(class_softmax)(const float *x, int64_t rows, int classes,
                             float *y)
{
    Planes p;
    for (int64_t from = 0; from < rows; from += CHUNK) {
        int n = rows_at(from, rows);
        split(x + from * classes, n, classes, p);
        for (int i = 0; i < n; i += LANES) softmax_planes(p, i, classes);
        join(p, n, classes, y + from * classes, false);
    }
}

// -- cross entropy ------------------------------------------------------------

void ISA_NAME(class_sums)(const Classes *r, double *sum);
void ISA_NAME(class_sums)(const Classes *r, double *sum)
{
    Planes p;
    D loss[2] = {{0}}, count[2] = {{0}};

    for (int64_t from = 0; from < r->rows; from += CHUNK) {
        int n = rows_at(from, r->rows);
        split(r->x + from * r->classes, n, r->classes, p);
        for (int i = 0; i < n; i += LANES) {
            int lanes = lanes_at(i, n);
            V t = v_load_part(r->t + from + i, lanes);
            V m = counted(r, from + i, lanes, t);
            // difference of the largest logit and the true class's; NaN without
            // one
            V most = v_load(p[0] + i), own = v_set(NAN);
            for (int c = 0; c < r->classes; c++) {
                V x = v_load(p[c] + i);
                most = v_select(x > most, x, most);
                own = v_select(t == v_set((float)c), x, own);
            }
            V l = v_log1p(exponentials(p, i, r->classes)) + (most - own);
            add_to(loss, v_select(m == 0, v_zero(), m * l));
            add_to(count, m);
        }
    }
    sum[0] = sum_of(loss), sum[1] = sum_of(count);
}

double ISA_NAME(class_count)(const Classes *r);
double ISA_NAME(class_count)(const Classes *r)
{
    D count[2] = {{0}};
    for (int64_t from = 0; from < r->rows; from += CHUNK) {
        int n = rows_at(from, r->rows);
        V sum = v_zero();
        for (int i = 0; i < n; i += LANES) {
            int lanes = lanes_at(i, n);
            V t = v_load_part(r->t + from + i, lanes);
            sum += counted(r, from + i, lanes, t);
        }
        add_to(count, sum);
    }
    return sum_of(count);
}

void ISA_NAME(class_grad)(const Classes *r, float factor, float *dx, bool add);
void ISA_NAME(class_grad)(const Classes *r, float factor, float *dx, bool add)
{
    Planes p;
    for (int64_t from = 0; from < r->rows; from += CHUNK) {
        int n = rows_at(from, r->rows);
        split(r->x + from * r->classes, n, r->classes, p);
        for (int i = 0; i < n; i += LANES) {
            int lanes = lanes_at(i, n);
            V t = v_load_part(r->t + from + i, lanes), others = v_zero();
            V m = counted(r, from + i, lanes, t);
            V share =
                v_set(factor) * m / (v_set(1) + exponentials(p, i, r->classes));
            for (int c = 0; c < r->classes; c++)
                others +=
                    v_select(t == v_set((float)c), v_zero(), v_load(p[c] + i));
            for (int c = 0; c < r->classes; c++) {
                V e = v_load(p[c] + i);
                V g = v_select(t == v_set((float)c), -others, e) * share;
                v_store(p[c] + i, v_select(m == 0, v_zero(), g));
            }
        }
        join(p, n, r->classes, dx + from * r->classes, add);
    }
}

// -- region losses -----------------------------------------------------------

/* The targets of a chunk: class numbers, or planes of probabilities. */
typedef struct Targets {
    float number[CHUNK];
    Planes soft;
} Targets;

INLINE void targets(const Classes *r, int64_t from, int n, Targets *t)
{
    if (r->soft) {
        split(r->t + from * r->classes, n, r->classes, t->soft);
    } else {
        memcpy(t->number, r->t + from, (size_t)n * sizeof(float));
        for (int i = n; i % LANES; i++) t->number[i] = 0;
    }
}

INLINE V target(const Classes *r, const Targets *t, int i, int c)
{
    if (r->soft) return v_load(t->soft[c] + i);
    return v_select(v_load(t->number + i) == v_set((float)c), v_set(1),
                    v_zero());
}

void ISA_NAME(class_region_sums)(const Classes *r, double *sum);
void ISA_NAME(class_region_sums)(const Classes *r, double *sum)
{
    Planes p;
    Targets t;
    float m[CHUNK];
    D all[TERMS * CLASSES_MAX][2], count[2] = {{0}};

    memset(all, 0, sizeof all);
    for (int64_t from = 0; from < r->rows; from += CHUNK) {
        int n = rows_at(from, r->rows);
        split(r->x + from * r->classes, n, r->classes, p);
        targets(r, from, n, &t);
        for (int i = 0; i < n; i += LANES) {
            V own = counted(r, from + i, lanes_at(i, n), v_zero());
            v_store(m + i, own);
            add_to(count, own);
            softmax_planes(p, i, r->classes);
        }
        for (int c = 0; c < r->classes; c++) {
            V both = v_zero(), found = v_zero(), truth = v_zero();
            for (int i = 0; i < n; i += LANES) {
                V own = v_load(m + i), s = v_load(p[c] + i);
                V to = target(r, &t, i, c);
                Vi none = own == 0;
                both += v_select(none, v_zero(), own * s * to);
                found += v_select(none, v_zero(), own * s);
                truth += v_select(none, v_zero(), own * to);
            }
            add_to(all[TERMS * c], both);
            add_to(all[TERMS * c + 1], found);
            add_to(all[TERMS * c + 2], truth);
        }
    }

    for (int k = 0; k < TERMS * r->classes; k++) sum[k] = sum_of(all[k]);
    sum[TERMS * r->classes] = sum_of(count);
}

void ISA_NAME(class_region_grad)(const Classes *r, const float *coef, float *dx,
                                 bool add);
void ISA_NAME(class_region_grad)(const Classes *r, const float *coef, float *dx,
                                 bool add)
{
    Planes p;
    Targets t;
    const float *a = coef, *b = coef + r->classes;

    for (int64_t from = 0; from < r->rows; from += CHUNK) {
        int n = rows_at(from, r->rows);
        split(r->x + from * r->classes, n, r->classes, p);
        targets(r, from, n, &t);
        for (int i = 0; i < n; i += LANES) {
            V m = counted(r, from + i, lanes_at(i, n), v_zero());
            softmax_planes(p, i, r->classes);
            // dx = s (g - mean of g with weights s). g is taken relative to
            // that of the most probable class, which then adds nothing to the
            // mean
            V most = v_zero(), base = v_zero(), mean = v_zero();
            for (int c = 0; c < r->classes; c++) {
                V s = v_load(p[c] + i);
                V g = v_fma(v_set(a[c]), target(r, &t, i, c), v_set(b[c]));
                base = v_select(s > most, g, base);
                most = v_max(most, s);
            }
            for (int c = 0; c < r->classes; c++) {
                V g = v_fma(v_set(a[c]), target(r, &t, i, c), v_set(b[c]));
                mean = v_fma(g - base, v_load(p[c] + i), mean);
            }
            for (int c = 0; c < r->classes; c++) {
                V s = v_load(p[c] + i);
                V g = v_fma(v_set(a[c]), target(r, &t, i, c), v_set(b[c]));
                V d = m * (g - base - mean) * s;
                v_store(p[c] + i, v_select(m == 0, v_zero(), d));
            }
        }
        join(p, n, r->classes, dx + from * r->classes, add);
    }
}
