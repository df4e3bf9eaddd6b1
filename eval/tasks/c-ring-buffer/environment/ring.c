#include "ring.h"
#include <string.h>

void ring_init(struct ring *ring, unsigned char *data, size_t size)
{
    ring->data = data;
    ring->size = size;
    ring->head = ring->tail = 0;
}

size_t ring_used(const struct ring *ring)
{
    return (ring->head - ring->tail + ring->size) % ring->size;
}

size_t ring_write(struct ring *ring, const unsigned char *from, size_t count)
{
    size_t space = ring->size - ring_used(ring);
    if (count > space)
        count = space;
    size_t first = ring->size - ring->head - 1;
    if (first > count)
        first = count;
    memcpy(ring->data + ring->head, from, first);
    memcpy(ring->data, from + first, count - first);
    ring->head = (ring->head + count) % ring->size;
    return count;
}

size_t ring_read(struct ring *ring, unsigned char *to, size_t count)
{
    size_t used = ring_used(ring);
    if (count > used)
        count = used;
    size_t first = ring->size - ring->tail;
    if (first > count)
        first = count;
    memcpy(to, ring->data + ring->tail, first);
    memcpy(to + first, ring->data, count - first);
    ring->tail = (ring->tail + count) % ring->size;
    return count;
}
