/* comma.h -- a locale whose decimal point is a comma. */
#ifndef SEG_TESTS_SUPPORT_COMMA_H
#define SEG_TESTS_SUPPORT_COMMA_H
#include "tests/test.h"
#include <locale.h>
#include <stdlib.h>

/* Set it for numbers; it is made if this system has none. False where it cannot
 * be made: the package locales has what it is made of. */
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
