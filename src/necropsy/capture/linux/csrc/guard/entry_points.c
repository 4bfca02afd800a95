/* malloc(3) and its kin: guarded where that is wanted and possible, else the C library's own.
 *
 * glibc exports its functions under second names; elsewhere, dlsym(3) finds them. No other symbol of a C library is
 * used than these, abort and errno: the library runs with any version.
 */
#include "guard.h"

enum { ENOMEM = 12, EINVAL = 22 };

#define WEAK __attribute__((weak))

extern void *__libc_malloc(size_t) WEAK;
extern void *__libc_calloc(size_t, size_t) WEAK;
extern void *__libc_realloc(void *, size_t) WEAK;
extern void *__libc_memalign(size_t, size_t) WEAK;
extern void __libc_free(void *) WEAK;
extern void *dlsym(void *, const char *) WEAK;
extern int *__errno_location(void);

/* The function `name` of the library behind this one; its address is kept in `kept`. */
static void *behind(const char *name, void **kept)
{
    void *const next = (void *)-1L; /* RTLD_NEXT */
    if (!*kept && dlsym)
        *kept = dlsym(next, name);
    return *kept;
}

static void *plain_malloc(size_t size)
{
    static void *found;
    return __libc_malloc ? __libc_malloc(size) : ((void *(*)(size_t))behind("malloc", &found))(size);
}

static void *plain_calloc(size_t count, size_t size)
{
    static void *found;
    return __libc_calloc ? __libc_calloc(count, size)
                         : ((void *(*)(size_t, size_t))behind("calloc", &found))(count, size);
}

static void *plain_realloc(void *block, size_t size)
{
    static void *found;
    return __libc_realloc ? __libc_realloc(block, size)
                          : ((void *(*)(void *, size_t))behind("realloc", &found))(block, size);
}

static void *plain_memalign(size_t alignment, size_t size)
{
    static void *found;
    return __libc_memalign ? __libc_memalign(alignment, size)
                           : ((void *(*)(size_t, size_t))behind("memalign", &found))(alignment, size);
}

static void plain_free(void *block)
{
    static void *found;
    if (__libc_free)
        __libc_free(block);
    else
        ((void (*)(void *))behind("free", &found))(block);
}

static size_t plain_usable_size(void *block)
{
    static void *found;
    size_t (*ask)(void *) = (size_t(*)(void *))behind("malloc_usable_size", &found);
    if (ask || !block)
        return ask ? ask(block) : 0;
    /* Before glibc 2.34, a program without libdl: the size before the block (malloc.c), whose lowest bits are flags. */
    size_t head = ((size_t *)block)[-1];
    return (head & ~(size_t)7) - (head & 2 ? 16 : 8);
}

static int is_power_of_two(size_t number)
{
    return number && !(number & (number - 1));
}

static inline void *guarded_or_null(size_t size, size_t alignment, int zeroed, const void *caller)
{
    return is_wanted(size, alignment, caller) ? allocate_guarded(size, alignment, zeroed) : NULL;
}

EXPORT void *malloc(size_t size)
{
    void *block = guarded_or_null(size, LEAST_ALIGNMENT, 0, __builtin_return_address(0));
    return block ? block : plain_malloc(size);
}

EXPORT void *calloc(size_t count, size_t size)
{
    size_t all;
    if (__builtin_mul_overflow(count, size, &all))
        return plain_calloc(count, size); /* it says why not */
    void *block = guarded_or_null(all, LEAST_ALIGNMENT, 1, __builtin_return_address(0));
    return block ? block : plain_calloc(count, size);
}

EXPORT void free(void *block)
{
    struct class *of;
    struct record *record = block ? record_of(block, &of) : NULL;
    if (record)
        free_guarded(block, of, record);
    else
        plain_free(block);
}

EXPORT void cfree(void *block)
{
    free(block);
}

EXPORT void *realloc(void *block, size_t size)
{
    struct class *of;
    struct record *record = block ? record_of(block, &of) : NULL;
    if (!block)
        return malloc(size);
    if (!record)
        return plain_realloc(block, size);
    if (record->state != LIVE || record->address != (uint64_t)block)
        free_guarded(block, of, record); /* it complains */
    void *moved = size ? malloc(size) : NULL;
    if (moved)
        copy_bytes(moved, block, record->size < size ? record->size : size);
    if (moved || !size)
        free_guarded(block, of, record);
    return moved;
}

EXPORT void *memalign(size_t alignment, size_t size)
{
    void *block = NULL;
    if (is_power_of_two(alignment))
        block = guarded_or_null(size, alignment < LEAST_ALIGNMENT ? LEAST_ALIGNMENT : alignment, 0,
                                __builtin_return_address(0));
    return block ? block : plain_memalign(alignment, size);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    if (is_power_of_two(alignment))
        return memalign(alignment, size);
    *__errno_location() = EINVAL;
    return NULL;
}

EXPORT int posix_memalign(void **at, size_t alignment, size_t size)
{
    if (!is_power_of_two(alignment) || alignment % sizeof(void *))
        return EINVAL;
    int *error = __errno_location(), before = *error;
    void *block = memalign(alignment, size);
    *error = before; /* its error is what it returns */
    if (!block)
        return ENOMEM;
    *at = block;
    return 0;
}

EXPORT void *valloc(size_t size)
{
    return memalign(page_size(), size);
}

EXPORT void *pvalloc(size_t size)
{
    return memalign(page_size(), size > pages_of(size) ? size : pages_of(size)); /* beyond the largest, it says why not */
}

EXPORT size_t malloc_usable_size(void *block)
{
    struct class *of;
    struct record *record = block ? record_of(block, &of) : NULL;
    return record ? (size_t)record->size : plain_usable_size(block);
}
