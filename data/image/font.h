/* font.h -- the glyphs of text in pictures: printable ASCII as dots.
 *
 * A glyph is FONT_COLS x FONT_ROWS dots: capitals and digits fill rows 0 to
 * FONT_BASE, descenders extend two rows further. Pictures join neighbouring
 * dots by strokes, so one table serves every size. */
#ifndef SEG_DATA_IMAGE_FONT_H
#define SEG_DATA_IMAGE_FONT_H
#include <stdbool.h>

enum {
    FONT_COLS = 5,
    FONT_ROWS = 9,
    FONT_BASE = 6, /* row of the baseline */
    FONT_STEP = 6, /* columns from one glyph to the next */
};

/* Is the dot set? False outside the glyph. A character that is not printable
 * ASCII is an empty box. */
bool font_dot(char letter, int row, int col);
#endif
