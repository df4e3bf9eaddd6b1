#ifndef RING_H
#define RING_H
#include <stddef.h>

struct ring {
    unsigned char *data;
    size_t size;
    size_t head, tail;
};

/* Use `size` bytes at `data`, all of them. */
void ring_init(struct ring *ring, unsigned char *data, size_t size);
/* The number of bytes that can be read. */
size_t ring_used(const struct ring *ring);
/* Write up to `count` bytes. Return how many there was space for. */
size_t ring_write(struct ring *ring, const unsigned char *from, size_t count);
/* Read up to `count` bytes. Return how many there were. */
size_t ring_read(struct ring *ring, unsigned char *to, size_t count);
#endif
