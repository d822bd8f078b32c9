# prose.awk -- counts words that stand for a missing noun, per 1,000 words of prose.
#
#     awk -f tests/prose.awk FILE ...
#
# Prose is: comments of C, C++, CUDA, Lua, shell, Python and make; Markdown without its
# code. Three groups are counted apart: comments of sources, comments of tests, documents.
# Prints each group that is over a limit, with the file that has the highest count, and ends
# with status 1.
BEGIN {
    word["what"] = word["whatever"] = "what"
    word["who"] = word["whoever"] = word["nobody"] = "who"
    word["those"] = word["these"] = word["them"] = "those"
    limit["what"] = 1.5; limit["who"] = 0.3; limit["those"] = 4
}
FNR == 1 {
    open = 0 # inside of a comment, or of a block of code of a document
    group = FILENAME ~ /\.md$/ ? "documents" : FILENAME ~ /^tests\// ? "comments of tests" \
            : "comments of sources"
    language = FILENAME ~ /\.(c|h|cc|cu|cuh|def)$/ ? "c" : FILENAME ~ /\.lua$/ ? "lua" \
               : FILENAME ~ /\.md$/ ? "md" : "sh"
}
# the prose of line $0
function prose(    text, at, end) {
    if (language == "md") {
        if ($0 ~ /^ *```/) { open = !open; return "" }
        text = open ? "" : $0
        gsub(/`[^`]*`/, " ", text)
        return text
    }
    gsub(/"([^"\\]|\\.)*"/, " ")
    if (language == "sh") return match($0, /(^|[ \t])#/) ? substr($0, RSTART) : ""
    if (language == "lua") {
        if (open) { if ($0 ~ /\]=*\]/) open = 0; return $0 }
        if (!match($0, /--/)) return ""
        text = substr($0, RSTART)
        if (text ~ /^--\[=*\[/ && text !~ /\]=*\]/) open = 1
        return text
    }
    text = ""
    at = $0
    while (at != "") {
        if (open) {
            end = index(at, "*/")
            text = text " " (end ? substr(at, 1, end - 1) : at)
            at = end ? substr(at, end + 2) : ""
            open = !end
        } else if (match(at, /\/[*\/]/)) {
            if (substr(at, RSTART, 2) == "//") return text " " substr(at, RSTART)
            at = substr(at, RSTART + 2)
            open = 1
        } else at = ""
    }
    return text
}
{
    n = split(tolower(prose()), w, /[^a-z'-]+/)
    for (i = 1; i <= n; i++) {
        if (w[i] !~ /[a-z]/) continue
        words[group]++
        if (!(w[i] in word)) continue
        count[group, word[w[i]]]++
        in_file[group, word[w[i]], FILENAME]++
    }
}
END {
    for (g in words) for (k in limit) {
        rate = 1000 * count[g, k] / words[g]
        if (rate <= limit[k]) continue
        bad = 1
        worst = ""
        for (f in in_file) {
            split(f, part, SUBSEP)
            if (part[1] == g && part[2] == k && in_file[f] > in_file[worst]) worst = f
        }
        split(worst, part, SUBSEP)
        printf "  %s: %.1f of \"%s\" and its like per 1,000 words, the limit is %.1f; most in %s\n",
            g, rate, k, limit[k], part[3]
    }
    exit bad
}
