#ifndef BUF_H
#define BUF_H
#include "str.h"

/* Bytes that grow: `len` of `cap` are used. */
struct buf {
    char *data;
    size_t len, cap;
};

#define BUF_LAST(b) ((b)->data[(b)->len - 1])

void buf_add(struct buf *buf, struct str s);
#endif
