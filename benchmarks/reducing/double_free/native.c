#include <stdlib.h>
#include <string.h>

struct buffer { char *data; int size; };

struct buffer *buffer_new(int size)
{
    struct buffer *made = malloc(sizeof *made);
    made->data = calloc(1, size);
    made->size = size;
    return made;
}

void buffer_write(struct buffer *buffer, const char *text) { strncpy(buffer->data, text, buffer->size - 1); }

void buffer_share(struct buffer *from, struct buffer *to)
{
    free(to->data);
    to->data = from->data;
}

void buffer_release(struct buffer *buffer) { free(buffer->data); }
