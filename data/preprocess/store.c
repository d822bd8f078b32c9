/* store.c -- see store.h.
 *
 * The file: a header of 64 bytes; packs and notes, each at a multiple of 64; an
 * index, to which the header points. A commit writes a new index after the new
 * cases and then the header, in this order on the disk; the old index stays in
 * place, unused. Numbers are in the format of this machine: a file from another
 * machine, or of another format version, is replaced by a new one. */
#include "data/preprocess/store.h"
#include "engine/base/crc32c.h"
#include "engine/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNED = 64, FORMAT = 4, MOST_MAPS = 8, ORDER = 0x01020304 };

static const char magic[8] = "SEGSTORE";

typedef struct Header {
    char magic[8];
    uint32_t order, format, entry_bytes;
    uint32_t crc; /* of the header, with 0 here */
    uint64_t index_at, entries;
    uint32_t index_crc;
    uint8_t unused[20];
} Header;

/* A piece of the file. */
typedef struct Piece {
    uint64_t at, bytes;
    uint32_t crc, unused;
} Piece;

typedef struct DiskField {
    Piece piece;
    int32_t d, h, w, c;
    int32_t kind, type;
} DiskField;

typedef struct Entry {
    CacheKey cache_key;
    Origin origin;
    double grid[4][4], input[4][4]; /* affines */
    int32_t size[2][3];             /* of both: d, h, w */
    int32_t unit, fields;
    uint64_t hash;
    Intensity intensity[INTENSITY_CHANNELS];
    int32_t intensities, unused;
    Piece notes;
    DiskField field[MAX_FIELDS];
} Entry;

/* The result of checking an entry since the file was opened. */
typedef enum Seen { UNSEEN, GOOD, DAMAGED } Seen;

struct Store {
    char *path;
    int fd;
    bool writes; /* holds the lock of the file */
    char why[ERR_MAX];
    ErrKind kind;  /* of `why`; ERR_NONE: appending is possible */
    Entry *entry;  /* (count), sorted by key                    */
    uint8_t *seen; /* (count) Seen */
    int64_t count;
    Entry *added; /* (adds), after `end` of the file  */
    int64_t adds, room;
    int64_t moved; /* entries in `added` of cases that were known at another
                    * place */
    uint64_t end;  /* of the file with the added cases */
    struct {
        const uint8_t *data;
        size_t bytes;
    } map[MOST_MAPS]; /* the last one maps the whole file; the others are still
                       * in use */
    int maps;
    StoreStats stats;
    pthread_mutex_t lock;
};

static int entry_order(const void *a, const void *b)
{
    return cache_key_order(&((const Entry *)a)->cache_key,
                           &((const Entry *)b)->cache_key);
}

/* == reading the file ================================================== */

static uint32_t header_crc(Header h)
{
    h.crc = 0;
    return crc32c(0, &h, sizeof h);
}

/* Is it a store that this program can read? */
static bool header_reads(const Header *h)
{
    return h->order == ORDER && h->format == FORMAT &&
           h->entry_bytes == sizeof(Entry) && h->crc == header_crc(*h);
}

static bool inside(uint64_t at, uint64_t bytes, uint64_t size)
{
    return at <= size && bytes <= size - at;
}

/* Maps the file in its present size. */
static bool map_file(Store *s, uint64_t bytes)
{
    if (s->maps == MOST_MAPS) return fail("%s: mapped too often", s->path);
    if (bytes > SIZE_MAX) return fail("%s: too large to map", s->path);
    void *p = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, s->fd, 0);
    if (p == MAP_FAILED)
        return fail("%s: cannot be mapped: %s", s->path, strerror(errno));
    s->map[s->maps].data = p;
    s->map[s->maps++].bytes = (size_t)bytes;
    return true;
}

static const uint8_t *last_map(const Store *s, size_t *bytes)
{
    *bytes = s->maps ? s->map[s->maps - 1].bytes : 0;
    return s->maps ? s->map[s->maps - 1].data : NULL;
}

/* Loads the index of the file, which has `bytes`. A damaged index counts as
 * empty. */
static bool load_index(Store *s, const Header *h, uint64_t bytes)
{
    size_t size = 0;
    mem_free(s->entry);
    mem_free(s->seen);
    s->entry = NULL, s->seen = NULL, s->count = 0;
    if (!h->entries) return true;
    if (!map_file(s, bytes)) return false;
    if (h->entries > bytes / sizeof(Entry) ||
        !inside(h->index_at, h->entries * sizeof(Entry), bytes))
        return true;
    size = (size_t)h->entries * sizeof(Entry);
    const uint8_t *index = last_map(s, &(size_t){0}) + h->index_at;
    if (crc32c(0, index, size) != h->index_crc) return true;
    s->entry = mem_alloc(size);
    s->seen = mem_alloc((size_t)h->entries);
    if (!s->entry || !s->seen) return false;
    memcpy(s->entry, index, size);
    s->count = (int64_t)h->entries;
    return true;
}

/* Reads the header of the open file; all zero for an empty file, or a file that
 * must be replaced. ERR_DATA if it is not a store. */
static bool read_header(Store *s, Header *h, uint64_t *bytes)
{
    struct stat st;
    memset(h, 0, sizeof *h);
    if (fstat(s->fd, &st)) return fail("%s: %s", s->path, strerror(errno));
    *bytes = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode))
        return fail_data("%s: not a file, so it cannot keep prepared cases; "
                         "fix: another name",
                         s->path);
    if (!*bytes) return true;
    size_t n = *bytes < sizeof *h ? (size_t)*bytes : sizeof *h;
    if (!file_read_at(s->fd, s->path, 0, h, n)) return false;
    if (memcmp(h->magic, magic, n < sizeof magic ? n : sizeof magic) != 0)
        return fail_data("%s: there is a file that segengine did not make; "
                         "fix: another name for the prepared cases",
                         s->path);
    if (!header_reads(h)) memset(h, 0, sizeof *h);
    return true;
}

/* Replaces a file that is damaged or of another format by a new one; a process
 * that has the old file open keeps it. */
static bool begin_anew(Store *s)
{
    Header h = {.order = ORDER, .format = FORMAT, .entry_bytes = sizeof(Entry)};
    memcpy(h.magic, magic, sizeof magic);
    h.crc = header_crc(h);
    if (!file_replace(s->path, &h, sizeof h)) return false;
    int fd = open(s->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return fail("%s: %s", s->path, strerror(errno));
    if (s->fd >= 0) close(s->fd);
    s->fd = fd;
    (void)fchmod(fd, S_IRUSR | S_IWUSR);
    return true;
}

bool store_open(const char *path, Store **out)
{
    Header h;
    uint64_t bytes;
    bool ok = false;

    *out = NULL;
    Store *s = mem_alloc(sizeof *s);
    if (!s) return false;
    pthread_mutex_init(&s->lock, NULL);
    s->fd = -1;
    TRY(s->path = mem_alloc(strlen(path) + 1));
    strcpy(s->path, path);
    s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK,
                 S_IRUSR | S_IWUSR);
    if (s->fd < 0) {
        fail("%s: cannot keep prepared cases there: %s", path, strerror(errno));
        goto done;
    }
    TRY(read_header(s, &h, &bytes));
    if (!h.entry_bytes) {
        TRY(begin_anew(s));
        h.entries = 0, bytes = sizeof h;
    }
    TRY(load_index(s, &h, bytes));
    s->stats.cases = s->count, s->stats.bytes = (int64_t)bytes;
    *out = s;
    ok = true;

done:
    if (!ok) store_close(s);
    return ok;
}

void store_close(Store *s)
{
    if (!s) return;
    for (int i = 0; i < s->maps; i++)
        munmap((void *)s->map[i].data, s->map[i].bytes);
    if (s->fd >= 0) close(s->fd); // also releases the lock
    mem_free(s->entry);
    mem_free(s->seen);
    mem_free(s->added);
    mem_free(s->path);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* == getting =========================================================== */

static bool piece_good(const Piece *p, const uint8_t *map, size_t bytes)
{
    return p->at % ALIGNED == 0 && inside(p->at, p->bytes, bytes) &&
           crc32c(0, map + p->at, (size_t)p->bytes) == p->crc;
}

static Grid disk_grid(const int32_t n[3], double affine[4][4])
{
    Grid g = {.d = n[0], .h = n[1], .w = n[2]};
    memcpy(g.affine, affine, sizeof g.affine);
    return g;
}

/* The case of an entry, with its packs in the mapped file. */
static Prepared entry_case(Entry *e, const uint8_t *map)
{
    Prepared p = {.fields = e->fields,
                  .input_unit = (Unit)e->unit,
                  .hash = e->hash,
                  .grid = disk_grid(e->size[0], e->grid),
                  .input = disk_grid(e->size[1], e->input)};
    p.intensities = e->intensities;
    memcpy(p.intensity, e->intensity, sizeof p.intensity);

    for (int f = 0; f < e->fields; f++) {
        const DiskField *d = &e->field[f];
        p.field[f] = (Pack){.dim = {1, d->d, d->h, d->w, d->c},
                            .kind = (PackKind)d->kind,
                            .type = (Dtype)d->type,
                            .data = (void *)(map + d->piece.at),
                            .bytes = (size_t)d->piece.bytes};
    }
    return p;
}

/* Are all positions and checksums of an entry valid for the file? */
static bool entry_good(Entry *e, const uint8_t *map, size_t bytes)
{
    if (e->fields < 1 || e->fields > MAX_FIELDS || e->intensities < 0 ||
        e->intensities > INTENSITY_CHANNELS)
        return false;
    for (int f = 0; f < e->fields; f++)
        if (!piece_good(&e->field[f].piece, map, bytes)) return false;
    if (!piece_good(&e->notes, map, bytes) || !e->notes.bytes ||
        map[e->notes.at + e->notes.bytes - 1])
        return false;
    const Prepared p = entry_case(e, map);
    for (int f = 0; f < p.fields; f++)
        if (!pack_check(&p.field[f])) return false;
    return true;
}

/* The entry with this key, under the lock; NULL if absent. */
static const Entry *find(const Store *s, const CacheKey *cache_key)
{
    const Entry key = {.cache_key = *cache_key};
    return s->count ? bsearch(&key, s->entry, (size_t)s->count, sizeof key,
                              entry_order)
                    : NULL;
}

/* Records the check of a case; the index may have changed since. */
static void remember(Store *s, const CacheKey *cache_key, Seen seen)
{
    const Entry *at = find(s, cache_key);
    uint8_t *was = at ? &s->seen[at - s->entry] : NULL;
    if (!was || *was != UNSEEN) return;
    *was = (uint8_t)seen;
    s->stats.damaged += seen == DAMAGED;
}

void store_get(Store *s, const CacheKey *cache_key, Prepared *out,
               const char **notes, bool *found)
{
    Entry e;
    size_t bytes;
    pthread_mutex_lock(&s->lock);
    const Entry *at = find(s, cache_key);
    Seen seen = at ? (Seen)s->seen[at - s->entry] : DAMAGED;

    // a copy: another thread may load a new index
    if (at) e = *at;
    const uint8_t *map = last_map(s, &bytes);
    pthread_mutex_unlock(&s->lock);
    bool checked = at && seen == UNSEEN;

    // reads the whole case, so other threads may read at the same time
    if (checked) seen = entry_good(&e, map, bytes) ? GOOD : DAMAGED;
    *found = seen == GOOD;
    if (*found) {
        *out = entry_case(&e, map);
        *notes = (const char *)map + e.notes.at;
    }
    pthread_mutex_lock(&s->lock);
    if (checked) remember(s, cache_key, seen);
    s->stats.got += *found;
    pthread_mutex_unlock(&s->lock);
}

bool store_origin(Store *s, const CacheKey *cache_key, Origin *out)
{
    pthread_mutex_lock(&s->lock);
    const Entry *at = find(s, cache_key);
    if (at) *out = at->origin;
    pthread_mutex_unlock(&s->lock);
    return at != NULL;
}

/* == adding ============================================================ */

/* Stops appending; the first reason is kept. */
static void give_up(Store *s)
{
    if (s->kind != ERR_NONE) return;
    s->kind = err_kind();
    snprintf(s->why, sizeof s->why, "%s", err_text());
}

static bool write_all(Store *s, uint64_t at, const void *data, size_t bytes)
{
    return file_write_at(s->fd, s->path, at, data, bytes, 0);
}

/* The first addition takes the lock and loads cases that other processes have
 * added. */
static bool begin_adding(Store *s)
{
    Header h;
    uint64_t bytes;
    if (s->writes) return true;
    if (flock(s->fd, LOCK_EX | LOCK_NB))
        return fail("%s: another process adds cases to it", s->path);
    s->writes = true;
    if (!read_header(s, &h, &bytes)) return false;
    if (!h.entry_bytes)
        return fail_data("%s: changed while it was open", s->path);

    // after the index: an uncommitted tail is overwritten
    s->end = h.entries ? h.index_at + h.entries * sizeof(Entry) : sizeof h;
    return (int64_t)h.entries == s->count || load_index(s, &h, bytes);
}

/* A piece without a position in the file. */
static Piece new_piece(const void *data, size_t bytes)
{
    return (Piece){.bytes = bytes, .crc = crc32c(0, data, bytes)};
}

/* Reads the whole case for its checksums: call without the lock. */
static Entry new_entry(const CacheKey *cache_key, const Origin *origin,
                       const Prepared *p, const char *notes)
{
    Entry e = {.cache_key = *cache_key,
               .origin = *origin,
               .size = {{p->grid.d, p->grid.h, p->grid.w},
                        {p->input.d, p->input.h, p->input.w}},
               .unit = (int32_t)p->input_unit,
               .fields = p->fields,
               .hash = p->hash};
    memcpy(e.grid, p->grid.affine, sizeof e.grid);
    memcpy(e.input, p->input.affine, sizeof e.input);
    e.intensities = p->intensities;
    memcpy(e.intensity, p->intensity, sizeof e.intensity);

    for (int f = 0; f < p->fields; f++) {
        const Pack *x = &p->field[f];
        e.field[f] = (DiskField){.piece = new_piece(x->data, x->bytes),
                                 .d = x->dim.d,
                                 .h = x->dim.h,
                                 .w = x->dim.w,
                                 .c = x->dim.c,
                                 .kind = (int32_t)x->kind,
                                 .type = (int32_t)x->type};
    }

    e.notes = new_piece(notes, strlen(notes) + 1);
    return e;
}

/* Puts a piece after the end of the file. */
static void place(Store *s, Piece *p)
{
    s->end = (s->end + ALIGNED - 1) / ALIGNED * ALIGNED;
    p->at = s->end;
    s->end += p->bytes;
}

/* Makes room for one more entry in `added`. */
static bool grow(Store *s)
{
    if (s->adds < s->room) return true;
    int64_t room = s->room ? 2 * s->room : 64;
    Entry *more = mem_realloc(s->added, (size_t)room * sizeof *more);
    if (!more) return false;
    s->added = more, s->room = room;
    return true;
}

void store_moved(Store *s, const CacheKey *cache_key, const CacheKey *place)
{
    pthread_mutex_lock(&s->lock);
    // if it cannot be added, its bytes are read again next time
    bool ok = s->kind == ERR_NONE && begin_adding(s) && grow(s);
    const Entry *at = ok ? find(s, cache_key) : NULL;
    if (at) {
        s->added[s->adds] = *at;
        s->added[s->adds++].origin.place = *place;
        s->moved++;
    }
    pthread_mutex_unlock(&s->lock);
}

void store_add(Store *s, const CacheKey *cache_key, const Origin *origin,
               const Prepared *p, const char *notes)
{
    Entry e = new_entry(cache_key, origin, p, notes);
    pthread_mutex_lock(&s->lock);
    bool ok = s->kind == ERR_NONE && begin_adding(s);
    for (int f = 0; ok && f < e.fields; f++) place(s, &e.field[f].piece);
    if (ok)
        place(s, &e.notes);
    else
        give_up(s);
    pthread_mutex_unlock(&s->lock);

    // the positions are reserved: other threads may write at their own
    for (int f = 0; ok && f < p->fields; f++)
        ok = write_all(s, e.field[f].piece.at, p->field[f].data,
                       p->field[f].bytes);
    ok = ok && write_all(s, e.notes.at, notes, (size_t)e.notes.bytes);
    pthread_mutex_lock(&s->lock);
    if (ok && grow(s))
        s->added[s->adds++] = e;
    else
        give_up(s);
    pthread_mutex_unlock(&s->lock);
}

/* Merges all entries into `list`; of two entries with one key it keeps the
 * added one. Returns how many. */
static int64_t merge(Store *s, Entry *list)
{
    int64_t n = 0;
    const size_t adds = (size_t)s->adds;
    qsort(s->added, adds, sizeof *list, entry_order);
    for (int64_t i = 0; i < s->count; i++)
        if (!bsearch(&s->entry[i], s->added, adds, sizeof *list, entry_order))
            list[n++] = s->entry[i];
    memcpy(list + n, s->added, adds * sizeof *list);
    n += s->adds;
    qsort(list, (size_t)n, sizeof *list, entry_order);
    return n;
}

/* Writes the index of all cases after them, then the header that points to it;
 * the index reaches the disk before the header. */
static bool write_index(Store *s)
{
    Entry *list = mem_alloc((size_t)(s->count + s->adds) * sizeof *list);
    Header h = {.order = ORDER, .format = FORMAT, .entry_bytes = sizeof(Entry)};
    bool ok = false;

    TRY(list);
    h.entries = (uint64_t)merge(s, list);
    const size_t bytes = (size_t)h.entries * sizeof(Entry);
    memcpy(h.magic, magic, sizeof magic);
    Piece index = new_piece(list, bytes);
    place(s, &index);
    h.index_at = index.at, h.index_crc = index.crc;
    h.crc = header_crc(h);
    TRY(write_all(s, h.index_at, list, bytes));
    if (fsync(s->fd)) {
        fail("%s: %s", s->path, strerror(errno));
        goto done;
    }
    TRY(write_all(s, 0, &h, sizeof h));
    if (fsync(s->fd)) {
        fail("%s: %s", s->path, strerror(errno));
        goto done;
    }
    ok = load_index(s, &h, s->end);

done:
    mem_free(list);
    return ok;
}

bool store_commit(Store *s)
{
    bool ok = true;
    pthread_mutex_lock(&s->lock);

    if (s->kind != ERR_NONE) {
        ok = err_set(s->kind, s->why);
    } else if (s->adds) {
        ok = write_index(s);
        if (ok) s->stats.added += s->adds - s->moved;
        s->stats.cases = s->count, s->stats.bytes = (int64_t)s->end;
    }

    s->adds = s->moved = 0;
    if (s->writes) (void)flock(s->fd, LOCK_UN);
    s->writes = false;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

StoreStats store_stats(Store *s)
{
    pthread_mutex_lock(&s->lock);
    StoreStats stats = s->stats;
    pthread_mutex_unlock(&s->lock);
    return stats;
}

bool store_is(const char *path)
{
    char first[sizeof magic];
    FILE *f = fopen(path, "rb");
    bool is = f && fread(first, sizeof first, 1, f) == 1 &&
              memcmp(first, magic, sizeof magic) == 0;
    if (f) fclose(f);
    return is;
}

bool store_look(const char *path, StoreStats *out, bool *current)
{
    Header h;
    uint64_t bytes;
    Store s = {.path = (char *)path, .fd = -1};
    bool ok = false;

    *out = (StoreStats){0};
    s.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s.fd < 0) return fail("%s: %s", path, strerror(errno));
    TRY(read_header(&s, &h, &bytes));
    TRY(load_index(&s, &h, bytes));
    *current = h.entry_bytes && s.count == (int64_t)h.entries;
    out->cases = s.count, out->bytes = (int64_t)bytes;
    ok = true;

done:
    if (s.maps) munmap((void *)s.map[0].data, s.map[0].bytes);
    mem_free(s.entry);
    mem_free(s.seen);
    close(s.fd);
    return ok;
}
