#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: columns FILE\n", stderr);
        return 2;
    }
    FILE *file = fopen(argv[1], "rb");
    if (!file) {
        perror(argv[1]);
        return 1;
    }
    size_t most = 0, count = 0;
    for (int c; (c = getc(file)) != EOF;) {
        count = c == '\n' ? 0 : count + 1;
        if (count > most)
            most = count;
    }
    fclose(file);
    printf("%zu\n", most);
    return 0;
}
