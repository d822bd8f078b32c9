/* font.h -- the letters of pictures: printable ASCII as dots.
 *
 * A glyph is FONT_COLS x FONT_ROWS dots: capitals and digits fill rows 0 to
 * FONT_BASE, letters that hang reach two rows further. Pictures join
 * neighbouring dots by strokes, so one table serves every size. */
#ifndef SEG_DATA_IMAGE_FONT_H
#define SEG_DATA_IMAGE_FONT_H
#include <stdbool.h>

enum {
    FONT_COLS = 5,
    FONT_ROWS = 9,
    FONT_BASE = 6, /* the row on which letters stand        */
    FONT_STEP = 6, /* columns from one letter to the next   */
};

/* Is the dot set? False outside the glyph. A character that is not printable
 * ASCII is an empty box. */
bool font_dot(char letter, int row, int col);
#endif
