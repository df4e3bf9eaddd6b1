#ifndef STR_H
#define STR_H
#include <stddef.h>
#include <string.h>

struct str {
    const char *data;
    size_t len;
};

static inline struct str str_of(const char *text)
{
    size_t len = strlen(text);
    return (struct str){.data = text, .len = len};
}
#endif
