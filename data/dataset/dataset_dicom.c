/* dataset_dicom.c -- cases from DICOM: studies with the image, and the mask and
 * dose of each.
 *
 * The scan returns series sorted by patient and study. Each patient is searched
 * study by study for the image, then for a mask in successively wider scopes:
 * the same frame of reference, the same study, and the same patient if no other
 * image there could own it. Two equally good series are an error, never a
 * choice. Pixels are not read here: a source keeps its series and is loaded on
 * request. */
#include "data/dataset/dataset_build.h"
#include "data/dataset/dicom_source.h"
#include "engine/base/file.h"
#include "engine/base/utf8.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct Search {
    DatasetBuilder *b;
    const DatasetDicom *how;
    const DicomRead *read; /* for fractions, one per segment     */
    DicomIndex index;
    Names nameless; /* cases without a patient */
    /* missing[k]: studies (or patients) that are no cases, for they lack image
     * k, the mask or the dose; `has`: the series of the first of them */
    Names missing[MAX_CHANNELS + 2], has;
    int incomplete;
    const char *first;
    /* per image, mask, dose: no series of the scan has this name, so the name
     * may be a modality */
    bool modality[MAX_CHANNELS + 2];
    /* Files and studies that are left out: by the scan, studies or patients
     * that lack a series, and with skip_damaged studies that cannot become a
     * case. Room for one per series. */
    DicomLeftOut *left_out;
    int left_outs;
    const char *given_up; /* the reason of the first study of the last kind, or
                           * NULL */
} Search;

static const char *const role_names[] = {"image", "mask", "dose"};

/* Does `text` match `pattern`? `*` matches any text; case is ignored. */
static bool is_like(const char *pattern, const char *text)
{
    while (*pattern && *pattern != '*') {
        if (tolower((unsigned char)*pattern++) !=
            tolower((unsigned char)*text++))
            return false;
    }
    if (!*pattern) return !*text;
    // the star matches no letter, one letter, two, ...
    do {
        if (is_like(pattern + 1, text)) return true;
    } while (*text++);
    return false;
}

/* How well a series matches a name: 3 by UID, 2 by description, 1 by folder, 0
 * not at all. */
static int is_called(const DicomSeries *s, const char *name)
{
    if (!strcmp(s->series_uid, name)) return 3;
    if (is_like(name, s->description)) return 2;
    if (is_like(name, path_tail(s->folder))) return 1;
    return 0;
}

/* Number of images requested: without names, the only series there is. */
static int image_count(const DatasetDicom *how)
{
    return how->images ? how->images : 1;
}

/* The role of series `which`: images first, then the mask, then the dose. */
static DicomRole role_of(const Search *q, int which)
{
    int images = image_count(q->how);
    return which < images ? DICOM_AS_IMAGE
                          : (DicomRole)(DICOM_AS_MASK + (which - images));
}

/* The given name, in that order; NULL: not given, for an image any name. */
static const char *name_given(const Search *q, int which)
{
    DicomRole role = role_of(q, which);
    if (role == DICOM_AS_DOSE) return q->how->dose;
    if (role == DICOM_AS_MASK) return q->how->mask;
    return q->how->images ? q->how->image[which] : NULL;
}

/* Level of a match by is_called; also by Modality if no series of the whole
 * scan has the name, so that a name has the same meaning in all studies. */
static int suits(const Search *q, const DicomSeries *s, const char *name)
{
    int level = is_called(s, name);
    if (level) return level + 1;
    for (int k = 0; k < image_count(q->how) + 2; k++) {
        const char *given = name_given(q, k);
        if (given && q->modality[k] && !strcmp(given, name))
            return !strcmp(s->modality, name);
    }
    return 0;
}

/* Finds the names that can only be modalities. */
static void find_modalities(Search *q)
{
    for (int k = 0; k < image_count(q->how) + 2; k++) {
        const char *name = name_given(q, k);
        q->modality[k] = name != NULL;
        for (int i = 0; i < q->index.count && q->modality[k]; i++)
            q->modality[k] = !is_called(&q->index.series[i], name);
    }
}

/* The series among which a partner is searched. */
typedef struct Scope {
    int from, to;          /* series of the index: one patient       */
    const char *study_uid; /* NULL: any study                        */
    const char *frame_uid; /* NULL: any frame of reference           */
} Scope;

static bool in_scope(const DicomSeries *s, const Scope *scope)
{
    return (!scope->study_uid || !strcmp(s->study_uid, scope->study_uid)) &&
           (!scope->frame_uid || !strcmp(s->frame_uid, scope->frame_uid));
}

/* Finds the best match: *out NULL if there is none; fails if several match
 * equally well. Matches by name rank above those by folder: only the best level
 * counts, and within it there must be one series. */
static bool find_series(const Search *q, const Scope *scope, const char *name,
                        DicomRole role, const DicomSeries **out)
{
    Names best = {.count = 0};
    int level = 0;
    bool same = true;       // all matches are one series by its UID
    bool modalities = true; // no two neighbours have one modality

    *out = NULL;
    for (int i = scope->from; i < scope->to; i++) {
        const DicomSeries *s = &q->index.series[i];
        if (!in_scope(s, scope) || !dicom_may_be(s, role)) continue;
        // without a name, any image that is not the mask. A series may match
        // both names; without a name it must not be the mask
        bool mask = q->how->mask && suits(q, s, q->how->mask);
        int now = name ? suits(q, s, name) : !mask;
        if (!now || now < level) continue;
        if (now > level) {
            best = (Names){.count = 0};
            level = now, same = modalities = true;
        }
        same =
            same && (!best.count || !strcmp(s->series_uid, (*out)->series_uid));
        modalities = modalities &&
                     (!best.count || strcmp(s->modality, (*out)->modality));
        char text[480];
        snprintf(text, sizeof text, "%.400s (%.16s, series %d)", s->folder,
                 s->modality, s->number);
        names_add(&best, text);
        *out = s;
    }

    if (best.count < 2) return true;
    if (same)
        return fail_data("the same series %s times: %s; fix: move one away",
                         best.count == 2 ? "two" : "several", best.text);
    return fail_data("%d series are \"%s\" of one study: %s; fix: name the "
                     "series by its description, folder or UID%s",
                     best.count, name ? name : "the image", best.text,
                     modalities ? ", or by its modality"
                                : ", or keep one of them below the root");
}

/* The patient of a series by the rule; NULL with a reason or (no PatientID)
 * recorded in q->nameless. */
static const char *patient_of(Search *q, const DicomSeries *s)
{
    Arena *mem = &q->b->store->mem;
    if (q->how->patient == PATIENT_FILE)
        return arena_strdup(mem, s->series_uid);

    if (q->how->patient == PATIENT_AUTO) {
        if (!*s->patient_id && q->how->files.skip_damaged) {
            fail_data("%s: no PatientID; fix: patient = \"folder\" if there "
                      "is a folder for each",
                      s->folder);
            return NULL;
        }
        if (!*s->patient_id) names_add(&q->nameless, s->folder);
        return s->patient_id;
    }

    const char *below = s->folder;
    // folders of series begin with the root as passed to the scan
    size_t root = strlen(q->index.root);
    if (!strncmp(below, q->index.root, root)) below += root;
    below += strspn(below, "/");

    // the root itself is a series: its own name
    if (!*below) return arena_strdup(mem, path_tail(q->index.root));
    return arena_printf(mem, "%.*s", (int)strcspn(below, "/"), below);
}

/* The name of a series for a user: its description, else its folder. */
static const char *called(const DicomSeries *s)
{
    return *s->description ? s->description : path_tail(s->folder);
}

/* Records that image `which`, or the mask, is missing in a study (without
 * study_uid: in a patient). Names the first folders, and lists the series of
 * the very first. */
static void note_missing(Search *q, int which, const Scope *scope,
                         const char *folder)
{
    enum { SHOWN = 3 };
    Names *where = &q->missing[which];
    if (where->count < SHOWN)
        names_add(where, folder);
    else
        where->count++;
    if (q->first) return;
    q->first = folder;
    for (int i = scope->from; i < scope->to; i++)
        if (in_scope(&q->index.series[i], scope))
            names_add(&q->has, called(&q->index.series[i]));
}

/* Leaves out a study, or a patient, that lacks some of the requested series. */
static bool leave_out(Search *q, const Scope *scope, const char *folder)
{
    Names has = {.count = 0};
    for (int i = scope->from; i < scope->to; i++)
        if (in_scope(&q->index.series[i], scope))
            names_add(&has, called(&q->index.series[i]));
    const char *text =
        arena_printf(&q->b->store->mem,
                     "%s: not all requested series were found; there are: %s",
                     folder, has.text);
    if (!text) return false;
    q->left_out[q->left_outs++] = (DicomLeftOut){
        .kind = DICOM_LEFT_UNMATCHED, .path = folder, .text = text};
    q->b->skipped++;
    q->incomplete++;
    return true;
}

/* With skip_damaged, leaves out a study that cannot become a case, with the
 * current reason; else false. */
static bool give_up(Search *q, const char *folder)
{
    if (!q->how->files.skip_damaged || err_kind() != ERR_DATA) return false;
    const char *text = arena_strdup(&q->b->store->mem, err_text());
    if (!text) return false;
    q->left_out[q->left_outs++] = (DicomLeftOut){
        .kind = DICOM_LEFT_DAMAGED, .path = folder, .text = text};
    if (!q->given_up) q->given_up = text;
    q->b->skipped++;
    return true;
}

/* Finds the mask or dose of an image in the narrowest scope that has one. */
static bool find_partner(const Search *q, int from, int to,
                         const DicomSeries *image, bool only, const char *name,
                         DicomRole role, const DicomSeries **out)
{
    const Scope scopes[] = {
        // an image without a frame of reference matches masks without one
        {from, to, image->study_uid, *image->frame_uid ? image->frame_uid : ""},
        {from, to, image->study_uid, NULL},
        {from, to, NULL, NULL},
    };
    *out = NULL;
    for (int i = 0; i < (only ? 3 : 2) && !*out; i++)
        if (!find_series(q, &scopes[i], name, role, out)) return false;
    return true;
}

/* Makes the sources of one case: images, masks (for fractions one per segment),
 * dose. */
static bool add_sources(Search *q, const DicomSeries *const *series, Case *c)
{
    const DatasetDicom *how = q->how;
    int images = image_count(how);
    int masks = how->mask ? 1 : 0;

    if (masks && how->fractions && how->segment_count)
        masks = how->segment_count;
    int all = images + masks + (how->dose != NULL), field = 0;
    Source *s = builder_sources(q->b, all);
    if (!s) return false;

    for (int k = 0; k < all; k++) {
        DicomRole role = k < images           ? DICOM_AS_IMAGE
                         : k < images + masks ? DICOM_AS_MASK
                                              : DICOM_AS_DOSE;
        int which =
            role == DICOM_AS_IMAGE ? k : images + (role == DICOM_AS_DOSE);
        const int segment = role == DICOM_AS_MASK ? k - images : 0;
        s[k] = dicom_source(series[which], series[0], role, &q->read[segment]);
    }

    c->field[field++] = (struct CaseField){s, images};
    if (masks) c->field[field++] = (struct CaseField){s + images, masks};
    if (how->dose) c->field[field] = (struct CaseField){s + images + masks, 1};
    return true;
}

/* A series that is both an image and the mask would be learned from itself. Two
 * names may select it: a description, and a folder. */
static bool check_distinct(const Search *q, const DicomSeries *const *series)
{
    const int images = image_count(q->how);
    for (int k = 0; q->how->mask && k < images; k++)
        if (series[k] == series[images])
            return fail_data("%s: image \"%s\" and mask \"%s\" are the same "
                             "series; fix: name another series for one of them",
                             series[k]->folder, name_given(q, k), q->how->mask);
    return true;
}

/* Adds the case of one study, or none (true) if a partner is missing. `only`:
 * no other study of the patient has the image, so a mask of the patient can
 * only belong to this one. */
static bool add_study(Search *q, int from, int to, const char *study_uid,
                      bool only)
{
    const DatasetDicom *how = q->how;
    const DicomSeries *series[MAX_CHANNELS + 2];
    int images = image_count(how);
    const Scope study = {from, to, study_uid, NULL};
    bool complete = true;

    for (int k = 0; k < images + 2; k++) {
        const char *name = name_given(q, k);
        DicomRole role = role_of(q, k);
        if (role != DICOM_AS_IMAGE && !name) continue;
        if (!(role == DICOM_AS_IMAGE
                  ? find_series(q, &study, name, role, &series[k])
                  : find_partner(q, from, to, series[0], only, name, role,
                                 &series[k])))
            return false;
        if (!series[k] && k == 0) return true; // no image in this study
        if (series[k]) continue;
        note_missing(q, k, &study, series[0]->folder);
        complete = false;
    }

    if (!complete) return leave_out(q, &study, series[0]->folder);
    if (!check_distinct(q, series)) return false;
    Case c = {.patient = patient_of(q, series[0])};
    if (!c.patient || !add_sources(q, series, &c)) return false;

    // number_studies makes it unique
    c.key = c.patient;
    return builder_add(q->b, &c);
}

/* End of the run of series with the same patient (and study). */
static int run_end(const DicomIndex *x, int from, bool study)
{
    int to = from + 1;
    const DicomSeries *s = x->series;
    while (to < x->count && !strcmp(s[to].patient_id, s[from].patient_id) &&
           (!study || !strcmp(s[to].study_uid, s[from].study_uid)))
        to++;
    return to;
}

/* Adds all cases of the patient with series from .. to-1. A patient without any
 * image is counted once, for any number of series. */
static bool add_patient(Search *q, int from, int to)
{
    // number of studies with the image
    int studies = 0, before = q->b->count, skipped = q->b->skipped;
    const char *name = q->how->images ? q->how->image[0] : NULL;

    for (int i = from; i < to; i = run_end(&q->index, i, true)) {
        const DicomSeries *image;
        const Scope study = {from, to, q->index.series[i].study_uid, NULL};
        // two matching images are no case; add_study reports it
        const bool one = find_series(q, &study, name, DICOM_AS_IMAGE, &image);
        if (!one && !q->how->files.skip_damaged) return false;
        studies += !one || image;
    }

    for (int i = from; i < to; i = run_end(&q->index, i, true)) {
        const DicomSeries *s = &q->index.series[i];
        if (!add_study(q, from, to, s->study_uid, studies == 1) &&
            !give_up(q, s->folder))
            return false;
    }

    const Scope patient = {from, to, NULL, NULL};
    if (q->b->count == before && q->b->skipped == skipped) {
        note_missing(q, 0, &patient, q->index.series[from].folder);
        return leave_out(q, &patient, q->index.series[from].folder);
    }
    return true;
}

/* Numbers the studies of a patient with several: "NAME/1", "NAME/2", in their
 * order. Quadratic in the number of cases, which is small compared with their
 * voxels. */
static bool number_studies(DatasetBuilder *b)
{
    for (int i = 0; i < b->count; i++) {
        Case *c = &b->cases[i];
        int place = 1, all = 0;
        for (int k = 0; k < b->count; k++) {
            bool same = !strcmp(b->cases[k].patient, c->patient);
            all += same;
            place += same && k < i;
        }
        if (all == 1) continue;
        c->key = arena_printf(&b->store->mem, "%s/%d", c->patient, place);
        if (!c->key) return false;
    }
    return true;
}

/* Copies the options of the reader to the store: they outlive the caller's. */
static const DicomRead *make_read(DatasetBuilder *b, const DatasetDicom *how)
{
    Arena *mem = &b->store->mem;
    // with fractions each segment is a channel with its own reader options
    int each = how->fractions && how->segment_count ? how->segment_count : 1;
    DicomRead *r = ARENA_NEW(mem, DicomRead, each);
    const char **segments = ARENA_NEW(mem, const char *, how->segment_count);

    if (!r || !segments) return NULL;
    for (int i = 0; i < how->segment_count; i++)
        if (!(segments[i] = arena_strdup(mem, how->segments[i]))) return NULL;

    // segments selected by name become 1, 2, ...
    DatasetOptions *o = &b->store->options;
    if (how->segment_count > MAX_LABELS) {
        fail_usage("segments: %d names, wanted at most %d", how->segment_count,
                   MAX_LABELS);
        return NULL;
    }

    for (int i = 0; i < how->segment_count && !how->all.label_count; i++)
        o->labels[i] = i + 1, o->label_count = i + 1;

    for (int i = 0; i < each; i++) {
        r[i].files = how->files;
        r[i].resample_dose = how->resample_dose;
        r[i].mask = (DicomMaskOptions){
            .image = how->files,
            .labels = how->all.label_count ? o->labels : NULL,
            .label_count = how->all.label_count,
            .segments = how->segment_count ? segments + i : NULL,
            .segment_count = each > 1 ? 1 : how->segment_count,
            .resample_mask = how->all.resample_mask,
            .partial = how->partial,
            .contour_tolerance_mm = how->contour_tolerance_mm,
            .fractions = how->fractions};
    }
    return r;
}

/* Length of the path of the folder that contains a series folder. */
static size_t above(const char *folder)
{
    return (size_t)(path_tail(folder) - folder);
}

/* Are two series of one study, or in one folder below the root? */
static bool lie_together(const Search *q, const DicomSeries *a,
                         const DicomSeries *b)
{
    const size_t root = strlen(q->index.root), n = above(a->folder);
    if (*a->study_uid && !strcmp(a->study_uid, b->study_uid)) return true;
    if (!strcmp(a->folder, b->folder)) return strlen(a->folder) > root + 1;
    return n == above(b->folder) && n > root + 1 &&
           !strncmp(a->folder, b->folder, n);
}

/* Has the patient of a series one for this role with the requested name? */
static bool has_role(const Search *q, const char *patient, int which)
{
    const DicomSeries *s = q->index.series;
    for (int i = 0; i < q->index.count; i++)
        if (!strcmp(s[i].patient_id, patient) &&
            dicom_may_be(&s[i], role_of(q, which)) &&
            suits(q, &s[i], name_given(q, which)))
            return true;
    return false;
}

/* Finds an image and a mask that lie together but name two patients, as
 * anonymisation series by series produces. Writes it to text, with the fix;
 * false: there is none. */
static bool two_patients(const Search *q, char text[640])
{
    const DicomSeries *s = q->index.series;
    const int mask = image_count(q->how);
    if (!q->how->mask) return false;

    for (int i = 0; i < q->index.count; i++) {
        if (!dicom_may_be(&s[i], DICOM_AS_IMAGE) ||
            !suits(q, &s[i], name_given(q, 0)))
            continue;
        for (int k = 0; k < q->index.count; k++) {
            if (!strcmp(s[k].patient_id, s[i].patient_id) ||
                !lie_together(q, &s[i], &s[k]) ||
                !dicom_may_be(&s[k], role_of(q, mask)) ||
                !suits(q, &s[k], name_given(q, mask)) ||
                has_role(q, s[i].patient_id, mask) ||
                has_role(q, s[k].patient_id, 0))
                continue;
            snprintf(text, 640,
                     "PatientID is \"%.64s\" in %.120s and \"%.64s\" in "
                     "%.120s, in one folder; fix: if both are of one patient, "
                     "give them one PatientID: dcmodify -m PatientID=%.64s in "
                     "the files of the mask",
                     s[i].patient_id, s[i].folder, s[k].patient_id, s[k].folder,
                     s[i].patient_id);
            utf8_mend(text);
            return true;
        }
    }
    return false;
}

/* Fails without any case: lists the names that no series has, and the existing
 * names. */
static bool nothing_found(const Search *q)
{
    Names absent = {.count = 0}, there = {.count = 0}, folders = {.count = 0};
    Names modalities = {.count = 0};
    const DicomSeries *s = q->index.series;

    for (int k = 0; k < image_count(q->how) + 2; k++) {
        const char *name = name_given(q, k);
        DicomRole role = role_of(q, k);
        bool found = !name && (role != DICOM_AS_IMAGE || q->index.count);
        for (int i = 0; i < q->index.count && !found; i++)
            found = suits(q, &s[i], name) && dicom_may_be(&s[i], role);
        char text[96];
        snprintf(text, sizeof text, "%s \"%.70s\"", role_names[role],
                 name ? name : "");
        if (!found) names_add(&absent, text);
    }

    for (int i = 0; i < q->index.count; i++) {
        const char *name = s[i].description, *folder = path_tail(s[i].folder);
        bool seen = false, named = false;
        for (int k = 0; k < i && !seen; k++)
            seen = !strcmp(s[k].description, name);
        if (!seen) names_add(&there, *name ? name : "(no description)");
        // no second mention of a folder with the name of a series
        for (int k = 0; k < q->index.count && !named; k++)
            named = !strcmp(s[k].description, folder) ||
                    (k < i && !strcmp(path_tail(s[k].folder), folder));
        if (!named) names_add(&folders, folder);
    }

    for (int i = 0; i < q->index.count; i++) {
        bool seen = !*s[i].modality;
        for (int k = 0; k < i && !seen; k++)
            seen = !strcmp(s[k].modality, s[i].modality);
        if (!seen) names_add(&modalities, s[i].modality);
    }

    char apart[640];
    if (!absent.count && two_patients(q, apart))
        return fail_data("%s: no study has the images and the mask together: "
                         "%s",
                         q->index.root, apart);
    return fail_data(
        "%s: no study has the %s; there are: %s%s%s%s%s", q->index.root,
        absent.count ? absent.text : "images and the mask together", there.text,
        folders.count ? "; or by folder: " : "", folders.text,
        modalities.count > 1 ? "; or by modality: " : "",
        modalities.count > 1 ? modalities.text : "");
}

/* Fails if not every study is a case: lists the missing series. */
static bool not_complete(const Search *q)
{
    char text[1024] = "";
    for (int k = 0; k < image_count(q->how) + 2; k++) {
        const Names *where = &q->missing[k];
        const char *name = name_given(q, k);
        size_t used = strlen(text);
        if (!where->count) continue;
        snprintf(text + used, sizeof text - used,
                 "%sno %s \"%.70s\" in %d (%s%s)", used ? ", " : "",
                 role_names[role_of(q, k)], name ? name : "any", where->count,
                 where->text, where->count > 3 ? ", ..." : "");
        utf8_mend(text + used);
    }

    bool one = q->incomplete == 1;
    char apart[640];
    if (two_patients(q, apart))
        return fail_data("%s: %d %s not complete: %s; %s", q->index.root,
                         q->incomplete, one ? "study is" : "studies are", text,
                         apart);
    return fail_data("%s: %d %s not complete: %s; %s has: %s; fix: "
                     "skip_unmatched = true leaves %s out",
                     q->index.root, q->incomplete,
                     one ? "study is" : "studies are", text, q->first,
                     q->has.text, one ? "it" : "them");
}

/* Series are sorted by patient, then study, so each run is one patient. Faults
 * of all patients are collected and reported together. */
static bool add_cases(Search *q)
{
    for (int i = 0, to; i < q->index.count; i = to) {
        to = run_end(&q->index, i, false);
        if (!add_patient(q, i, to)) return false;
    }

    if (q->nameless.count)
        return fail_data("%s: %d series %s no PatientID: %s; fix: patient = "
                         "\"folder\" if there is a folder for each",
                         q->index.root, q->nameless.count,
                         q->nameless.count == 1 ? "has" : "have",
                         q->nameless.text);

    if (!q->b->count && q->given_up) return fail_data("%s", q->given_up);
    if (!q->b->count) return nothing_found(q);
    if (q->incomplete && !q->how->all.skip_unmatched) return not_complete(q);
    return number_studies(q->b);
}

/* The index lives in the store, because sources point to its series and
 * paths. */
bool dataset_dicom(const char *root, const DatasetDicom *how, Dataset **out)
{
    Search q = {.how = how};
    bool ok = false;
    *out = NULL;
    if (how->all.nonzero)
        return fail_usage("labels = \"nonzero\" is for NIfTI masks; list the "
                          "values of a DICOM mask, as in labels = {255}");
    if (how->fractions && how->segment_count > MAX_CHANNELS)
        return fail_usage("fractions of %d segments, wanted at most %d",
                          how->segment_count, MAX_CHANNELS);
    CHECK(how->images >= 0 && how->images <= MAX_CHANNELS);
    if (!dataset_begin(&how->all, &q.b)) return false;
    builder_field(q.b, "image", FIELD_IMAGE, 3);
    if (how->mask)
        builder_field(q.b, "mask", how->fractions ? FIELD_VALUE : FIELD_LABEL,
                      3);
    if (how->dose) builder_field(q.b, "dose", FIELD_VALUE, 3);
    TRY(q.read = make_read(q.b, how));
    TRY(dicom_scan(root, &how->files, &q.b->store->mem, &q.index));
    find_modalities(&q);
    q.left_outs = q.index.left_outs;
    TRY(q.left_out = ARENA_NEW(&q.b->store->mem, DicomLeftOut,
                               q.left_outs + q.index.count));
    if (q.left_outs)
        memcpy(q.left_out, q.index.left_out,
               (size_t)q.left_outs * sizeof *q.left_out);
    TRY(add_cases(&q));
    q.b->store->left_out = q.left_out, q.b->store->left_outs = q.left_outs;
    ok = true;

done:
    if (!ok) dataset_drop(q.b);
    return ok && dataset_finish(q.b, out);
}
