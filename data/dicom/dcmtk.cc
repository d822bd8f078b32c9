/* dcmtk.cc -- implements codec.h with DCMTK; the only C++ source.
 *
 * A data set is built here from given numbers, never parsed from an input file:
 * to decode, the fragments of one frame with the pixel module that header.c has
 * checked; to write, a list of elements. No exception leaves this file. DCMTK's
 * own log is off, its texts are returned in `why`. */
#include "data/dicom/codec.h"

#include <dcmtk/config/osconfig.h>

#include <dcmtk/dcmdata/dcdatset.h>
#include <dcmtk/dcmdata/dcdeftag.h>
#include <dcmtk/dcmdata/dcdict.h>
#include <dcmtk/dcmdata/dcfilefo.h>
#include <dcmtk/dcmdata/dcostrmb.h>
#include <dcmtk/dcmdata/dcpixel.h>
#include <dcmtk/dcmdata/dcpixseq.h>
#include <dcmtk/dcmdata/dcpxitem.h>
#include <dcmtk/dcmdata/dcrleerg.h>
#include <dcmtk/dcmdata/dcsequen.h>
#include <dcmtk/dcmdata/dcvrat.h>
#include <dcmtk/dcmdata/dcvrds.h>
#include <dcmtk/dcmdata/dcvrus.h>
#include <dcmtk/dcmdata/dcwcache.h>
#include <dcmtk/dcmjpeg/djdecode.h>
#include <dcmtk/dcmjpeg/djencode.h>
#include <dcmtk/dcmjpls/djdecode.h>
#include <dcmtk/dcmjpls/djencode.h>
#include <dcmtk/oflog/oflog.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

extern "C" bool dicom_ready(void)
{
    return true;
}

namespace {

// Holds the lock of the dictionary during its lifetime, released also by an
// exception.
class Dictionary {
  public:
    Dictionary() : dictionary(dcmDataDict.wrlock())
    {
    }
    ~Dictionary()
    {
        dcmDataDict.wrunlock();
    }
    Dictionary(const Dictionary &) = delete;
    Dictionary &operator=(const Dictionary &) = delete;
    decltype(dcmDataDict.wrlock()) dictionary;
};

// loads a dictionary unless one is loaded already (DCMDICTPATH)
void load_dictionary(const std::string &path)
{
    if (dcmDataDict.isDictionaryLoaded()) return;
    Dictionary d;
    d.dictionary.loadDictionary(path.c_str());
}

// The memory for loading the dictionary, with half as much again, and for a
// codec in addition to a few copies of the frame.
const size_t DICTIONARY_BYTES = size_t(24) << 20, CODEC_BYTES = size_t(4) << 20;

// Throws unless this much memory is available now. DCMTK checks no result of
// malloc while it loads its dictionary, and reports a damaged JPEG if libjpeg
// runs out of memory; so the memory is allocated beforehand and freed.
void want(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p) throw std::bad_alloc();
    free(p);
}

// the path of `name` next to the program or library that contains this code:
// the tar of `make dist` has DCMTK's dictionary there
std::string installed_path(const char *name)
{
    Dl_info here;
    std::string self;
    if (dladdr(reinterpret_cast<void *>(&dicom_ready), &here))
        self = here.dli_fname;
    // a program started by its bare name
    char path[4096];
    ssize_t n = self.find('/') == std::string::npos
                    ? readlink("/proc/self/exe", path, sizeof path)
                    : -1;
    if (n > 0) self.assign(path, static_cast<size_t>(n));
    return self.substr(0, self.rfind('/') + 1) + name;
}

// DCMTK's own log is turned off: its messages are returned as conditions.
void start_codecs()
{
    OFLog::configure(OFLogger::OFF_LOG_LEVEL);
#ifdef SEG_DICTIONARY
    // a private prefix has its dictionary where DCMTK does not look
    load_dictionary(SEG_DICTIONARY);
#endif
    load_dictionary(installed_path("share/dicom.dic"));
    load_dictionary(installed_path("../share/dicom.dic"));
    DJDecoderRegistration::registerCodecs();
    DJLSDecoderRegistration::registerCodecs();
    DJEncoderRegistration::registerCodecs(ECC_lossyYCbCr, EUC_never);

    // raw: stores samples unchanged; the other mode fails on signed samples
    DJLSEncoderRegistration::registerCodecs(0, 0, 0, 0, OFFalse, 0, OFTrue,
                                            EJLSUC_never);
    DcmRLEEncoderRegistration::registerCodecs();
}

// Throws if memory is short at the start; it may then be called again. Returns
// false if memory ran out later: DCMTK may then hold the lock of its dictionary
// forever, so it must not be used again.
bool start()
{
    want(DICTIONARY_BYTES);
    try {
        start_codecs();
    } catch (const std::bad_alloc &) {
        return false;
    }
    return true;
}

// returns false, with a text for the caller
bool explain(char why[CODEC_WHY], const char *text)
{
    snprintf(why, CODEC_WHY, "%s", text);
    return false;
}

// Translates a condition of DCMTK. Memory runs out in three ways: an exception,
// this code, and libjpeg's own message.
CodecResult check(const OFCondition &c, char why[CODEC_WHY])
{
    if (c.good()) return CODEC_DONE;
    if (c == EC_MemoryExhausted || strstr(c.text(), "nsufficient memory"))
        return CODEC_NO_MEMORY;
    explain(why, c.text());
    return CODEC_REFUSED;
}

// DCMTK's codecs set elements by name, so they need its dictionary
bool ready(char why[CODEC_WHY])
{
    // Registering codecs and loading the dictionary takes milliseconds and is
    // needed only for decoding and writing: done once, on the first call. No
    // exception may pass through pthread_once: libc allocates memory to unwind
    // its own code, and aborts if it cannot.
    static const bool started = start();
    if (!started) throw std::bad_alloc();
    if (dcmDataDict.isDictionaryLoaded()) return true;
    return explain(why, "DCMTK finds no data dictionary; fix: set DCMDICTPATH "
                        "to its dicom.dic");
}

// DCMTK's insert takes ownership of the element only if it succeeds: hence a
// unique_ptr that is released afterwards, here and below.
OFCondition put_u16(DcmItem &item, const DcmTagKey &key, Uint16 value)
{
    std::unique_ptr<DcmUnsignedShort> e(
        new DcmUnsignedShort(DcmTag(key, EVR_US)));
    OFCondition c = e->putUint16(value, 0);
    if (c.good()) c = item.insert(e.get(), OFTrue);
    if (c.good()) e.release();
    return c;
}

// sets the pixel module, which the decoder needs for its output
OFCondition describe(DcmItem &item, const CodecPixels &p)
{
    const struct {
        DcmTagKey key;
        Uint16 value;
    } numbers[] = {
        {DCM_SamplesPerPixel, 1},
        {DCM_Rows, p.rows},
        {DCM_Columns, p.cols},
        {DCM_BitsAllocated, p.allocated},
        {DCM_BitsStored, p.stored},
        {DCM_HighBit, static_cast<Uint16>(p.stored - 1)},
        {DCM_PixelRepresentation, p.is_signed},
    };
    OFCondition c = EC_Normal;
    for (const auto &n : numbers)
        if (c.good()) c = put_u16(item, n.key, n.value);
    if (c.good())
        c = item.putAndInsertString(DCM_PhotometricInterpretation,
                                    "MONOCHROME2");
    return c;
}

// appends an item of encapsulated pixels; NULL: the empty offset table
OFCondition add_fragment(DcmPixelSequence &seq, const CodecBytes *from)
{
    std::unique_ptr<DcmPixelItem> item(
        new DcmPixelItem(DcmTag(DCM_Item, EVR_OB)));
    OFCondition c = EC_Normal;
    if (from) c = item->putUint8Array(from->bytes, from->length);
    if (c.good()) c = seq.insert(item.get());
    if (c.good()) item.release();
    return c;
}

// Decodes a data set that has only the pixel module and the fragments, by
// requesting its uncompressed representation: the codecs of DCMTK work on data
// sets only.
OFCondition decode(const CodecPixels &form, const CodecBytes *fragments,
                   int32_t count, uint8_t *out)
{
    E_TransferSyntax syntax = DcmXfer(form.syntax_uid).getXfer();
    DcmDataset data;
    OFCondition c = describe(data, form);

    std::unique_ptr<DcmPixelSequence> seq(
        new DcmPixelSequence(DcmTag(DCM_PixelData, EVR_OB)));
    if (c.good()) c = add_fragment(*seq, nullptr); // an empty offset table
    for (int32_t i = 0; c.good() && i < count; i++)
        c = add_fragment(*seq, &fragments[i]);
    if (c.bad()) return c;
    std::unique_ptr<DcmPixelData> pixels(new DcmPixelData(DCM_PixelData));
    pixels->putOriginalRepresentation(syntax, nullptr, seq.release());
    c = data.insert(pixels.get(), OFTrue);
    if (c.bad()) return c;
    pixels.release();

    // this decodes
    c = data.chooseRepresentation(EXS_LittleEndianExplicit, nullptr);
    if (c.bad()) return c;

    // a decoder may have chosen 8 bits where the file allocated 16
    DcmElement *e = nullptr;
    Uint16 bits = 0;
    c = data.findAndGetUint16(DCM_BitsAllocated, bits);
    if (c.good()) c = data.findAndGetElement(DCM_PixelData, e);
    if (c.bad()) return c;
    const size_t samples = size_t(form.rows) * form.cols;

    if (bits == 8 && e->getLength() >= samples) {
        Uint8 *from = nullptr;
        c = e->getUint8Array(from);
        if (c.bad() || !from) return EC_CorruptedData;
        const size_t step = form.allocated / 8;
        memset(out, 0, samples * step);
        for (size_t i = 0; i < samples; i++) out[i * step] = from[i];
        return EC_Normal;
    }

    if (bits == 16 && form.allocated == 16 && e->getLength() >= 2 * samples) {
        Uint16 *from = nullptr;
        c = e->getUint16Array(from);
        if (c.bad() || !from) return EC_CorruptedData;
        for (size_t i = 0; i < samples; i++) {
            out[2 * i] = static_cast<uint8_t>(from[i]);
            out[2 * i + 1] = static_cast<uint8_t>(from[i] >> 8);
        }
        return EC_Normal;
    }
    return EC_CorruptedData;
}

// builds a tree of the elements; at[d] is the item for insertions at depth d
OFCondition build(DcmDataset &data, const CodecElement *elements, int32_t count)
{
    // deeper than any file that is written
    enum { DEPTH = 16 };
    DcmItem *at[DEPTH] = {&data};
    DcmSequenceOfItems *open[DEPTH] = {};

    for (int32_t i = 0; i < count; i++) {
        const CodecElement &e = elements[i];
        if (e.depth >= DEPTH) return EC_IllegalParameter;
        if (e.tag == 0xFFFEE000u) {
            if (!e.depth || !open[e.depth - 1]) return EC_IllegalParameter;
            std::unique_ptr<DcmItem> item(new DcmItem());
            OFCondition c = open[e.depth - 1]->append(item.get());
            if (c.bad()) return c;
            at[e.depth] = item.release();
            continue;
        }
        // the two letters of the VR as text
        const char vr[3] = {char(e.vr >> 8), char(e.vr & 0xFF), 0};
        DcmTagKey key(Uint16(e.tag >> 16), Uint16(e.tag & 0xFFFF));
        DcmElement *made = nullptr;
        OFCondition c =
            DcmItem::newDicomElementWithVR(made, DcmTag(key, DcmVR(vr)));
        std::unique_ptr<DcmElement> owner(made);
        if (c.good() && e.value && *e.value) c = made->putString(e.value);
        if (c.good()) c = at[e.depth]->insert(made, OFTrue);
        if (c.bad()) return c;
        owner.release();
        open[e.depth] = e.vr == ('S' << 8 | 'Q')
                            ? static_cast<DcmSequenceOfItems *>(made)
                            : nullptr;
    }
    return EC_Normal;
}

// Words of 16 bits, or bytes padded to an even number, as DICOM requires.
OFCondition put_pixels(DcmDataset &data, const CodecPixels &form,
                       const uint8_t *bytes, size_t count)
{
    const bool words = form.allocated == 16;

    // DICOM lengths have 32 bits, and all ones means "undefined"
    if (count > 0xFFFFFFFEu) return EC_IllegalParameter;
    std::unique_ptr<DcmPixelData> e(
        new DcmPixelData(DcmTag(DCM_PixelData, words ? EVR_OW : EVR_OB)));
    OFCondition c;

    if (words) {
        Uint16 *to = nullptr;
        c = e->createUint16Array(static_cast<Uint32>(count / 2), to);
        for (size_t i = 0; c.good() && i < count / 2; i++)
            to[i] = static_cast<Uint16>(bytes[2 * i] | bytes[2 * i + 1] << 8);
    } else {
        Uint8 *to = nullptr;
        c = e->createUint8Array(static_cast<Uint32>(count + count % 2), to);
        if (c.good()) {
            to[count + count % 2 - 1] = 0;
            memcpy(to, bytes, count);
        }
    }

    if (c.good()) c = data.insert(e.get(), OFTrue);
    if (c.good()) e.release();
    return c;
}

// An output that throws on an error: DCMTK's own file stream does not report a
// full disk.
class Output {
  public:
    explicit Output(const char *path) : file(fopen(path, "wb"))
    {
        if (!file) throw std::runtime_error(strerror(errno));
    }
    ~Output()
    {
        if (file) fclose(file);
    }
    void put(const void *data, size_t bytes)
    {
        if (fwrite(data, 1, bytes, file) != bytes)
            throw std::runtime_error(strerror(errno));
    }
    void close()
    {
        FILE *f = file;
        file = nullptr;
        if (fclose(f)) throw std::runtime_error(strerror(errno));
    }
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

  private:
    FILE *file;
};

// Writes the file through a buffer, which DCMTK requests to be emptied whenever
// it is full.
OFCondition save(DcmFileFormat &file, const char *path, E_TransferSyntax syntax)
{
    std::vector<Uint8> room(1 << 16);
    DcmOutputBufferStream stream(room.data(),
                                 static_cast<offile_off_t>(room.size()));
    DcmWriteCache cache;
    Output out(path);
    OFCondition c;

    // writes the contents of the stream to the file
    const auto empty = [&] {
        void *full = nullptr;
        offile_off_t bytes = 0;
        stream.flush();
        stream.flushBuffer(full, bytes);
        if (bytes > 0) out.put(full, static_cast<size_t>(bytes));
    };

    // the state of a transfer in pieces; transferEnd() clears it
    file.transferInit();
    do {
        c = file.write(stream, syntax, EET_ExplicitLength, &cache,
                       EGL_withoutGL);
        empty();
    } while (c == EC_StreamNotifyClient);

    // deflated output ends with more than `room` may hold at once
    while (c.good() && stream.good() && !stream.isFlushed()) empty();
    file.transferEnd();
    out.close();
    return c;
}

// A compressed syntax is produced by requesting that representation of the
// finished data set.
OFCondition write(const char *path, const CodecPixels &form,
                  const CodecElement *elements, int32_t count,
                  const uint8_t *pixels, size_t bytes)
{
    E_TransferSyntax syntax = DcmXfer(form.syntax_uid).getXfer();
    DcmFileFormat file;
    DcmDataset &data = *file.getDataset();
    OFCondition c = build(data, elements, count);
    if (c.good()) c = put_pixels(data, form, pixels, bytes);
    if (c.good()) c = data.chooseRepresentation(syntax, nullptr);
    if (c.good() && !data.canWriteXfer(syntax))
        c = EC_CannotChangeRepresentation;
    if (c.good()) c = save(file, path, syntax);
    return c;
}

} // namespace

// The two functions of codec.h. bad_alloc is caught separately: the caller must
// not blame the file for it.
extern "C" CodecResult codec_decode(const CodecPixels *form,
                                    const CodecBytes *fragments, int32_t count,
                                    uint8_t *out, char why[CODEC_WHY])
try {
    if (!ready(why)) return CODEC_REFUSED;
    want(CODEC_BYTES + size_t(form->rows) * form->cols * 16);
    return check(decode(*form, fragments, count, out), why);
} catch (const std::bad_alloc &) {
    return CODEC_NO_MEMORY;
} catch (const std::exception &e) {
    explain(why, e.what());
    return CODEC_REFUSED;
} catch (...) {
    explain(why, "DCMTK raised something that is no error");
    return CODEC_REFUSED;
}

extern "C" CodecResult codec_write(const char *path, const CodecPixels *form,
                                   const CodecElement *elements, int32_t count,
                                   const uint8_t *pixels, size_t bytes,
                                   char why[CODEC_WHY])
try {
    if (!ready(why)) return CODEC_REFUSED;
    want(CODEC_BYTES + 4 * bytes);
    return check(write(path, *form, elements, count, pixels, bytes), why);
} catch (const std::bad_alloc &) {
    return CODEC_NO_MEMORY;
} catch (const std::exception &e) {
    explain(why, e.what());
    return CODEC_REFUSED;
} catch (...) {
    explain(why, "DCMTK raised something that is no error");
    return CODEC_REFUSED;
}
