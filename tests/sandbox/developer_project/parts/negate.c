#include "parts.h"

int negate(int a) { return -a; }
