#!/bin/sh
# private.sh -- no file that may leave the machine names a patient.
#
# A marker is planted as name, id, birth date, study date, institution and UIDs of
# synthetic patients and as the folder of their files. After training, evaluation and
# prediction no file of the run may contain it, except cases.csv (mode 600, the table from
# hash to case) and config.txt (the folder, so that the run can be repeated). A DICOM
# result has the patient of its image; a NIfTI result and exported files do not.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/shell.sh
command -v dcmodify > /dev/null || skip "dcmodify is not installed (sh vendor/fetch test)"

seg() {
    "$PROGRAM" scripts/brain_unet.lua "$@" --out "$tmp/runs"
}
step "synthetic patients" seg --preset check --phantom "$tmp/plain" --steps 1
data=$tmp/MARKERPATH
mkdir -p "$data"
cp -r "$tmp"/plain/*/. "$data"
plant() {
    n=0
    for folder in "$data"/*/; do
        n=$((n + 1))
        find "$folder" -type f -exec dcmodify -nb -nrc -q \
            -m "(0010,0010)=MARKERNAME^P$n" -m "(0010,0020)=MARKERID$n" \
            -i "(0010,0030)=19990909" -i "(0008,0020)=19990909" \
            -i "(0008,0080)=MARKERHOSPITAL" {} + || return 1
    done
}
step "planted" plant
rm -rf "$tmp/runs"
step "train" seg --preset check --data "$data" --epochs 2 --save_every 1
step "evaluate" seg evaluate --preset check --data "$data"
run=$tmp/runs/brain_unet/001
step "predict" "$PROGRAM" scripts/brain_unet.lua predict --preset check \
    --weights "$run/checkpoint_best.safetensors" --in "$data" \
    --out "$tmp/predicted"

marked() {
    grep -rlaE 'MARKER|19990909' "$@"
}
# true when only files that match the pattern contain the marker
only() {
    marked "$run" | grep -vE "$1" > "$tmp/found"
    cat "$tmp/found"
    ! [ -s "$tmp/found" ]
}
step "the marker is where it should be" test -n "$(marked "$run/cases.csv")"
step "and nowhere else in the run" only '/(cases\.csv|config\.txt)$'
step "there is a report, a manifest, TensorBoard's events" sh -c \
    "test -s '$run/report.html' -a -s '$run/manifest.json' && ls '$run'/tensorboard/*tfevents*"
folder_free() {
    ! grep -la "$tmp" "$run/report.html" "$run/manifest.json" "$run"/tensorboard/*
}
step "which name no folder" folder_free
step "config.txt holds the folder only" sh -c \
    "! grep -aE 'MARKER(NAME|ID|HOSPITAL)|19990909' '$run/config.txt'"
step "cases.csv is for its owner" test "$(stat -c %a "$run/cases.csv")" = 600
step "no device UID either" sh -c "! grep -rlaE '1\.2\.(826|276|840)\.[0-9.]{12}' '$run'"
step "the SEG knows its patient" sh -c \
    "grep -la MARKERNAME '$tmp'/predicted/*.dcm > /dev/null"
nifti() {
    for file in "$tmp"/predicted/*.nii.gz; do
        zcat "$file" | grep -aqE 'MARKER|19990909' && return 1
    done
    true
}
step "the NIfTI does not" nifti

# Exported files of a recipe that contains names: recipes are written by people, and may
# contain anything.
marked=$tmp/marked
mkdir -p "$marked"
{
    sed '/^local cfg/,$d' scripts/brain_unet.lua
    echo "-- MARKERID2, seen 19990909, in $data/x"
    echo "local mine = { '$data', \"MARKERID1\", \"/scans/MARKERHOSPITAL\" }"
    echo "assert(#mine == 3)"
    sed -n '/^local cfg/,$p' scripts/brain_unet.lua
} > "$marked/brain_unet.lua"
marked_seg() {
    "$PROGRAM" "$marked/brain_unet.lua" "$@" --out "$tmp/marked_runs"
}
for_others() {
    for kind in bundle onnx safetensors; do
        marked_seg export "--$kind" "$marked/for_others.$kind" \
            --weights "$tmp/marked_runs/brain_unet/001" || return 1
    done
}
step "a script that names somebody" marked_seg --preset check --data "$data" --steps 1
step "files for others" for_others
step "name nobody" test -s "$marked/for_others.bundle" -a \
    -z "$(marked "$marked"/for_others.*)"
step "and the bundle has the rest of the script" \
    grep -qa 'U-Net, 4 levels' "$marked/for_others.bundle"

# A recipe that names its images by a value that may be a patient's name: of that value
# neither the weights without their recipe nor their bundle contain more than FLAIR.
find "$data" -type d -name FLAIR | while read -r folder; do
    find "$folder" -type f -exec dcmodify -nb -q \
        -m "(0008,103e)=FLAIR MARKERNAME" {} +
done
sed -e 's/image = cfg.image, mask/image = "FLAIR MARKERN*", mask/' \
    -e 's/predict = { image = cfg.image,/predict = {/' scripts/brain_unet.lua \
    > "$tmp/by_name.lua"
by_name() {
    "$PROGRAM" "$tmp/by_name.lua" "$@"
}
step "a pattern that names a patient" by_name --preset check --data "$data" \
    --steps 1 --out "$tmp/by_name"
step "weights without the script" by_name export --weights "$tmp/by_name/by_name/001" \
    --safetensors "$tmp/by_name.safetensors"
step "name nobody, and know what is taken" sh -c "grep -qa 'FLAIR \*' '$tmp/by_name.safetensors' &&
    ! grep -qa MARKER '$tmp/by_name.safetensors'"
step "which predict takes" by_name predict --preset check \
    --weights "$tmp/by_name.safetensors" --in "$data" --out "$tmp/by_name_out"

doctor() {
    "$PROGRAM" doctor data scripts/brain_unet.lua --preset check --data "$data" \
        --out "$tmp/runs" --html "$tmp/doctor.html" "$@"
}
json() {
    doctor --json > "$tmp/doctor.json"
}
step "doctor data" json
step "page and JSON name nobody" test -s "$tmp/doctor.json" -a \
    -z "$(marked "$tmp/doctor.html" "$tmp/doctor.json")"
step "doctor data --names" doctor --names
step "the page does then" test -n "$(marked "$tmp/doctor.html")"
finish
