/* Which blocks are guarded, and how the process or its environment says so.
 *
 * NECROPSY_GUARD holds words with commas between: `begin`, `disarmed`, `small=N`, `large=N`, `fill=N`, `pattern=N`
 * (decimal; see `struct guard_state`). A process arms and disarms the guard by necropsy_guard_arm and necropsy_guard_disarm.
 *
 * Aligned blocks are a framework's tensors: all are guarded. Of the others, those below LARGE are too many (an import
 * of TensorFlow makes millions), so some are. Of larger ones, the first FAMILIAR of a caller and a size are guarded, and
 * then some: a loop that makes one again and again would become slow. The more blocks are alive, the fewer are guarded.
 */
#include "guard.h"

enum { LARGE = 1024, FAMILIAR = 64, SIZES_SEEN = 4096 };
enum { ONE_OF_SMALL = 61, ONE_OF_LARGE = 13 /* no powers of two: programs have periods of these */ };

struct guard_state guard = {
    .magic = "necropsy guard",
    .version = VERSION,
    .size = sizeof guard,
    .record_size = sizeof(struct record),
    .classes_count = CLASSES,
    .allocation_stack = ALLOCATION_STACK,
    .free_stack = FREE_STACK,
    .small = ONE_OF_SMALL,
    .large = ONE_OF_LARGE,
    .small_left = -1,
    .fill = -1,
    .pattern = 0xcb,
};

static __thread uint32_t turn __attribute__((tls_model("initial-exec")));

/* 1, 4, 16 or 64: by how many of the places for such blocks are in use. */
static uint32_t scarcity(uint64_t live)
{
    return 1U << (2 * (live * 4 / guard.most_plain));
}

static int takes_one_left(void)
{
    int32_t left = __atomic_load_n(&guard.small_left, __ATOMIC_RELAXED);
    while (left > 0)
        if (__atomic_compare_exchange_n(&guard.small_left, &left, left - 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return 1;
    return left < 0;
}

/* Whether a caller has had as many blocks of a size; counted roughly: threads may count at once. */
static int is_familiar(size_t size, const void *caller)
{
    static uint8_t seen[SIZES_SEEN];
    uint64_t mixed = ((uint64_t)caller ^ size << 20) * 0x9e3779b97f4a7c15;
    uint8_t *count = &seen[mixed >> 52];
    if (*count >= FAMILIAR)
        return 1;
    ++*count;
    return 0;
}

int is_wanted(size_t size, size_t alignment, const void *caller)
{
    if (!guard.armed)
        return 0;
    if (alignment > LEAST_ALIGNMENT)
        return alignment <= page_size();
    uint64_t live = __atomic_load_n(&guard.plain, __ATOMIC_RELAXED);
    if (live >= guard.most_plain)
        return 0;
    uint32_t one_of = size < LARGE ? guard.small : guard.large > 1 && !is_familiar(size, caller) ? 1 : guard.large;
    if (!one_of)
        return 0;
    return turn++ % (one_of * scarcity(live)) == 0 && (size >= LARGE || takes_one_left());
}

/* From now on blocks are guarded; of small ones at most `small` (-1: no limit), and those that `small` samples. */
EXPORT void necropsy_guard_arm(int small)
{
    guard.small_left = small;
    __atomic_store_n(&guard.armed, guard.most_live > 0, __ATOMIC_RELEASE);
}

/* Blocks that are guarded by now stay so. */
EXPORT void necropsy_guard_disarm(void)
{
    __atomic_store_n(&guard.armed, 0, __ATOMIC_RELEASE);
}

/* What follows `name` in `text`; NULL where it begins otherwise. */
static const char *after(const char *text, const char *name)
{
    while (*name)
        if (*text++ != *name++)
            return NULL;
    return text;
}

static uint32_t number_in(const char *text)
{
    uint32_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        number = number * 10 + (uint32_t)(*text - '0');
    return number;
}

/* Returns whether the guard is armed at once. */
static int read_options(const char *text)
{
    int armed = 1;
    const char *value;
    while (*text) {
        if (after(text, "begin"))
            guard.begin = 1;
        else if (after(text, "disarmed"))
            armed = 0;
        else if ((value = after(text, "small=")))
            guard.small = number_in(value);
        else if ((value = after(text, "large=")))
            guard.large = number_in(value);
        else if ((value = after(text, "fill=")))
            guard.fill = (int32_t)(number_in(value) & 0xff);
        else if ((value = after(text, "pattern=")))
            guard.pattern = number_in(value) & 0xff;
        while (*text && *text++ != ',')
            ;
    }
    return armed;
}

__attribute__((constructor)) static void load(int count, char **words, char **environment)
{
    (void)count;
    (void)words;
    int armed = 1;
    const char *value;
    for (; environment && *environment; environment++)
        if ((value = after(*environment, "NECROPSY_GUARD=")))
            armed = read_options(value);
    prepare_slots();
    if (armed)
        necropsy_guard_arm(-1);
}
