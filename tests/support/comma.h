/* comma.h -- a locale whose decimal point is a comma. */
#ifndef SEG_TESTS_SUPPORT_COMMA_H
#define SEG_TESTS_SUPPORT_COMMA_H
#include "tests/test.h"
#include <locale.h>
#include <stdlib.h>

/* Use it for numbers; it is compiled if this system lacks it. False where that
 * fails: its sources are in the package locales. */
static inline bool comma_set(void)
{
    char command[512];
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8")) return true;
    snprintf(command, sizeof command,
             "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' > /dev/null 2>&1",
             test_folder());
    return !system(command) && !setenv("LOCPATH", test_folder(), 1) &&
           setlocale(LC_NUMERIC, "de_DE.UTF-8");
}
#endif
