#include "ring.h"
#include <stdio.h>
#include <string.h>

/* Compare with a queue that is shifted after each read, for all sizes, and all lengths of writes and reads. */
int main(void)
{
    for (size_t size = 1; size <= 9; size++)
        for (size_t in = 1; in <= size + 1; in++)
            for (size_t out = 1; out <= size + 1; out++) {
                unsigned char data[11], expected[16], from[16], to[16], next = 0;
                size_t length = 0;
                struct ring ring;
                memset(data, 0xEE, sizeof data);
                ring_init(&ring, data, size);
                for (int turn = 0; turn < 40; turn++) {
                    for (size_t i = 0; i < in; i++)
                        from[i] = next + i;
                    size_t fits = in < size - length ? in : size - length;
                    if (ring_write(&ring, from, in) != fits)
                        return puts("wrong count of a write"), 1;
                    memcpy(expected + length, from, fits);
                    length += fits;
                    next += fits;
                    if (ring_used(&ring) != length)
                        return puts("wrong used"), 1;
                    size_t gets = out < length ? out : length;
                    if (ring_read(&ring, to, out) != gets || memcmp(to, expected, gets))
                        return puts("wrong bytes of a read"), 1;
                    length -= gets;
                    memmove(expected, expected + gets, length);
                }
                if (data[size] != 0xEE)
                    return puts("written past the end"), 1;
            }
    return puts("passed"), 0;
}
