#include "buf.h"
#include <stdlib.h>

void buf_add(struct buf *buf, struct str s)
{
    if (buf->len + s.len > buf->cap) {
        buf->cap = (buf->len + s.len) * 2;
        buf->data = realloc(buf->data, buf->cap);
        if (!buf->data)
            abort();
    }
    memcpy(buf->data + buf->len, s.data, s.len);
    buf->len += s.len;
}
