/* The program gave a damaged block, or none, to free: one line on stderr, and abort(3). */
#include "guard.h"

extern void abort(void) __attribute__((noreturn));

struct line {
    char text[256];
    size_t size;
};

static void add_text(struct line *line, const char *text)
{
    while (*text && line->size < sizeof line->text)
        line->text[line->size++] = *text++;
}

static void add_number(struct line *line, uint64_t number, unsigned base)
{
    char digits[24];
    int at = sizeof digits - 1;
    digits[at] = 0;
    do
        digits[--at] = "0123456789abcdef"[number % base];
    while (number /= base);
    add_text(line, base == 16 ? "0x" : "");
    add_text(line, digits + at);
}

static void add_block(struct line *line, const struct record *record)
{
    add_text(line, "the block of ");
    add_number(line, record->size, 10);
    add_text(line, " bytes at ");
    add_number(line, record->address, 16);
}

void complain(enum complaint_kind kind, const struct record *record, const void *address, size_t bytes)
{
    struct line line = {.size = 0};
    add_text(&line, "necropsy guard: ");
    if (kind == OVERWRITTEN_AFTER || kind == OVERWRITTEN_BEFORE) {
        add_number(&line, bytes, 10);
        add_text(&line, kind == OVERWRITTEN_AFTER ? " bytes after the end of " : " bytes before the start of ");
        add_block(&line, record);
        add_text(&line, " were overwritten before it was freed\n");
    } else if (kind == FREED_TWICE) {
        add_block(&line, record);
        add_text(&line, " was freed twice\n");
    } else {
        add_text(&line, "free of ");
        add_number(&line, (uint64_t)address, 16);
        add_text(&line, ", which is not the start of a block\n");
    }
    guard.complaint.thread = (uint64_t)call1(SYS_gettid, 0);
    guard.complaint.record = (uint64_t)record;
    guard.complaint.address = (uint64_t)address;
    guard.complaint.bytes = bytes;
    __atomic_store_n(&guard.complaint.kind, kind, __ATOMIC_RELEASE);
    call3(SYS_write, 2, (long)line.text, (long)line.size);
    abort();
}
