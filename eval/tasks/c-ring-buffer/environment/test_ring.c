#include "ring.h"
#include <stdio.h>
#include <string.h>

int main(void)
{
    unsigned char data[16], out[16];
    struct ring ring;
    ring_init(&ring, data, sizeof data);
    if (ring_write(&ring, (const unsigned char *)"hello", 5) != 5 || ring_used(&ring) != 5)
        return puts("write failed"), 1;
    if (ring_read(&ring, out, sizeof out) != 5 || memcmp(out, "hello", 5))
        return puts("read failed"), 1;
    return puts("ok"), 0;
}
