#include <stdlib.h>

int main(void) {
    volatile char *lost = malloc(1000);
    lost[0] = 'x';
    lost = NULL;
    return 0;
}
