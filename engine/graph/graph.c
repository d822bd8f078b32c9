/* graph.c -- appends to the graph, prints it and parses its text.
 *
 * Every node is checked when it is appended, because then the line of the
 * recipe is known. So every graph is valid and the planner need not check it.
 * Weights files carry the text form. The parser calls the same three functions
 * as a recipe, so a file cannot describe more than a recipe can, and a damaged
 * or hostile file fails with a line number instead of a crash. */
#include "engine/graph/graph.h"
#include "engine/base/crc32c.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NODES = 1 << 16, // dropout has 16 bits for the node in its counter
    MAX_NAME = 256,      // bytes, the limit of safetensors.h for tensor names
};

void graph_free(Graph *g)
{
    arena_release(&g->mem);
    mem_free(g->node);
    mem_free(g->slot);
    *g = (Graph){0};
}

/* Returns the first slot to search for a name. */
static uint32_t hash_of(const char *name)
{
    return crc32c(0, name, strlen(name));
}

// finds inputs and parameters only, as labels of operators may repeat
int graph_find(const Graph *g, const char *name)
{
    const uint32_t mask = (uint32_t)g->slots - 1;
    if (!g->slots) return -1;
    for (uint32_t h = hash_of(name);; h++) {
        const int i = g->slot[h & mask] - 1;
        if (i < 0 || !strcmp(g->node[i].name, name)) return i;
    }
}

static void slot_put(Graph *g, int i)
{
    const uint32_t mask = (uint32_t)g->slots - 1;
    uint32_t h = hash_of(g->node[i].name);
    while (g->slot[h & mask]) h++;
    g->slot[h & mask] = i + 1;
}

/* Adds node i, an input or a parameter, to the index of names. */
static bool name_add(Graph *g, int i)
{
    if (2 * (g->named + 1) > g->slots) {
        const int slots = g->slots ? 2 * g->slots : 64;
        int *slot = mem_alloc((size_t)slots * sizeof *slot);
        if (!slot) return false;
        mem_free(g->slot);
        g->slot = slot;
        g->slots = slots;
        for (int k = 0; k < i; k++)
            if (g->node[k].kind != NODE_OP) slot_put(g, k);
    }

    slot_put(g, i);
    g->named++;
    return true;
}

/* Names go into files, tables and messages, so they are restricted; a dot
 * separates scopes. False with a reason. */
static bool name_valid(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME)
        return fail_usage("name \"%.40s\" must have 1 to %d characters", name,
                          MAX_NAME);
    // not isalnum: the set of letters must not depend on the locale
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789._-") != n)
        return fail_usage("name \"%s\" may hold letters, digits and . _ - "
                          "only",
                          name);
    return true;
}

/* Appends a zeroed node with copies of the strings; NULL with a reason. The
 * array may move: older Node pointers become invalid. */
static Node *append(Graph *g, const char *name, const char *where, int *out)
{
    if (g->count == g->room) {
        int room = g->room ? 2 * g->room : 64;
        if (room > MAX_NODES) {
            fail_usage("more than %d nodes in one network", MAX_NODES);
            return NULL;
        }
        Node *grown = mem_realloc(g->node, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        g->node = grown;
        g->room = room;
    }

    Node *n = &g->node[g->count];
    *n = (Node){.name = arena_strdup(&g->mem, name ? name : ""),
                .where = arena_strdup(&g->mem, where ? where : "")};
    if (!n->name || !n->where) return NULL;
    for (int i = 0; i < MAX_IN; i++) n->in[i] = -1;
    *out = g->count++;
    return n;
}

/* Is this name valid and unused among inputs and parameters? */
static bool name_new(const Graph *g, const char *what, const char *name)
{
    if (!name_valid(name)) return false;
    int i = graph_find(g, name);
    if (i < 0) return true;
    return fail_usage("%s \"%s\" exists already%s%s; give one of them another "
                      "name or put it in a scope of its own",
                      what, name, *g->node[i].where ? ", made at " : "",
                      g->node[i].where);
}

/* May an input or parameter of this rank have these extents? */
static bool leaf_valid(const char *what, const char *name, Dims s, int rank)
{
    char text[DIMS_TEXT];
    if (!dims_valid(s, F64))
        return fail_usage("%s \"%s\": every extent must be 1 or more and the "
                          "whole addressable, got %s",
                          what, name, dims_text(s, rank, text));
    if (!dims_shown(s, rank))
        return fail_usage("%s \"%s\": %dx%dx%dx%dx%d as n x d x h x w x c has "
                          "more axes than %s",
                          what, name, s.n, s.d, s.h, s.w, s.c,
                          dims_text(s, rank, text));
    return true;
}

bool graph_input(Graph *g, const char *name, Dims dim, int rank,
                 const char *where, int *out)
{
    dim.n = 1; // a plan sets the batch size
    if (!name_new(g, "input", name) || !leaf_valid("input", name, dim, rank))
        return false;
    Node *n = append(g, name, where, out);
    if (!n) return false; // the failed node is not counted: nothing to undo
    n->kind = NODE_INPUT;
    n->batched = true;
    n->y = (Tensor){.dim = dim, .type = F32, .rank = rank};
    return name_add(g, *out);
}

bool graph_param(Graph *g, const char *name, Dims dim, int rank, Init init,
                 bool trained, bool decayed, const char *where, int *out)
{
    if (!name_new(g, "parameter", name) ||
        !leaf_valid("parameter", name, dim, rank))
        return false;
    Node *n = append(g, name, where, out);
    if (!n) return false;
    n->kind = NODE_PARAM;
    n->y = (Tensor){.dim = dim, .type = F32, .rank = rank};
    n->init = init;
    n->trained = trained;
    n->decayed = decayed;
    return name_add(g, *out);
}

/* In training batch_norm writes its running statistics and gives them no
 * gradient. So both must be parameters that are not trained: otherwise other
 * readers would see a value change, and the operand would have a gradient that
 * no kernel wrote. */
static bool running_valid(const Graph *g, const Attr *attr, const int *in)
{
    for (int i = 3; attr->op == OP_batch_norm && i < 5; i++)
        if (g->node[in[i]].kind != NODE_PARAM || g->node[in[i]].trained)
            return fail_usage("batch_norm: running %s must be a parameter that "
                              "is not trained",
                              i == 3 ? "mean" : "variance");
    return true;
}

bool graph_op(Graph *g, const Attr *attr, const int in[MAX_IN],
              const char *name, const char *where, int *out)
{
    // callers in this program must pass the required operands (CHECK); extents
    // come from the recipe and get a reason
    CHECK(attr->op >= 0 && attr->op < OP_COUNT);
    const OpInfo *info = &op_info[attr->op];
    Tensor x[MAX_IN] = {{{0}, F32, 0, NULL}}, y;
    bool batched = false;
    if ((name && *name && !name_valid(name)) || !op_attrs_valid(attr))
        return false;

    for (int i = 0; i < MAX_IN; i++) {
        if (in[i] < 0) continue;
        CHECK(in[i] < g->count && i < info->in);
        x[i] = g->node[in[i]].y;
        batched |= g->node[in[i]].batched;
    }

    if (!op_shape(attr, x, &y) || !running_valid(g, attr, in)) return false;
    Node *n = append(g, name, where, out);
    if (!n) return false;
    n->kind = NODE_OP;
    n->attr = *attr;
    memcpy(n->in, in, sizeof n->in);
    n->y = y;

    // a loss is the mean over the batch: one number
    n->batched = batched && !(info->flags & LOSS) && attr->op != OP_constant;
    return true;
}

void graph_ancestors(const Graph *g, const int *root, int roots, bool *used)
{
    memset(used, 0, (size_t)g->count * sizeof *used);
    for (int i = 0; i < roots; i++) used[root[i]] = true;
    // operands have smaller numbers, so one downward pass reaches every
    // ancestor
    for (int i = g->count - 1; i >= 0; i--)
        for (int k = 0; used[i] && k < MAX_IN; k++)
            if (g->node[i].in[k] >= 0) used[g->node[i].in[k]] = true;
}

/* == text ============================================================== */

/* A growing string. After a failure `ok` is false and all further puts do
 * nothing, so only the end checks it. */
typedef struct Text {
    char *at;
    size_t used, room; // used: without the final 0
    bool ok;
} Text;

static void put(Text *t, const char *fmt, ...) ERR_FORMAT(2, 3);
static void put(Text *t, const char *fmt, ...)
{
    char line[512]; // a name of MAX_NAME and ten numbers
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    CHECK(n >= 0 && (size_t)n < sizeof line);

    if (t->used + (size_t)n + 1 > t->room) {
        size_t room = 2 * t->room + (size_t)n + 256;
        char *grown = t->ok ? mem_realloc(t->at, room) : NULL;
        if (!grown) {
            t->ok = false;
            return;
        }
        t->at = grown;
        t->room = room;
    }

    memcpy(t->at + t->used, line, (size_t)n + 1);
    t->used += (size_t)n;
}

/* Writes v with nine digits and a point: printf uses the decimal point of the
 * locale, which may be any multi-byte character. Returns text. */
enum { NUMBER_TEXT = 32 };
static char *plain_number(double v, char text[NUMBER_TEXT])
{
    static const char digits[] = "0123456789+-e";
    char local[NUMBER_TEXT];
    snprintf(local, sizeof local, "%.9g", v);
    size_t whole = strspn(local, digits),
           point = strcspn(local + whole, digits);
    snprintf(text, NUMBER_TEXT, "%.*s%s%s", (int)whole, local, point ? "." : "",
             local + whole + point);
    return text;
}

/* Appends attributes that differ from the defaults, as " name=value". So an
 * operator may gain an attribute without a change of meaning of old texts. Nine
 * digits restore a float exactly. */
static void put_attrs(Text *t, const Attr *a)
{
    const OpInfo *info = &op_info[a->op];
    Attr def = op_default((Op)a->op);
    char text[NUMBER_TEXT];
    for (int i = 0; i < info->attrs; i++) {
        if (a->word[1 + i] == def.word[1 + i]) continue;
        if (info->attr[i].kind == 'f')
            put(t, " %s=%s", info->attr[i].name,
                plain_number(op_attr(a, i), text));
        else
            put(t, " %s=%" PRId32, info->attr[i].name, a->word[1 + i]);
    }
}

// version of the format: a later format has another number and is refused here
static const char HEAD[] = "segengine graph 1\n";

bool graph_print(const Graph *g, const int *root, int roots, Arena *mem,
                 char **text)
{
    bool ok = false;
    Text t = {.ok = true};
    bool *used = mem_alloc((size_t)g->count + 1);
    int *number = mem_alloc(((size_t)g->count + 1) * sizeof *number), next = 0;

    TRY(used && number);
    graph_ancestors(g, root, roots, used);
    put(&t, "%s", HEAD);

    for (int i = 0; i < g->count; i++) {
        const Node *n = &g->node[i];
        if (!used[i]) continue;
        number[i] = next++; // unused nodes are omitted: numbers count lines
        Dims d = n->y.dim;
        if (n->kind == NODE_OP) {
            put(&t, "%s %s", op_info[n->attr.op].name,
                *n->name ? n->name : "-");
            for (int k = 0; k < op_info[n->attr.op].in; k++)
                put(&t, "%s%d", k ? "," : " ",
                    n->in[k] < 0 ? -1 : number[n->in[k]]);
            put_attrs(&t, &n->attr);
        } else {
            put(&t, "%s %s %d %d %d %d %d %d %d %d",
                n->kind == NODE_INPUT ? "input" : "param", n->name, d.n, d.d,
                d.h, d.w, d.c, n->y.rank, n->trained, n->decayed);
        }
        put(&t, "\n");
    }

    put(&t, "root");
    for (int i = 0; i < roots; i++) put(&t, " %d", number[root[i]]);
    put(&t, "\n");
    TRY(t.ok);
    *text = arena_strdup(mem, t.at);
    ok = *text != NULL;

done:
    mem_free(t.at);
    mem_free(used);
    mem_free(number);
    return ok;
}

/* Parses a decimal number as put_attrs writes it. Not strtod: its decimal point
 * depends on the locale, which a program that embeds the library may set. */
static bool parse_number(const char *text, double *out)
{
    double v = 0;
    int digits = 0, power = 0;
    bool minus = *text == '-';

    text += minus;
    for (bool point = false; *text == '.' || (*text >= '0' && *text <= '9');
         text++) {
        if (*text == '.' && point) return false;
        if (*text == '.') {
            point = true;
            continue;
        }
        v = 10 * v + (*text - '0');
        power -= point;
        digits++;
    }

    if (!digits || digits > 17) return false;
    if (*text == 'e') {
        char *end;
        long e = strtol(text + 1, &end, 10);
        if (end == text + 1 || e < -99 || e > 99) return false;
        power += (int)e;
        text = end;
    }

    // nine digits and a power of ten round to the original float: neighbouring
    // floats differ in the 8th digit, the error is in the 16th
    v = power < 0 ? v / pow(10, -power) : v * pow(10, power);
    *out = minus ? -v : v;
    return *text == 0;
}

/* Parses one attribute "name=value" of an operator; graph_op checks its
 * range. */
static bool parse_attr(const char *word, Attr *a)
{
    const OpInfo *info = &op_info[a->op];
    size_t n = strcspn(word, "=");

    for (int i = 0; word[n] && i < info->attrs; i++) {
        const char *name = info->attr[i].name;
        double v;
        if (strlen(name) != n || memcmp(word, name, n)) continue;
        if (!parse_number(word + n + 1, &v)) break;
        float f = (float)v;
        bool whole = v == floor(v) && v >= INT32_MIN && v <= INT32_MAX;
        if (info->attr[i].kind == 'f')
            memcpy(&a->word[1 + i], &f, 4);
        else if (whole)
            a->word[1 + i] = (int32_t)v;
        else
            break;
        return true;
    }

    return fail_data("%s cannot have the attribute \"%.60s\"", info->name,
                     word);
}

/* Parses operands "3,4,-1": at most `most` numbers of earlier lines, -1 for
 * absent; missing ones at the end are absent too. */
static bool parse_operands(const Graph *g, const char *text, int most,
                           int in[MAX_IN])
{
    const char *all = text;
    for (int k = 0; k < MAX_IN; k++) in[k] = -1;

    for (int k = 0; k < most; k++) {
        char *end;
        long v = strtol(text, &end, 10);
        if (end == text || v < -1 || v >= g->count)
            return fail_data("operand \"%.60s\" is not an earlier line", text);
        in[k] = (int)v;
        if (*end == 0) return true;
        if (*end != ',') break;
        text = end + 1;
    }
    return fail_data("operands \"%.60s\" cannot be read", all);
}

/* Parses "op label operands name=value ...", label "-" for none. */
static bool parse_op(Graph *g, char **word, int words)
{
    Op op = op_find(word[0]);
    int in[MAX_IN], out;
    if (op == OP_COUNT)
        return fail_data("operator \"%.60s\" is not known to this version",
                         word[0]);
    if (words < 3) return fail_data("%s without operands", word[0]);
    Attr a = op_default(op);
    if (!parse_operands(g, word[2], op_info[op].in, in)) return false;
    for (int i = 3; i < words; i++)
        if (!parse_attr(word[i], &a)) return false;
    return graph_op(g, &a, in, strcmp(word[1], "-") ? word[1] : "", "", &out);
}

/* Parses "input name n d h w c rank trained decayed", or "param ...". */
static bool parse_leaf(Graph *g, char **word, int words)
{
    long v[8];
    int out;
    if (words != 10) return fail_data("%d words, want 10", words);

    for (int i = 0; i < 8; i++) {
        char *end;
        v[i] = strtol(word[2 + i], &end, 10);
        if (*end || v[i] < RANK_SCALAR || v[i] > INT32_MAX)
            return fail_data("\"%.60s\" is not an extent", word[2 + i]);
    }

    // n d h w c rank trained decayed; graph_input checks the extents
    if (v[5] > RANK_MAX) return fail_data("rank %ld", v[5]);
    if ((v[6] | v[7]) & ~1L) return fail_data("trained and decayed are 0 or 1");
    Dims d = {(int32_t)v[0], (int32_t)v[1], (int32_t)v[2], (int32_t)v[3],
              (int32_t)v[4]};
    if (!strcmp(word[0], "input"))
        return graph_input(g, word[1], d, (int)v[5], "", &out);
    return graph_param(g, word[1], d, (int)v[5], (Init){INIT_CONST, 0}, v[6],
                       v[7], "", &out);
}

/* Parses "root 7 9": any number of roots, more than parse_line can split. */
static bool parse_roots(const Graph *g, char *rest, int *root, int *roots,
                        int max_roots)
{
    for (char *word; (word = strtok_r(rest, " ", &rest)); ++*roots) {
        char *end;
        long v = strtol(word, &end, 10);
        if (*roots == max_roots)
            return fail_data("more than %d roots", max_roots);
        if (*end || v < 0 || v >= g->count)
            return fail_data("root \"%.60s\" is not an earlier line", word);
        root[*roots] = (int)v;
    }
    return *roots > 0 || fail_data("network text has no root");
}

/* Parses one node. Splits `line` in place. */
static bool parse_line(char *line, Graph *g)
{
    enum { MOST = 3 + MAX_ATTR }; // operator, label, operands and attributes
    char *word[MOST + 1], *rest = line;
    int words = 0;
    while (words <= MOST && (word[words] = strtok_r(rest, " ", &rest))) words++;
    if (words < 2 || words > MOST)
        return fail_data("%d words, want 2 to %d", words, MOST);
    if (!strcmp(word[0], "input") || !strcmp(word[0], "param"))
        return parse_leaf(g, word, words);
    return parse_op(g, word, words);
}

/* Parses all lines up to the roots, which are the last line. */
static bool parse_lines(char *rest, Graph *g, int *root, int *roots,
                        int max_roots)
{
    char *line;

    // line 1 was HEAD
    for (int number = 2; (line = strtok_r(rest, "\n", &rest)); number++) {
        bool last = !strncmp(line, "root ", 5);
        if (last ? !parse_roots(g, line + 5, root, roots, max_roots)
                 : !parse_line(line, g))
            return within("network text, line %d", number);
        if (!last) continue;
        return !strtok_r(rest, "\n", &rest) ||
               fail_data("network text continues after line %d, its roots",
                         number);
    }
    return fail_data("network text has no root");
}

// strtok_r writes into its input, hence the copy
bool graph_parse(const char *text, Graph *g, int *root, int *roots,
                 int max_roots)
{
    *roots = 0;
    if (strncmp(text, HEAD, strlen(HEAD))) {
        int shown = (int)strcspn(text, "\n");
        return fail_data("network text begins with \"%.*s\", want \"%.17s\"",
                         shown < 40 ? shown : 40, text, HEAD);
    }
    char *copy = mem_strdup(text);
    bool ok =
        copy && parse_lines(copy + strlen(HEAD), g, root, roots, max_roots);
    mem_free(copy);
    return ok;
}
