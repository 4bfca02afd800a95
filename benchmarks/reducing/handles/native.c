struct operations { int (*read)(int rate, char *into, int size); };
struct device { struct operations *operations; int rate; int mode; int open; };

static int fill(int rate, char *into, int size)
{
    for (int i = 0; i < size; i++)
        into[i] = (char)(rate + i);
    return size;
}

static struct operations known = {fill};
static struct device devices[8];

struct device *device_open(const char *name)
{
    struct device *found = &devices[name[0] % 8];
    found->operations = &known;
    found->open = 1;
    return found;
}

int device_configure(struct device *device, const char *key, int value)
{
    if (!device || !device->open)
        return -1;
    if (key[0] == 'r')
        device->rate = value;
    if (key[0] == 'm')
        device->mode = value;
    return 0;
}

int device_read(struct device *device, char *into, int size)
{
    if (!device)
        return -1;
    if (!device->mode && !device->open)
        return -1;
    return device->operations->read(device->rate, into, size);
}

void device_close(struct device *device)
{
    device->open = 0;
    device->operations = 0;
}
