/* One of the many small sources that compile.mk compiles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct item {
    const char *name;
    size_t length;
};

int UNIT(struct item *items, int count) {
    int found = 0;
    for (int number = 0; number < count; number++)
        if (items[number].length == strlen(items[number].name))
            found += printf("%s\n", items[number].name) > 0;
    return found;
}
