#include "buf.h"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    struct buf out = {.data = NULL, .len = 0, .cap = 0};
    const char *words[] = {"one", "two", "three"};
    for (size_t i = 0, len = sizeof words / sizeof *words; i < len; i++)
        buf_add(&out, str_of(words[i]));
    printf("len=%zu last=%c\n", out.len, BUF_LAST(&out));
    fwrite(out.data, 1, out.len, stdout);
    puts("");
    free(out.data);
    return 0;
}
