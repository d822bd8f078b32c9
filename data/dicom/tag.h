/* tag.h -- the DICOM elements that this program reads or writes.
 *
 * One table gives number, value representation (VR) and name of each element;
 * the walker checks VRs against it, errors take names from it and the writer
 * takes VRs from it. A tag is one number, with the group in the upper half.
 * Also here: transfer syntaxes, names of SOP classes, and the function that
 * formats every error text. */
#ifndef SEG_DATA_DICOM_TAG_H
#define SEG_DATA_DICOM_TAG_H
#include "data/dicom/dicom.h"

/* X(group, element, VR, second valid VR or the same, name), sorted by number. A
 * list of DS longer than 64 KiB is written as UN in explicit files. */
#define DICOM_TAGS(X)                                                \
    X(0x0002, 0x0000, UL, UL, FileMetaInformationGroupLength)        \
    X(0x0002, 0x0001, OB, OB, FileMetaInformationVersion)            \
    X(0x0002, 0x0002, UI, UI, MediaStorageSOPClassUID)               \
    X(0x0002, 0x0003, UI, UI, MediaStorageSOPInstanceUID)            \
    X(0x0002, 0x0010, UI, UI, TransferSyntaxUID)                     \
    X(0x0002, 0x0012, UI, UI, ImplementationClassUID)                \
    X(0x0002, 0x0013, SH, SH, ImplementationVersionName)             \
    X(0x0004, 0x1220, SQ, SQ, DirectoryRecordSequence)               \
    X(0x0008, 0x0005, CS, CS, SpecificCharacterSet)                  \
    X(0x0008, 0x0008, CS, CS, ImageType)                             \
    X(0x0008, 0x0016, UI, UI, SOPClassUID)                           \
    X(0x0008, 0x0018, UI, UI, SOPInstanceUID)                        \
    X(0x0008, 0x0020, DA, DA, StudyDate)                             \
    X(0x0008, 0x0021, DA, DA, SeriesDate)                            \
    X(0x0008, 0x0023, DA, DA, ContentDate)                           \
    X(0x0008, 0x0030, TM, TM, StudyTime)                             \
    X(0x0008, 0x0031, TM, TM, SeriesTime)                            \
    X(0x0008, 0x0033, TM, TM, ContentTime)                           \
    X(0x0008, 0x0050, SH, SH, AccessionNumber)                       \
    X(0x0008, 0x0060, CS, CS, Modality)                              \
    X(0x0008, 0x0070, LO, LO, Manufacturer)                          \
    X(0x0008, 0x0090, PN, PN, ReferringPhysicianName)                \
    X(0x0008, 0x0100, SH, SH, CodeValue)                             \
    X(0x0008, 0x0102, SH, SH, CodingSchemeDesignator)                \
    X(0x0008, 0x0104, LO, LO, CodeMeaning)                           \
    X(0x0008, 0x1030, LO, LO, StudyDescription)                      \
    X(0x0008, 0x103E, LO, LO, SeriesDescription)                     \
    X(0x0008, 0x1070, PN, PN, OperatorsName)                         \
    X(0x0008, 0x1090, LO, LO, ManufacturerModelName)                 \
    X(0x0008, 0x1115, SQ, SQ, ReferencedSeriesSequence)              \
    X(0x0008, 0x1140, SQ, SQ, ReferencedImageSequence)               \
    X(0x0008, 0x114A, SQ, SQ, ReferencedInstanceSequence)            \
    X(0x0008, 0x1150, UI, UI, ReferencedSOPClassUID)                 \
    X(0x0008, 0x1155, UI, UI, ReferencedSOPInstanceUID)              \
    X(0x0008, 0x1160, IS, IS, ReferencedFrameNumber)                 \
    X(0x0008, 0x2112, SQ, SQ, SourceImageSequence)                   \
    X(0x0008, 0x9124, SQ, SQ, DerivationImageSequence)               \
    X(0x0008, 0x9215, SQ, SQ, DerivationCodeSequence)                \
    X(0x0010, 0x0010, PN, PN, PatientName)                           \
    X(0x0010, 0x0020, LO, LO, PatientID)                             \
    X(0x0010, 0x0030, DA, DA, PatientBirthDate)                      \
    X(0x0010, 0x0040, CS, CS, PatientSex)                            \
    X(0x0010, 0x1010, AS, AS, PatientAge)                            \
    X(0x0012, 0x0062, CS, CS, PatientIdentityRemoved)                \
    X(0x0012, 0x0063, LO, LO, DeidentificationMethod)                \
    X(0x0018, 0x0020, CS, CS, ScanningSequence)                      \
    X(0x0018, 0x0021, CS, CS, SequenceVariant)                       \
    X(0x0018, 0x0022, CS, CS, ScanOptions)                           \
    X(0x0018, 0x0023, CS, CS, MRAcquisitionType)                     \
    X(0x0018, 0x0050, DS, DS, SliceThickness)                        \
    X(0x0018, 0x0060, DS, DS, KVP)                                   \
    X(0x0018, 0x0080, DS, DS, RepetitionTime)                        \
    X(0x0018, 0x0081, DS, DS, EchoTime)                              \
    X(0x0018, 0x0088, DS, DS, SpacingBetweenSlices)                  \
    X(0x0018, 0x0091, IS, IS, EchoTrainLength)                       \
    X(0x0018, 0x1000, LO, LO, DeviceSerialNumber)                    \
    X(0x0018, 0x1020, LO, LO, SoftwareVersions)                      \
    X(0x0018, 0x5100, CS, CS, PatientPosition)                       \
    X(0x0020, 0x000D, UI, UI, StudyInstanceUID)                      \
    X(0x0020, 0x000E, UI, UI, SeriesInstanceUID)                     \
    X(0x0020, 0x0010, SH, SH, StudyID)                               \
    X(0x0020, 0x0011, IS, IS, SeriesNumber)                          \
    X(0x0020, 0x0012, IS, IS, AcquisitionNumber)                     \
    X(0x0020, 0x0013, IS, IS, InstanceNumber)                        \
    X(0x0020, 0x0032, DS, DS, ImagePositionPatient)                  \
    X(0x0020, 0x0037, DS, DS, ImageOrientationPatient)               \
    X(0x0020, 0x0052, UI, UI, FrameOfReferenceUID)                   \
    X(0x0020, 0x0060, CS, CS, Laterality)                            \
    X(0x0020, 0x1040, LO, LO, PositionReferenceIndicator)            \
    X(0x0020, 0x9056, SH, SH, StackID)                               \
    X(0x0020, 0x9057, UL, UL, InStackPositionNumber)                 \
    X(0x0020, 0x9111, SQ, SQ, FrameContentSequence)                  \
    X(0x0020, 0x9113, SQ, SQ, PlanePositionSequence)                 \
    X(0x0020, 0x9116, SQ, SQ, PlaneOrientationSequence)              \
    X(0x0020, 0x9128, UL, UL, TemporalPositionIndex)                 \
    X(0x0020, 0x9157, UL, UL, DimensionIndexValues)                  \
    X(0x0020, 0x9161, UI, UI, ConcatenationUID)                      \
    X(0x0020, 0x9162, US, US, InConcatenationNumber)                 \
    X(0x0020, 0x9163, US, US, InConcatenationTotalNumber)            \
    X(0x0020, 0x9164, UI, UI, DimensionOrganizationUID)              \
    X(0x0020, 0x9165, AT, AT, DimensionIndexPointer)                 \
    X(0x0020, 0x9167, AT, AT, FunctionalGroupPointer)                \
    X(0x0020, 0x9221, SQ, SQ, DimensionOrganizationSequence)         \
    X(0x0020, 0x9222, SQ, SQ, DimensionIndexSequence)                \
    X(0x0020, 0x9421, LO, LO, DimensionDescriptionLabel)             \
    X(0x0028, 0x0002, US, US, SamplesPerPixel)                       \
    X(0x0028, 0x0004, CS, CS, PhotometricInterpretation)             \
    X(0x0028, 0x0006, US, US, PlanarConfiguration)                   \
    X(0x0028, 0x0008, IS, IS, NumberOfFrames)                        \
    X(0x0028, 0x0009, AT, AT, FrameIncrementPointer)                 \
    X(0x0028, 0x0010, US, US, Rows)                                  \
    X(0x0028, 0x0011, US, US, Columns)                               \
    X(0x0028, 0x0030, DS, DS, PixelSpacing)                          \
    X(0x0028, 0x0100, US, US, BitsAllocated)                         \
    X(0x0028, 0x0101, US, US, BitsStored)                            \
    X(0x0028, 0x0102, US, US, HighBit)                               \
    X(0x0028, 0x0103, US, US, PixelRepresentation)                   \
    X(0x0028, 0x1050, DS, DS, WindowCenter)                          \
    X(0x0028, 0x1051, DS, DS, WindowWidth)                           \
    X(0x0028, 0x1052, DS, DS, RescaleIntercept)                      \
    X(0x0028, 0x1053, DS, DS, RescaleSlope)                          \
    X(0x0028, 0x1054, LO, LO, RescaleType)                           \
    X(0x0028, 0x135A, CS, CS, SpatialLocationsPreserved)             \
    X(0x0028, 0x2110, CS, CS, LossyImageCompression)                 \
    X(0x0028, 0x3000, SQ, SQ, ModalityLUTSequence)                   \
    X(0x0028, 0x9110, SQ, SQ, PixelMeasuresSequence)                 \
    X(0x0028, 0x9145, SQ, SQ, PixelValueTransformationSequence)      \
    X(0x0040, 0xA170, SQ, SQ, PurposeOfReferenceCodeSequence)        \
    X(0x0062, 0x0001, CS, CS, SegmentationType)                      \
    X(0x0062, 0x0002, SQ, SQ, SegmentSequence)                       \
    X(0x0062, 0x0003, SQ, SQ, SegmentedPropertyCategoryCodeSequence) \
    X(0x0062, 0x0004, US, US, SegmentNumber)                         \
    X(0x0062, 0x0005, LO, LO, SegmentLabel)                          \
    X(0x0062, 0x0008, CS, CS, SegmentAlgorithmType)                  \
    X(0x0062, 0x0009, LO, LO, SegmentAlgorithmName)                  \
    X(0x0062, 0x000A, SQ, SQ, SegmentIdentificationSequence)         \
    X(0x0062, 0x000B, US, US, ReferencedSegmentNumber)               \
    X(0x0062, 0x000E, US, US, MaximumFractionalValue)                \
    X(0x0062, 0x000F, SQ, SQ, SegmentedPropertyTypeCodeSequence)     \
    X(0x0062, 0x0010, CS, CS, SegmentationFractionalType)            \
    X(0x0070, 0x0080, CS, CS, ContentLabel)                          \
    X(0x0070, 0x0081, LO, LO, ContentDescription)                    \
    X(0x0070, 0x0084, PN, PN, ContentCreatorName)                    \
    X(0x3004, 0x0002, CS, CS, DoseUnits)                             \
    X(0x3004, 0x0004, CS, CS, DoseType)                              \
    X(0x3004, 0x0006, LO, LO, DoseComment)                           \
    X(0x3004, 0x000A, CS, CS, DoseSummationType)                     \
    X(0x3004, 0x000C, DS, UN, GridFrameOffsetVector)                 \
    X(0x3004, 0x000E, DS, DS, DoseGridScaling)                       \
    X(0x3006, 0x0002, SH, SH, StructureSetLabel)                     \
    X(0x3006, 0x0010, SQ, SQ, ReferencedFrameOfReferenceSequence)    \
    X(0x3006, 0x0012, SQ, SQ, RTReferencedStudySequence)             \
    X(0x3006, 0x0014, SQ, SQ, RTReferencedSeriesSequence)            \
    X(0x3006, 0x0016, SQ, SQ, ContourImageSequence)                  \
    X(0x3006, 0x0020, SQ, SQ, StructureSetROISequence)               \
    X(0x3006, 0x0022, IS, IS, ROINumber)                             \
    X(0x3006, 0x0024, UI, UI, ReferencedFrameOfReferenceUID)         \
    X(0x3006, 0x0026, LO, LO, ROIName)                               \
    X(0x3006, 0x0039, SQ, SQ, ROIContourSequence)                    \
    X(0x3006, 0x0040, SQ, SQ, ContourSequence)                       \
    X(0x3006, 0x0042, CS, CS, ContourGeometricType)                  \
    X(0x3006, 0x0046, IS, IS, NumberOfContourPoints)                 \
    X(0x3006, 0x0050, DS, UN, ContourData)                           \
    X(0x3006, 0x0084, IS, IS, ReferencedROINumber)                   \
    X(0x300C, 0x0002, SQ, SQ, ReferencedRTPlanSequence)              \
    X(0x5200, 0x9229, SQ, SQ, SharedFunctionalGroupsSequence)        \
    X(0x5200, 0x9230, SQ, SQ, PerFrameFunctionalGroupsSequence)      \
    X(0x7FE0, 0x0010, OW, OB, PixelData)

/* Every tag as a constant: TAG_Rows is 0x00280010. */
enum {
#define X(group, element, vr, vr2, name) \
    TAG_##name = (int)((uint32_t)group << 16 | element),
    DICOM_TAGS(X)
#undef X
};
#define TAG_ITEM         0xFFFEE000u
#define TAG_ITEM_END     0xFFFEE00Du
#define TAG_SEQUENCE_END 0xFFFEE0DDu

/* A value representation as one number: its two letters as in a file. */
#define VR(a, b) ((uint16_t)((a) << 8 | (b)))

typedef struct DicomTag {
    uint32_t tag;
    uint16_t vr, vr2;
    const char *name;
} DicomTag;

/* The table entry of `tag`, NULL if the table does not have it. */
const DicomTag *dicom_tag(uint32_t tag);

/* Is `vr` defined in the standard? Does its header have a length of 32 bits in
 * explicit files? */
bool dicom_vr_known(uint16_t vr);
bool dicom_vr_long(uint16_t vr);

/* The encoding of a file. */
typedef struct DicomTransfer {
    const char *uid, *name;
    bool implicit, big_endian, deflated, encapsulated;
    bool supported, lossy;
    const char *unpack; /* program that decompresses an unsupported one */
} DicomTransfer;

/* The entry of a transfer syntax; NULL if the UID is unknown. */
const DicomTransfer *dicom_transfer(const char *uid);
const char *dicom_syntax_uid(DicomSyntax syntax);

/* Is it a class with its attributes in functional groups, even for a single
 * frame? Enhanced MR, CT, PET and their converted forms. */
bool dicom_class_enhanced(const char *uid);

/* "CT Image Storage" for a UID; the UID itself if the class is unknown. */
const char *dicom_class_name(const char *uid);
#define CLASS_MR        "1.2.840.10008.5.1.4.1.1.4"
#define CLASS_CT        "1.2.840.10008.5.1.4.1.1.2"
#define CLASS_SEG       "1.2.840.10008.5.1.4.1.1.66.4"
#define CLASS_LABELMAP  "1.2.840.10008.5.1.4.1.1.66.7"
#define CLASS_STRUCTURE "1.2.840.10008.5.1.4.1.1.481.3"
#define CLASS_PLAN      "1.2.840.10008.5.1.4.1.1.481.5"
#define CLASS_DOSE      "1.2.840.10008.5.1.4.1.1.481.2"
#define CLASS_DIR       "1.2.840.10008.1.3.10"

/* Calls fail_data("PATH: dicom: TEXT [tag (gggg,eeee) Name]; fix: FIX"),
 * without the parts for tag 0 and a NULL fix. Returns false. */
bool dicom_fail(const char *path, uint32_t tag, const char *fix,
                const char *fmt, ...) ERR_FORMAT(4, 5);

/* Adds a note in the same form unless the same text is already there; notes may
 * be NULL. False only when memory runs out. */
bool dicom_note(DicomNotes *notes, bool warning, const char *path, uint32_t tag,
                const char *fmt, ...) ERR_FORMAT(5, 6);
#endif
