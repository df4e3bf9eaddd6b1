#include "parts.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int a = argc > 1 ? atoi(argv[1]) : 1;
    int b = argc > 2 ? atoi(argv[2]) : 2;
    printf("%d + %d = %d, %d * %d = %d, -%d = %d, %d ^ 2 = %d\n", a, b, add(a, b), a, b, multiply(a, b), a, negate(a), a, square(a));
    return 0;
}
